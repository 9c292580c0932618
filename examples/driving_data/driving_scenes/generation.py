"""From settings to a data set on disk."""

import io
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from driving_scenes.cameras import CAMERA_NAMES, Camera, camera_rig
from driving_scenes.errors import DatasetExistsError
from driving_scenes.geometry import invert_rigid, transform_points, yaw_of
from driving_scenes.reader import DrivingScenes
from driving_scenes.rendering import RenderedView, SceneRenderer
from driving_scenes.scenery import Palette, Streetscape
from driving_scenes.settings import SceneSettings
from driving_scenes.storage import (
    Manifest,
    generation_lock,
    has_manifest,
    jpeg_path,
    read_manifest,
    replace_dataset,
    write_table,
)
from driving_scenes.traffic import CATEGORY_NAMES, Traffic, simulate_traffic

__all__ = ["draw_sequence_lengths", "ensure_scenes", "generate_scenes"]

_logger = logging.getLogger(__name__)

_FIRST_TIMESTAMP_S = 1_600_000_000.0
_PAUSE_BETWEEN_SEQUENCES_S = 60.0


def generate_scenes(
    root: str | Path,
    *,
    num_sequences: int = 5,
    frames_per_sequence: tuple[int, int] = (8, 14),
    image_hw: tuple[int, int] = (256, 448),
    seed: int = 7,
    jpeg_quality: int = 90,
    keyframe_rate_hz: float = 2.0,
    traffic_density: float = 1.0,
    overwrite: bool = False,
) -> DrivingScenes:
    """Write a data set of short driving sequences; see `SceneSettings` for the settings.

    Equal settings give equal bytes in all tables and pictures (on the same machine and library versions).
    The folder appears only when everything is written: an interrupted call leaves no half data set there.

    Args:
        root: the folder of the data set; its parents are made.
        num_sequences: how many sequences.
        frames_per_sequence: smallest and largest number of frames.
        image_hw: height and width of the pictures.
        seed: equal seeds give equal scenes.
        jpeg_quality: 1 to 95.
        keyframe_rate_hz: frames per second.
        traffic_density: factor on the number of objects.
        overwrite: whether a data set that is already there may be replaced. Anything else never is.

    Returns:
        The data set, open for reading.

    Raises:
        SettingsError: settings that make no sense.
        DatasetExistsError: the folder is not free.
    """
    settings = SceneSettings(
        num_sequences=num_sequences,
        frames_per_sequence=frames_per_sequence,
        image_hw=image_hw,
        seed=seed,
        jpeg_quality=jpeg_quality,
        keyframe_rate_hz=keyframe_rate_hz,
        traffic_density=traffic_density,
    )
    root = Path(root).absolute()
    with generation_lock(root):
        _generate(root, settings, overwrite=overwrite)
    return DrivingScenes(root)


def ensure_scenes(root: str | Path, *, overwrite: bool = False, **settings: Any) -> DrivingScenes:
    """The data set in `root`: reused when it was made with these settings, generated when the folder is free.

    Several processes may call this at once; one generates, the others wait.

    Args:
        root: the folder of the data set.
        overwrite: whether a data set with other settings, or one that cannot be read, may be replaced.
        settings: those of `generate_scenes`; what is left out has its default there.

    Raises:
        SettingsError: unknown settings, or settings that make no sense.
        DatasetExistsError: the folder holds a data set with other settings, or something else.
        DatasetError: the data set in the folder is damaged.
    """
    wanted = SceneSettings.from_json(settings)
    root = Path(root).absolute()
    with generation_lock(root):
        if has_manifest(root) and not overwrite:
            _check_same(root, wanted)
        elif not _is_reusable(root, wanted):
            _generate(root, wanted, overwrite=overwrite)
    return DrivingScenes(root)


def draw_sequence_lengths(settings: SceneSettings) -> list[int]:
    """Frames of each sequence: any number in the range, and not all the same where there is a choice."""
    low, high = settings.frames_per_sequence
    rng = np.random.default_rng([settings.seed, 0])
    lengths = rng.integers(low, high, size=settings.num_sequences, endpoint=True).tolist()
    if len(lengths) > 1 and low < high and len(set(lengths)) == 1:
        lengths[-1] = lengths[-1] - 1 if lengths[-1] > low else lengths[-1] + 1
    return [int(length) for length in lengths]


def _differences(root: Path, wanted: SceneSettings) -> list[str]:
    found = dict(read_manifest(root).settings)
    ours = wanted.to_json()
    return [
        f"{name}: has {found.get(name)!r}, wanted {ours.get(name)!r}"
        for name in sorted({*found, *ours})
        if found.get(name) != ours.get(name)
    ]


def _check_same(root: Path, wanted: SceneSettings) -> None:
    differences = _differences(root, wanted)
    if differences:
        raise DatasetExistsError(
            f"The data set in '{root}' must have the wanted settings, but it was made with others:\n"
            + "".join(f"  {line}\n" for line in differences)
            + "Pass overwrite=True to generate it again, or choose another folder."
        )


