"""From settings to frames with pictures."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from driving_scenes.cameras import CAMERA_NAMES, Camera, camera_rig
from driving_scenes.frames import DrivingScenes, Frame
from driving_scenes.geometry import invert_rigid, transform_points, wrap_angle, yaw_of
from driving_scenes.rendering import RenderedView, SceneRenderer
from driving_scenes.scenery import Palette, Streetscape
from driving_scenes.settings import SceneSettings
from driving_scenes.traffic import CATEGORY_NAMES, Traffic, simulate_traffic

__all__ = ["draw_sequence_lengths", "generate_scenes"]

_FIRST_TIMESTAMP_S = 1_600_000_000.0
_PAUSE_BETWEEN_SEQUENCES_S = 60.0


def generate_scenes(**settings: Any) -> DrivingScenes:
    """Make short driving sequences, in memory; see `SceneSettings` for the settings.

    Equal settings give equal frames and pictures (on the same machine and library versions).
    """
    wanted = SceneSettings(**settings)
    cameras, lengths = camera_rig(wanted.image_hw), draw_sequence_lengths(wanted)
    rig = {
        "image_hw": np.array([camera.image_hw for camera in cameras], np.int64),
        "intrinsics": np.stack([camera.intrinsics for camera in cameras]),
        "ego_from_camera": np.stack([camera.ego_from_camera for camera in cameras]),
    }
    rig["camera_from_ego"] = invert_rigid(rig["ego_from_camera"])
    rig["image_from_ego"] = rig["intrinsics"] @ rig["camera_from_ego"][:, :3]
    frames: list[Frame] = []
    first_track = 0
    for number, length in enumerate(lengths):
        traffic_rng, looks_rng = (np.random.default_rng([wanted.seed, 1, number, part]) for part in (0, 1))
        start_s = _FIRST_TIMESTAMP_S + len(frames) / wanted.keyframe_rate_hz + number * _PAUSE_BETWEEN_SEQUENCES_S
        traffic = simulate_traffic(wanted, length, start_s, traffic_rng)
        views = _views(traffic, cameras, number + wanted.seed, looks_rng)
        for place, of_cameras in enumerate(views):
            frames.append(
                _frame(
                    traffic,
                    place,
                    of_cameras,
                    wanted.jpeg_quality,
                    index=len(frames),
                    sequence_index=number,
                    first_track=first_track,
                    **rig,
                )
            )
        first_track += int(traffic.track_ids.max(initial=-1)) + 1
    return DrivingScenes(
        frames=tuple(frames),
        sequence_names=tuple(f"sequence_{number:03d}" for number in range(len(lengths))),
        sequence_lengths=tuple(lengths),
        camera_names=CAMERA_NAMES,
        category_names=CATEGORY_NAMES,
    )


def draw_sequence_lengths(settings: SceneSettings) -> list[int]:
    """Frames of each sequence: any number in the range, and not all the same where there is a choice."""
    low, high = settings.frames_per_sequence
    rng = np.random.default_rng([settings.seed, 0])
    lengths = rng.integers(low, high, size=settings.num_sequences, endpoint=True).tolist()
    if len(lengths) > 1 and low < high and len(set(lengths)) == 1:
        lengths[-1] = lengths[-1] - 1 if lengths[-1] > low else lengths[-1] + 1
    return [int(length) for length in lengths]


def _views(
    traffic: Traffic, cameras: tuple[Camera, ...], mood: int, rng: np.random.Generator
) -> list[list[RenderedView]]:
    """What the cameras see, frame by frame."""
    streetscape, palette = Streetscape.draw(rng), Palette.draw(mood, rng)
    renderers = [SceneRenderer(camera, traffic.road.curvature_per_m, streetscape, palette) for camera in cameras]
    return [
        [render_frame(renderer, traffic, frame) for renderer in renderers]
        for frame in range(len(traffic.timestamps_s))
    ]


def _frame(
    traffic: Traffic, place: int, views: list[RenderedView], quality: int, *, first_track: int, **others: Any
) -> Frame:
    rows = slice(int(traffic.offsets[place]), int(traffic.offsets[place + 1]))
    world_from_ego = traffic.world_from_ego[place]
    ego_from_world = invert_rigid(world_from_ego)
    return Frame(
        frame_in_sequence=place,
        timestamp_s=float(traffic.timestamps_s[place]),
        world_from_ego=world_from_ego,
        jpegs=tuple(np.frombuffer(encode_jpeg(view.image, quality), np.uint8) for view in views),
        centres=transform_points(ego_from_world, traffic.centres_world[rows]),
        sizes=traffic.sizes_lwh[rows],
        yaws=wrap_angle(traffic.yaws_world[rows] - yaw_of(world_from_ego)),
        velocities=np.asarray(traffic.velocities_world[rows] @ ego_from_world[:2, :2].T),
        category_ids=traffic.category_ids[rows],
        track_ids=traffic.track_ids[rows] + np.int32(first_track),
        visibility=np.stack([view.visibility for view in views], axis=1).astype(np.float32),
        **others,
    )


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
