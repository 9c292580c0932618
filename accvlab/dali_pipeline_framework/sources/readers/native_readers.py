# SPDX-License-Identifier: Apache-2.0
"""The readers of DALI that this package offers as inputs, each with its blueprint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import nvidia.dali.fn as fn
from nvidia.dali import types

from ...engine.dali.texts import NO_FILES, NO_FRAMES
from ...providers.files.file_scan import DEFAULT_FILE_FILTERS, NameFilter
from ...providers.frames.frame_folders import has_image_extension
from ...sample_data.formats import DECODED_CLIP, ENCODED_IMAGE
from ...sample_data.names import Name
from .reader_files import files_in_folders, named_files, pointer_among, require_openable
from .reader_input import ReaderField, ReaderInput


class FileReader(ReaderInput):
    """``fn.readers.file``: the bytes of files, and a label for each.

    Fields: ``data``, ``(num_bytes,)`` uint8, and ``label``, ``(1,)`` int32.
    """

    operator_name = "readers.file"

    def __init__(self, *, data_name: Name = "data", label_name: Name | None = "label", **arguments: Any) -> None:
        """Set up. Paths are checked for pipes and devices, on which DALI would block; lists are read.

        Args:
            data_name: Name of the field with the bytes.
            label_name: Name of the field with the label; None to leave it out.
            **arguments: Arguments of ``fn.readers.file``.

        Raises:
            SettingError: An argument is unknown; files are not named in exactly one way (``file_root`` alone,
                ``file_list``, ``files``); a folder, list or named file is missing; or a file is a pipe or the
                like.
            FileError: A folder or list cannot be read, or the first named file is a pointer of Git LFS.
        """
        self.fields = (
            ReaderField(data_name, types.DALIDataType.UINT8, ENCODED_IMAGE),
            ReaderField(label_name, types.DALIDataType.INT32),
        )
        super().__init__(fn.readers.file, arguments)
        self._require_source("file_list", "files", alone="file_root")
        are_named = any(arguments.get(name) is not None for name in ("files", "file_list"))
        files = self._named_files() if are_named else self._files_in_folders(are_plain=False)
        require_openable(self.operator_name, files, are_named=are_named)

    def _named_files(self) -> Iterator[str]:
        return named_files(self._arguments)

    def _files_in_folders(self, *, are_plain: bool) -> Iterator[str]:
        given = self._arguments
        filters = given.get("file_filters", DEFAULT_FILE_FILTERS)
        is_case_sensitive = given.get("case_sensitive_filter", False)
        wanted = NameFilter(filters, case_sensitive=is_case_sensitive, argument="file_filters")
        return files_in_folders(given["file_root"], wanted.matches, are_plain=are_plain)

    def why_not_decoded(self) -> str:
        """See `NativeInput.why_not_decoded`."""
        are_named = any(self._arguments.get(name) is not None for name in ("files", "file_list"))
        return pointer_among(self._named_files() if are_named else self._files_in_folders(are_plain=True))

    def advice(self, reason: str) -> str:
        """See `NativeInput.advice`."""
        if NO_FILES not in reason:
            return super().advice(reason)
        return (
            "The sub-folders of `file_root` are the labels, and the files in them are read that match one of "
            "`file_filters` (by default the usual extensions of images)."
        )


class SequenceReader(ReaderInput):
    """``fn.readers.sequence``: sequences of frames in folders of images, decoded by the reader.

    Field: ``frames``, ``(sequence_length, height, width, 3)`` uint8, layout ``FHWC``.
    """

    operator_name = "readers.sequence"

    def __init__(self, *, frames_name: Name = "frames", **arguments: Any) -> None:
        """Set up; paths are checked for pipes and devices, on which DALI would block, and no file is read.

        Args:
            frames_name: Name of the field.
            **arguments: Arguments of ``fn.readers.sequence``; ``file_root`` and ``sequence_length`` are required.

        Raises:
            SettingError: An argument is unknown or missing, or the folder does not exist.
            FileError: A folder or list cannot be read.
        """
        self.fields = (ReaderField(frames_name, types.DALIDataType.UINT8, DECODED_CLIP),)
        super().__init__(cast(Any, fn.readers).sequence, arguments)
        self._require_folder()
        require_openable(self.operator_name, files_in_folders(self._arguments["file_root"], has_image_extension))

    def advice(self, reason: str) -> str:
        """See `NativeInput.advice`."""
        if NO_FRAMES not in reason:
            return super().advice(reason)
        return "Expected are folders in `file_root`, one per stream, with one image file per frame in each."

    def why_not_decoded(self) -> str:
        """See `NativeInput.why_not_decoded`."""
        root = self._arguments["file_root"]
        return pointer_among(files_in_folders(root, has_image_extension, are_plain=True))

    def _why_empty(self) -> str:
        given = self._arguments
        num_needed = (given["sequence_length"] - 1) * given.get("stride", 1) + 1
        folders = [each for each in os.scandir(given["file_root"]) if each.is_dir()]
        longest = max((len(os.listdir(each.path)) for each in folders), default=0)
        return (
            f"A sequence needs {num_needed} frames of one stream, and the longest of {len(folders)} stream(s) has "
            f"{longest} file(s)."
        )
