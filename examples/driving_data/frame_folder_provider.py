"""A data provider for your own frames: a folder of sequence folders with images."""

import logging
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup

__all__ = ["IMAGE_SUFFIXES", "FrameFolderError", "FrameFolderProvider", "image_names", "natural_key", "subfolders"]

_logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
"""What is taken for an image, in lower case."""


class FrameFolderError(ValueError):
    """The folder does not hold frames; the message says what was looked for and what was found."""


class FrameFolderProvider(DataProvider):
    """One sample per image of a folder of frames::

        FOLDER/                              or a single sequence:  FOLDER/
            monday/                                                     000001.jpg
                frame_1.jpg                                             000002.jpg
                frame_2.jpg
                frame_10.jpg
            tuesday/
                ...

    Numbers in names count as numbers (2 before 10). Images may differ in size and type. Hidden files, and
    files that are no images by their names, are passed over. Subfolders without images are left out, and so
    are all subfolders of a folder that holds images itself; a warning is logged once.

    The fields of a sample::

        cameras[0]
            image                 UINT8    (num_bytes,), an image file
            name                  STRING   always "camera"
        is_first_of_sequence      BOOL     scalar
        sequence                  STRING   name of the folder
        frame                     INT32    scalar, place in the sequence

    A pickle holds only the path and the number of frames: a spawned worker lists the folder again.

    Args:
        root: The folder.

    Raises:
        FrameFolderError: It does not exist, is no folder, or has no images where they are looked for.
    """

    def __init__(self, root: str | Path) -> None:
        """List the folder."""
        self._root = Path(root).absolute()
        self._num_frames = sum(self.sequence_lengths)
        self._log_what_is_left_out()

    def __getstate__(self) -> dict[str, Any]:
        """The path, and what a worker can compare its own list with."""
        return {"_root": self._root, "_num_frames": self._num_frames}

    @cached_property
    def _sequences(self) -> tuple[tuple[Path, tuple[str, ...]], ...]:
        """Folder and file names of each sequence."""
        sequences = tuple(_list_sequences(self._root))
        num_frames = sum(len(names) for _, names in sequences)
        if num_frames != getattr(self, "_num_frames", num_frames):
            raise FrameFolderError(
                f"'{self._root}' must stay as it is while it is read: it had {self._num_frames} frames at "
                f"the start and has {num_frames} now. Start again."
            )
        return sequences

    @cached_property
    def _ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Behind the last sample of each sequence."""
        return np.cumsum(self.sequence_lengths)

    def _log_what_is_left_out(self) -> None:
        used = {folder for folder, _ in self._sequences}
        left_out = [folder.name for folder in subfolders(self._root) if folder not in used]
        if not left_out:
            return
        shown = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        if self._root in used:
            _logger.warning(
                "'%s' holds images, so it is taken for one sequence; its %d subfolder(s) are left out: %s",
                *(self._root, len(left_out), shown),
            )
        else:
            _logger.warning("%d subfolder(s) without images are left out: %s", len(left_out), shown)

    @property
    def sequence_names(self) -> tuple[str, ...]:
        """Names of the folders, in the order of the samples."""
        return tuple(folder.name for folder, _ in self._sequences)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each sequence, in the order of the samples."""
        return tuple(len(names) for _, names in self._sequences)

    def image_path(self, sample_index: int) -> Path:
        """The file of a sample."""
        sequence, frame = self._locate(sample_index)
        folder, names = self._sequences[sequence]
        return folder / names[frame]

    def _locate(self, sample_index: int) -> tuple[int, int]:
        sequence = int(np.searchsorted(self._ends, sample_index, side="right"))
        return sequence, int(sample_index - self._ends[sequence] + self.sequence_lengths[sequence])

    def get_number_of_samples(self) -> int:
        """Get the number of frames of all sequences."""
        return self._num_frames

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        camera = SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8, ndim=1)
        camera.add_data_field("name", DALIDataType.STRING)
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", camera, 1)
        sample.add_data_field("is_first_of_sequence", DALIDataType.BOOL, ndim=0)
        sample.add_data_field("sequence", DALIDataType.STRING)
        sample.add_data_field("frame", DALIDataType.INT32, ndim=0)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one frame; see the class for its fields."""
        sequence, frame = self._locate(sample_index)
        sample = self.new_sample()
        sample["cameras"][0]["image"] = np.fromfile(self.image_path(sample_index), dtype=np.uint8)
        sample["cameras"][0]["name"] = "camera"
        sample["is_first_of_sequence"] = frame == 0
        sample["sequence"] = self.sequence_names[sequence]
        sample["frame"] = frame
        return sample


def _list_sequences(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise FrameFolderError(
            f"'{root}' must be a folder of images, or of sequence folders with images, but it {found}."
        )
    candidates = [root] if image_names(root) else subfolders(root)
    sequences = [(folder, names) for folder in candidates if (names := image_names(folder))]
    if not sequences:
        raise FrameFolderError(
            f"'{root}' must hold images ({', '.join(sorted(IMAGE_SUFFIXES))}), or subfolders that do; looked "
            f"at the folder and its {len(candidates)} subfolder(s), not deeper, and found none."
            f"{_hint_at_deeper_images(candidates)}"
        )
    yield from sequences


def _hint_at_deeper_images(folders: list[Path]) -> str:
    """Name a folder that would do, where a folder has one folder per camera, or the like."""
    deeper = ((folder, inner) for folder in folders for inner in subfolders(folder) if image_names(inner))
    for folder, inner in deeper:
        return (
            f" There are images in '{folder.name}/{inner.name}': give '{folder}', and each folder in it is a "
            f"sequence. For drives with a folder per camera, the library has FrameDataProvider: see "
            f"docs/dali_pipeline_framework/files.md."
        )
    return ""


def subfolders(folder: Path) -> list[Path]:
    """Folders in a folder, without hidden ones, in natural order."""
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: natural_key(path.name))


def image_names(folder: Path) -> tuple[str, ...]:
    """Names of the images in a folder, without hidden ones, in natural order."""
    names = [
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    return tuple(sorted(names, key=natural_key))


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Numbers in names count as numbers; the name itself decides between "1" and "01"."""
    parts = re.split(r"([0-9]+)", name.casefold())  # text, digits, text, digits, ..., text
    return [(int(part), "") if part[:1].isdecimal() else (-1, part) for part in parts], name
