"""Reading a data set."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.errors import DatasetError
from driving_scenes.geometry import invert_rigid, transform_points, wrap_angle, yaw_of
from driving_scenes.storage import TABLES, Manifest, jpeg_path, open_table, read_manifest

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

    @property
    def is_first_of_sequence(self) -> bool:
        """Whether a sequence starts here."""
        return self.frame_in_sequence == 0


class DrivingScenes:
    """A data set on disk, made by `driving_scenes.generate_scenes`.

    Cheap to make: tables are mapped into memory when first used. A pickle holds only the path, so a spawned
    worker opens its own.

    Args:
        root: the folder of the data set.

    Raises:
        DatasetError: the folder holds no complete data set of this version.

    Example:
        >>> import tempfile
        >>> from driving_scenes import ensure_scenes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     settings = {"num_sequences": 1, "frames_per_sequence": (2, 2), "image_hw": (32, 48)}
        ...     scenes = ensure_scenes(f"{folder}/scenes", **settings)
        ...     frame = scenes.frame(1)
        >>> frame.image_from_ego.shape, len(frame.jpegs), frame.is_first_of_sequence
        ((6, 3, 4), 6, False)
    """

    def __init__(self, root: str | Path) -> None:
        """Look whether there is a data set."""
        self.root = Path(root).absolute()
        read_manifest(self.root)

    def __repr__(self) -> str:
        """Name, and what is in it."""
        sizes = f"{len(self.sequence_names)} sequences, {self.num_frames} frames"
        return f"DrivingScenes({str(self.root)!r}, {sizes})"

    def __getstate__(self) -> dict[str, Any]:
        """Only the path."""
        return {"root": self.root}

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self.root)

    @cached_property
    def _tables(self) -> dict[str, NDArray[Any]]:
        tables = {name: open_table(self.root, name) for name in TABLES}
        num_frames = int(tables["sequence_lengths"].sum())
        num_objects = int(tables["object_offsets"][-1])
        rows = {
            "sequence_lengths": len(self._manifest.sequence_names),
            "object_offsets": num_frames + 1,
            **dict.fromkeys(("timestamps_s", "world_from_ego"), num_frames),
            **dict.fromkeys(("intrinsics", "ego_from_camera", "image_hw"), len(self._manifest.camera_names)),
        }
        for name, table in tables.items():
            wanted = rows.get(name, num_objects)
            if len(table) != wanted:
                raise DatasetError(
                    f"Table '{name}' of the data set in '{self.root}' must have {wanted} rows, "
                    f"got {len(table)}. Generate the data set again with overwrite=True."
                )
        return tables

    @cached_property
    def _first_frames(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self._tables["sequence_lengths"])]).astype(np.int64)

    @cached_property
    def _rig(self) -> dict[str, NDArray[Any]]:
        intrinsics, ego_from_camera = (
            np.array(self._tables["intrinsics"]),
            np.array(self._tables["ego_from_camera"]),
        )
        camera_from_ego = invert_rigid(ego_from_camera)
        return {
            "image_hw": np.array(self._tables["image_hw"]),
            "intrinsics": intrinsics,
            "ego_from_camera": ego_from_camera,
            "camera_from_ego": camera_from_ego,
            "image_from_ego": intrinsics @ camera_from_ego[:, :3],
        }

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the data set was generated with."""
        return self._manifest.settings

    @property
    def camera_names(self) -> tuple[str, ...]:
        """The C cameras, in the order of everything per camera."""
        return self._manifest.camera_names

    @property
    def category_names(self) -> tuple[str, ...]:
        """By category id."""
        return self._manifest.category_names

    @property
    def sequence_names(self) -> tuple[str, ...]:
        """The sequences, in the order of their frames."""
        return self._manifest.sequence_names

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each sequence."""
        return tuple(int(length) for length in self._tables["sequence_lengths"])

    @property
    def num_frames(self) -> int:
        """Number of frames of all sequences."""
        return int(self._first_frames[-1])

    def __len__(self) -> int:
        """Number of frames of all sequences."""
        return self.num_frames

    def sequence_of(self, frame_index: int) -> int:
        """Which sequence a frame belongs to.

        Raises:
            IndexError: there is no such frame.
        """
        if not 0 <= frame_index < self.num_frames:
            raise IndexError(
                f"A frame index must be from 0 to {self.num_frames - 1}, got {frame_index}. "
                "Frames are counted over all sequences, see num_frames."
            )
        return int(np.searchsorted(self._first_frames, frame_index, side="right")) - 1

    def jpeg_path(self, frame_index: int, camera_name: str) -> Path:
        """The file of one picture.

        Raises:
            IndexError: there is no such frame.
            KeyError: there is no such camera.
        """
        if camera_name not in self.camera_names:
            raise KeyError(f"A camera must be one of {', '.join(self.camera_names)}; got {camera_name!r}.")
        sequence = self.sequence_of(frame_index)
        frame_in_sequence = frame_index - int(self._first_frames[sequence])
        return jpeg_path(self.root, self.sequence_names[sequence], camera_name, frame_in_sequence)

    def frame(self, frame_index: int) -> Frame:
        """One frame, with its encoded pictures; frames are counted over all sequences.

        The arrays are the caller's own, except those of the cameras, which all frames share.

        Raises:
            IndexError: there is no such frame.
            DatasetError: a picture or a table is missing or damaged.
        """
        sequence = self.sequence_of(frame_index)
        tables = self._tables
        rows = slice(*(int(offset) for offset in tables["object_offsets"][frame_index : frame_index + 2]))
        world_from_ego = np.array(tables["world_from_ego"][frame_index])
        ego_from_world = invert_rigid(world_from_ego)
        return Frame(
            index=int(frame_index),
            sequence_index=sequence,
            frame_in_sequence=int(frame_index - self._first_frames[sequence]),
            timestamp_s=float(tables["timestamps_s"][frame_index]),
            world_from_ego=world_from_ego,
            jpegs=tuple(self._read_jpeg(frame_index, camera) for camera in self.camera_names),
            **self._rig,
            centres=transform_points(ego_from_world, tables["centres_world"][rows]),
            sizes=np.array(tables["sizes_lwh"][rows]),
            yaws=wrap_angle(tables["yaws_world"][rows] - yaw_of(world_from_ego)),
            velocities=np.asarray(tables["velocities_world"][rows] @ ego_from_world[:2, :2].T),
            category_ids=np.array(tables["category_ids"][rows]),
            track_ids=np.array(tables["track_ids"][rows]),
            visibility=np.array(tables["visibility"][rows]),
        )

    def _read_jpeg(self, frame_index: int, camera_name: str) -> NDArray[np.uint8]:
        path = self.jpeg_path(frame_index, camera_name)
        try:
            data = np.fromfile(path, dtype=np.uint8)
        except OSError as error:
            raise DatasetError(
                f"Frame {frame_index} must have a picture of camera {camera_name}, but reading it failed "
                f"with {error!r}. Generate the data set again with overwrite=True."
            ) from error
        if data[:2].tolist() != [0xFF, 0xD8] or data[-2:].tolist() != [0xFF, 0xD9]:
            raise DatasetError(
                f"'{path}' must be a whole JPEG file, but its {len(data)} bytes do not begin or end like "
                "one. Generate the data set again with overwrite=True."
            )
        return data
