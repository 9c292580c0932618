"""What is generated: frames with their pictures, in memory."""

import attrs
import numpy as np
from numpy.typing import NDArray

__all__ = ["DrivingScenes", "Frame"]

Floats = NDArray[np.float64]


@attrs.frozen(eq=False, kw_only=True)
class Frame:
    """Everything about one frame: C cameras, N objects; boxes in the ego frame (x forward, y left, z up)."""

    index: int
    """In the data set."""
    sequence_index: int
    frame_in_sequence: int
    timestamp_s: float
    world_from_ego: Floats
    """(4, 4)."""
    jpegs: tuple[NDArray[np.uint8], ...]
    """C encoded pictures, each (number of bytes,)."""
    image_hw: NDArray[np.int64]
    """(C, 2), height and width in pixels."""
    intrinsics: Floats
    """(C, 3, 3), pixels."""
    ego_from_camera: Floats
    """(C, 4, 4)."""
    camera_from_ego: Floats
    """(C, 4, 4), the inverse."""
    image_from_ego: Floats
    """(C, 3, 4), intrinsics times camera_from_ego; (0, 0) is the top-left corner of the top-left pixel."""
    centres: Floats
    """(N, 3), middles of the boxes, metres."""
    sizes: Floats
    """(N, 3), length, width, height, metres."""
    yaws: Floats
    """(N,), radians in [-pi, pi), 0 looks forward."""
    velocities: Floats
    """(N, 2), over the ground along the ego axes x and y, metres per second; the motion of the ego vehicle
    is not subtracted."""
    category_ids: NDArray[np.int32]
    """(N,), indices into `DrivingScenes.category_names`."""
    track_ids: NDArray[np.int32]
    """(N,), the same number for the same object in every frame; unique in the data set."""
    visibility: NDArray[np.float32]
    """(N, C), share of the object's pixels in the image that nothing hides; 0 outside the image."""


@attrs.frozen(eq=False, kw_only=True)
class DrivingScenes:
    """Sequences of frames, made by `driving_scenes.generate_scenes`.

    Example:
        >>> from driving_scenes import generate_scenes
        >>> scenes = generate_scenes(num_sequences=1, frames_per_sequence=(2, 2), image_hw=(32, 48))
        >>> frame = scenes.frames[1]
        >>> frame.image_from_ego.shape, len(frame.jpegs), frame.frame_in_sequence
        ((6, 3, 4), 6, 1)
    """

    frames: tuple[Frame, ...]
    """Of all sequences, one after the other."""
    sequence_names: tuple[str, ...]
    sequence_lengths: tuple[int, ...]
    """Number of frames of each sequence."""
    camera_names: tuple[str, ...]
    """The C cameras, in the order of everything per camera."""
    category_names: tuple[str, ...]
    """By category id."""