def _is_reusable(root: Path, wanted: SceneSettings) -> bool:
    try:
        return not _differences(root, wanted)
    except RuntimeError:
        return False


def _generate(root: Path, settings: SceneSettings, *, overwrite: bool) -> None:
    with replace_dataset(root, overwrite=overwrite) as folder:
        began = time.perf_counter()
        cameras = camera_rig(settings.image_hw)
        lengths = draw_sequence_lengths(settings)
        names = tuple(f"sequence_{number:03d}" for number in range(len(lengths)))
        traffics, visibilities = [], []
        for number, (name, length) in enumerate(zip(names, lengths, strict=True)):
            traffic_rng, looks_rng = (np.random.default_rng([settings.seed, 1, number, part]) for part in (0, 1))
            start_s = _FIRST_TIMESTAMP_S + sum(lengths[:number]) / settings.keyframe_rate_hz
            start_s += number * _PAUSE_BETWEEN_SEQUENCES_S
            traffic = simulate_traffic(settings, length, start_s, traffic_rng)
            traffics.append(traffic)
            visibilities.append(
                _write_images(folder, name, traffic, cameras, settings, number + settings.seed, looks_rng)
            )
        _write_tables(folder, traffics, visibilities, cameras)
        Manifest(settings.to_json(), names, CAMERA_NAMES, CATEGORY_NAMES).write(folder)
    _logger.info("Wrote %d frames to '%s' in %.1f s.", sum(lengths), root, time.perf_counter() - began)


def _write_images(
    folder: Path,
    sequence_name: str,
    traffic: Traffic,
    cameras: tuple[Camera, ...],
    settings: SceneSettings,
    mood: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Render and write all pictures of a sequence; returns the visibility (M, C) of its objects."""
    streetscape, palette = Streetscape.draw(rng), Palette.draw(mood, rng)
    visibility = np.zeros((len(traffic.track_ids), len(cameras)), np.float32)
    for column, camera in enumerate(cameras):
        renderer = SceneRenderer(camera, traffic.road.curvature_per_m, streetscape, palette)
        jpeg_path(folder, sequence_name, camera.name, 0).parent.mkdir(parents=True)
        for frame in range(len(traffic.timestamps_s)):
            view = render_frame(renderer, traffic, frame)
            visibility[traffic.offsets[frame] : traffic.offsets[frame + 1], column] = view.visibility
            path = jpeg_path(folder, sequence_name, camera.name, frame)
            path.write_bytes(encode_jpeg(view.image, settings.jpeg_quality))
    return visibility


def render_frame(renderer: SceneRenderer, traffic: Traffic, frame: int) -> RenderedView:
    """The picture of one frame of a sequence; the renderer must be one for the road of that sequence."""
    rows = slice(int(traffic.offsets[frame]), int(traffic.offsets[frame + 1]))
    world_from_ego = traffic.world_from_ego[frame]
    ego_yaw = float(yaw_of(world_from_ego))
    return renderer.render(
        ego_s_m=float(traffic.ego_s_m[frame]),
        ego_yaw_world=ego_yaw,
        centres=transform_points(invert_rigid(world_from_ego), traffic.centres_world[rows]),
        sizes=traffic.sizes_lwh[rows],
        yaws=traffic.yaws_world[rows] - ego_yaw,
        category_ids=traffic.category_ids[rows],
        track_ids=traffic.track_ids[rows],
    )


def encode_jpeg(image: NDArray[np.uint8], quality: int) -> bytes:
    """The bytes of a JPEG file of an RGB picture (H, W, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


def _write_tables(
    folder: Path, traffics: list[Traffic], visibilities: list[NDArray[np.float32]], cameras: tuple[Camera, ...]
) -> None:
    lengths = np.array([len(traffic.timestamps_s) for traffic in traffics], np.int64)
    counts = np.concatenate([np.diff(traffic.offsets) for traffic in traffics])
    # Track ids start at 0 in every sequence; in the tables they are unique.
    spans = [int(traffic.track_ids.max(initial=-1)) + 1 for traffic in traffics]
    starts = np.cumsum([0, *spans[:-1]])
    tables: dict[str, NDArray[Any]] = {
        "sequence_lengths": lengths,
        "timestamps_s": np.concatenate([traffic.timestamps_s for traffic in traffics]),
        "world_from_ego": np.concatenate([traffic.world_from_ego for traffic in traffics]),
        "intrinsics": np.stack([camera.intrinsics for camera in cameras]),
        "ego_from_camera": np.stack([camera.ego_from_camera for camera in cameras]),
        "image_hw": np.array([camera.image_hw for camera in cameras], np.int64),
        "object_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "track_ids": np.concatenate(
            [traffic.track_ids + start for traffic, start in zip(traffics, starts, strict=True)]
        ).astype(np.int32),
        "visibility": np.concatenate(visibilities),
    }
    for name in ("category_ids", "centres_world", "sizes_lwh", "yaws_world", "velocities_world"):
        tables[name] = np.concatenate([getattr(traffic, name) for traffic in traffics])
    for name, rows in tables.items():
        write_table(folder, name, rows)
