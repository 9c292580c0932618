"""The files of a data set, and the care that a folder holds a whole data set or none.

    ROOT/
        scenes.json                              format, settings, names
        tables/<table>.npy                       see `TABLES`, readable with mmap
        <sequence>/<CAMERA>/<frame>.jpg          frame: six digits, from 000000 in each sequence

A data set is written into the sibling ``.NAME.partial`` and renamed at the very end. A ``.NAME.partial``
without a running generator is what an interrupted run left behind; ``.NAME.lock`` keeps two generators apart.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.errors import DatasetError, DatasetExistsError

__all__ = [
    "FORMAT_VERSION",
    "TABLES",
    "Manifest",
    "generation_lock",
    "has_manifest",
    "jpeg_path",
    "open_table",
    "read_manifest",
    "replace_dataset",
    "write_table",
]

_logger = logging.getLogger(__name__)

FORMAT_NAME = "driving_scenes"
FORMAT_VERSION = 1
_MANIFEST = "scenes.json"

# Rows: S sequences, F frames, C cameras, M objects over all frames.
TABLES: dict[str, str] = {
    "sequence_lengths": "(S,) int64, frames",
    "timestamps_s": "(F,) float64",
    "world_from_ego": "(F, 4, 4) float64",
    "intrinsics": "(C, 3, 3) float64, pixels",
    "ego_from_camera": "(C, 4, 4) float64",
    "image_hw": "(C, 2) int64, pixels",
    "object_offsets": "(F + 1,) int64, the objects of frame f are the rows offsets[f]:offsets[f + 1]",
    "category_ids": "(M,) int32",
    "track_ids": "(M,) int32, unique in the data set",
    "centres_world": "(M, 3) float64, metres",
    "sizes_lwh": "(M, 3) float64, metres",
    "yaws_world": "(M,) float64, radians in [-pi, pi)",
    "velocities_world": "(M, 2) float64, metres per second",
    "visibility": "(M, C) float32, share of the object's pixels in the image that nothing hides",
}
"""The tables by name, with shape and meaning."""


@attrs.frozen
class Manifest:
    """What `scenes.json` says."""

    settings: Mapping[str, Any]
    sequence_names: tuple[str, ...]
    camera_names: tuple[str, ...]
    category_names: tuple[str, ...]

    def write(self, root: Path) -> None:
        """Write the file into the folder of a data set."""
        content = {"format": FORMAT_NAME, "format_version": FORMAT_VERSION, **attrs.asdict(self)}
        (root / _MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def has_manifest(root: Path) -> bool:
    """Whether the folder looks like a data set."""
    return (root / _MANIFEST).is_file()


def jpeg_path(root: Path, sequence_name: str, camera_name: str, frame_in_sequence: int) -> Path:
    """Where the picture of one camera in one frame lies."""
    return root / sequence_name / camera_name / f"{frame_in_sequence:06d}.jpg"


def read_manifest(root: Path) -> Manifest:
    """Read `scenes.json`.

    Raises:
        DatasetError: there is none, or it is damaged or of another version.
    """
    if not has_manifest(root):
        hint = "Generate one with generate_scenes(root) or ensure_scenes(root)."
        if _partial(root).exists():
            hint = (
                f"An unfinished one lies in '{_partial(root)}': its generation still runs or was "
                "interrupted. Wait, or call ensure_scenes(root) again."
            )
        raise DatasetError(
            f"A data set folder must hold '{_MANIFEST}': '{root}' "
            f"{'does not' if root.is_dir() else 'is not a folder'}. {hint}"
        )
    try:
        content = json.loads((root / _MANIFEST).read_text(encoding="utf-8"))
        found = (content["format"], content["format_version"])
        names = {key: tuple(content[key]) for key in ("sequence_names", "camera_names", "category_names")}
        manifest = Manifest(settings=content["settings"], **names)
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"'{root / _MANIFEST}' must be a JSON file of a data set, but reading it failed with {error!r}. "
            "Generate the data set again with overwrite=True."
        ) from error
    if found != (FORMAT_NAME, FORMAT_VERSION):
        raise DatasetError(
            f"'{root / _MANIFEST}' must say format {FORMAT_NAME!r} version {FORMAT_VERSION}, got "
            f"{found[0]!r} version {found[1]!r}. Generate the data set again with overwrite=True."
        )
    return manifest


def write_table(root: Path, name: str, rows: NDArray[Any]) -> None:
    """Write one of `TABLES` into the folder of a data set."""
    (root / "tables").mkdir(exist_ok=True)
    np.save(root / "tables" / f"{name}.npy", rows, allow_pickle=False)


def open_table(root: Path, name: str) -> NDArray[Any]:
    """Map one of `TABLES` into memory, read-only.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    path = root / "tables" / f"{name}.npy"
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DatasetError(
            f"The data set in '{root}' must have the table '{path.name}', but opening it failed with "
            f"{error!r}. Generate the data set again with overwrite=True."
        ) from error


@contextlib.contextmanager
def generation_lock(root: Path) -> Iterator[None]:
    """Wait until no other process generates this data set; the lock ends with this process, at the latest."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f".{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replace_dataset(root: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write a data set into; it takes the place of `root` when the block ends without an error.

    Args:
        root: the final folder. The caller holds `generation_lock`.
        overwrite: whether a data set that is already there may go.

    Raises:
        DatasetExistsError: `root` holds something that may not be replaced.
    """
    is_taken = root.exists() and not (root.is_dir() and not any(root.iterdir()))
    if is_taken and not has_manifest(root):
        raise DatasetExistsError(
            f"The target must be free or a data set: '{root}' holds something else, which is never deleted. "
            "Choose another folder."
        )
    if is_taken and not overwrite:
        raise DatasetExistsError(
            f"The target must be free: '{root}' already holds a data set. "
            "Pass overwrite=True to replace it, or choose another folder."
        )
    partial = _partial(root)
    if partial.exists():
        _logger.warning("Removing '%s', left behind by an interrupted generation.", partial)
        shutil.rmtree(partial)
    partial.mkdir()
    try:
        yield partial
        _swap(partial, root)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _partial(root: Path) -> Path:
    return root.parent / f".{root.name}.partial"


def _swap(partial: Path, root: Path) -> None:
    outgoing = root.parent / f".{root.name}.outgoing"
    shutil.rmtree(outgoing, ignore_errors=True)
    if root.exists():
        os.replace(root, outgoing)
    os.replace(partial, root)
    shutil.rmtree(outgoing, ignore_errors=True)
