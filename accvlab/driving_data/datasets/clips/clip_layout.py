# SPDX-License-Identifier: Apache-2.0
"""Where the files of clips lie."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from accvlab.dali_pipeline_framework.checks import bullets, text
from accvlab.dali_pipeline_framework.errors import FileError, SettingError


@attrs.frozen(kw_only=True)
class ClipLayout:
    """Names of the files of PhysicalAI-AV, relative to the root. Change what lies elsewhere.

    ``{clip}`` is the name of the clip, ``{camera}`` that of the camera, ``{chunk}`` the number of the chunk that
    the clip is in, of four digits.

    Attributes:
        video: Videos.
        times: Times of their frames, a Parquet file with ``timestamp``.
        ego_motion: Poses of the vehicle, with ``timestamp, x, y, z, qx, qy, qz, qw``.
        intrinsics: Calibration of the cameras, with ``clip_id, camera_name, cx, cy, fw_poly_0`` to ``fw_poly_4``.
        extrinsics: Places of the sensors, with ``clip_id, sensor_name, x, y, z, qx, qy, qz, qw``.
        obstacles: Boxes, with ``timestamp_us, track_id, label_class, center_x, orientation_x, size_x, ...``.
        clips: List of the clips, with ``clip_id, chunk``.
    """

    video: str = "camera/{camera}/{clip}.{camera}.mp4"
    times: str = "camera/{camera}/{clip}.{camera}.timestamps.parquet"
    ego_motion: str = "labels/egomotion/{clip}.egomotion.parquet"
    intrinsics: str = "calibration/camera_intrinsics/camera_intrinsics.chunk_{chunk}.parquet"
    extrinsics: str = "calibration/sensor_extrinsics/sensor_extrinsics.chunk_{chunk}.parquet"
    obstacles: str = "labels/obstacle.offline/{clip}.obstacle.offline.parquet"
    clips: str = "clip_index.parquet"

    def __attrs_post_init__(self) -> None:
        """Refuse names without the places that they need, or with others."""
        problems = []
        for field, needed in _PLACES.items():
            pattern = text(getattr(self, field), field)
            found = set(re.findall(r"{(.*?)}", pattern))
            if found - {"clip", "camera", "chunk"} or not needed <= found:
                places = (
                    ", ".join(f"{{{place}}}" for place in sorted(needed))
                    or "no place but {clip}, {camera}, {chunk}"
                )
                problems.append(f"{field}: must have {places}, got {pattern!r}")
        if problems:
            raise SettingError(f"The names of a ClipLayout must have places to fill:\n{bullets(problems)}")

    def named(self, field: str, *, clip: str = "", camera: str = "", chunk: int = 0) -> str:
        """Name of a file of a clip."""
        pattern: str = getattr(self, field)
        return pattern.format(clip=clip, camera=camera, chunk=f"{chunk:04d}")

    def found(self, root: Path) -> dict[str, list[str]]:
        """Find the clips that have a video, by name, and the cameras that each has.

        Raises:
            FileError: There is none.
        """
        pattern = re.escape(self.video).replace(r"\{", "{").replace(r"\}", "}")
        seen: set[str] = set()

        def group(place: re.Match[str]) -> str:
            name = place[1]
            if name in seen:
                return f"(?P={name})"
            seen.add(name)
            return f"(?P<{name}>[^/]+?)"

        expression = re.compile(re.sub(r"{(.*?)}", group, pattern))
        clips: dict[str, list[str]] = {}
        for path in sorted(root.glob(re.sub(r"{.*?}", "*", self.video))):
            match = expression.fullmatch(path.relative_to(root).as_posix())
            if match:
                clips.setdefault(match["clip"], []).append(match["camera"])
        if not clips:
            raise FileError(
                f"There are no videos {self.video!r} in {str(root)!r}. The published archives (.zip) of cameras "
                f"and labels must be unpacked, each in its folder; files that lie elsewhere are named by `layout`."
            )
        return {clip: sorted(cameras) for clip, cameras in sorted(clips.items())}


_PLACES: dict[str, set[str]] = {
    "video": {"clip", "camera"},
    "times": {"clip", "camera"},
    "ego_motion": {"clip"},
    "intrinsics": set(),
    "extrinsics": set(),
    "obstacles": {"clip"},
    "clips": set(),
}
