# SPDX-License-Identifier: Apache-2.0
"""Where the files of PhysicalAI-AV are: unpacked, or in archives as ``features.csv`` says."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from accvlab.dali_pipeline_framework.checks import bullets, listed, text
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import parse_json
from accvlab.dali_pipeline_framework.providers import Storage

FEATURES = "features.csv"


@attrs.frozen(kw_only=True)
class ClipLayout:
    """Names of the files of PhysicalAI-AV, relative to the root. Change names that differ.

    ``{clip}`` is the name of the clip, ``{camera}`` the name of the camera, ``{chunk}`` the number of the clip's
    chunk, of four digits. A ZIP file counts as a folder in these names (``archive.zip/name_in_it``). The
    defaults are for archives that were unpacked, each in its folder. Packed archives are found without a layout,
    by the names in ``features.csv``.

    Attributes:
        video: Videos.
        times: Times of their frames, a Parquet file with ``timestamp``.
        ego_motion: Poses of the vehicle, with ``timestamp, x, y, z, qx, qy, qz, qw``.
        intrinsics: Lenses of the cameras, with ``clip_id, camera_name, width, height, cx, cy``, ``bw_poly_0`` to
            ``bw_poly_4`` and ``fw_poly_0`` to ``fw_poly_4``.
        extrinsics: Places of the sensors, with ``clip_id, sensor_name, x, y, z, qx, qy, qz, qw``.
        vehicle: With ``vehicle_size``: sizes of the vehicles, with ``clip_id, length, width, height,
            rear_axle_to_bbox_center, wheelbase, track_width``.
        obstacles: Boxes, with ``timestamp_us, track_id, label_class, center_x, orientation_x, size_x, ...``.
        clips: List of the clips, with ``clip_id, chunk``; for events also ``event_t0s, end_timestamp``.
    """

    video: str = "camera/{camera}/{clip}.{camera}.mp4"
    times: str = "camera/{camera}/{clip}.{camera}.timestamps.parquet"
    ego_motion: str = "labels/egomotion/{clip}.egomotion.parquet"
    intrinsics: str = "calibration/camera_intrinsics/camera_intrinsics.chunk_{chunk}.parquet"
    extrinsics: str = "calibration/sensor_extrinsics/sensor_extrinsics.chunk_{chunk}.parquet"
    vehicle: str = "calibration/vehicle_dimensions/vehicle_dimensions.chunk_{chunk}.parquet"
    obstacles: str = "labels/obstacle.offline/{clip}.obstacle.offline.parquet"
    clips: str = "clip_index.parquet"

    def __attrs_post_init__(self) -> None:
        """Refuse names without the places that they need, or with others."""
        problems = []
        for field in attrs.fields_dict(ClipLayout):
            pattern, needed = text(getattr(self, field), field), _NEEDED_PLACES.get(field, set())
            found = set(re.findall(r"{(.*?)}", pattern))
            if not needed <= found or re.search(r"[{}]", re.sub(f"{{({'|'.join(_PLACES)})}}", "", pattern)):
                places = ", ".join(f"{{{place}}}" for place in sorted(needed))
                none = "no place but {clip}, {camera}, {chunk}"
                problems.append(f"{field}: must have {places or none}, got {pattern!r}")
        if problems:
            raise SettingError(f"The names of a ClipLayout must have places to fill:\n{bullets(problems)}")

    @property
    def needs_chunks(self) -> bool:
        """Whether names need the chunk of a clip, which the list of clips has."""
        return any("{chunk}" in pattern for pattern in (self.video, self.intrinsics, self.extrinsics))

    def named(self, field: str, *, clip: str = "", camera: str = "", chunk: int = 0) -> str:
        """Name of a file of a clip."""
        pattern: str = getattr(self, field)
        return pattern.format(clip=clip, camera=camera, chunk=f"{chunk:04d}")

    def found(self, root: Path) -> dict[str, list[str]]:
        """Find the clips that have an unpacked video, by name, and the cameras that each has."""
        pattern = re.escape(self.video)
        for name in _PLACES:
            place = re.escape(f"{{{name}}}")
            pattern = pattern.replace(place, f"(?P<{name}>[^/]+?)", 1).replace(place, f"(?P={name})")
        expression = re.compile(pattern)
        clips: dict[str, list[str]] = {}
        for path in sorted(root.glob(re.sub(r"{.*?}", "*", self.video))):
            match = expression.fullmatch(path.relative_to(root).as_posix())
            if match and not path.name.startswith("."):
                clips.setdefault(match["clip"], []).append(match["camera"])
        return {clip: sorted(cameras) for clip, cameras in sorted(clips.items())}


_PLACES = ("clip", "camera", "chunk")
_OF_CLIP, _OF_CAMERA = {"clip"}, {"clip", "camera"}
_NEEDED_PLACES = {"video": _OF_CAMERA, "times": _OF_CAMERA, "ego_motion": _OF_CLIP, "obstacles": _OF_CLIP}

_ALIASES = {"video": "video", "times": "frame_timestamps"}  # of files of cameras
_FEATURE_OF = {
    "ego_motion": "egomotion",
    "intrinsics": "camera_intrinsics",
    "extrinsics": "sensor_extrinsics",
    "vehicle": "vehicle_dimensions",
    "obstacles": "obstacle",
}


def published_layout(storage: Storage) -> tuple[ClipLayout, list[str]]:
    """Read from ``features.csv`` in which archives the files are, and the names of the cameras.

    Raises:
        FileError: It is missing, or is that of another version of the layout.
    """
    where = repr(storage.path(FEATURES))
    names = _names(storage, where)
    cameras = [feature for feature, files in names.items() if {*_ALIASES.values()} <= files.keys()]
    patterns = {
        field: names[camera][alias].replace(camera, "{camera}")
        for camera in cameras[:1]
        for field, alias in _ALIASES.items()
    }
    for field, feature in _FEATURE_OF.items():
        files = names.get(feature) or names.get(f"{feature}.offline") or {}
        patterns.update((field, pattern) for pattern in [*files.values()][:1])
    if not cameras or not {*_FEATURE_OF} - {"obstacles"} <= patterns.keys():
        needed = listed(feature for field, feature in _FEATURE_OF.items() if field != "obstacles")
        rule = f"{where} must have cameras, with a video and its times, and the features {needed}"
        raise FileError(f"{rule}, got {listed(names)}. {_ADVICE}")
    try:
        return ClipLayout(**patterns), cameras
    except SettingError as error:
        rule = f"{where} must have no places but {{chunk_id:04d}} and {{clip_id}}, here {{chunk}} and {{clip}}"
        raise FileError(f"{rule}. {error} {_ADVICE}") from error


_ADVICE = "It is of another version of the layout: name the files, layout=ClipLayout(...)."


def _names(storage: Storage, where: str) -> Mapping[str, Mapping[str, str]]:
    """Names of the files of each feature, by their alias; of a table that is in no archive, one."""
    lines = bytes(storage.read_bytes(FEATURES)).decode("utf-8-sig", errors="replace").splitlines()
    try:
        names = {}
        for row in csv.DictReader(lines):
            chunk, members = row["chunk_path"], parse_json(row["clip_files_in_zip"] or "{}")
            files = {alias: f"{chunk}/{member}" for alias, member in members.items()} or {"": chunk}
            names[row["feature"]] = {
                alias: file.replace("{chunk_id:04d}", "{chunk}").replace("{clip_id}", "{clip}")
                for alias, file in files.items()
            }
        return names
    except (KeyError, TypeError, AttributeError, ValueError, csv.Error) as error:
        rule = f"{where} must have the columns feature, chunk_path and clip_files_in_zip (JSON)"
        raise FileError(f"{rule}, but {type(error).__name__}: {error}. {_ADVICE}") from error
