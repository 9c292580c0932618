# SPDX-License-Identifier: Apache-2.0
"""A data set of files: one file is one sample."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import index_in
from ...errors import SettingError
from ...sample_data import SampleDataGroup
from ...sample_data.formats import ENCODED_IMAGE, UNKNOWN_CONTENT
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import without_secrets
from ..data_provider import BlueprintProvider
from .file_scan import DEFAULT_FILE_FILTERS, FileTable, NameFilter, read_list_file, scan_folders
from .remote_reading import StorageOptions
from .storage import Storage, StoragePath, as_utf8, checked_path, parent_of


class FileDataProvider(BlueprintProvider):
    """Loads the bytes of files, with labels. Sample ``i`` is file ``i``, in the order of DALI's file reader.

    The files are given in one of three ways, as in DALI. **Label folders** (``file_root`` alone): each subfolder
    of the root is a label; `scan_folders` says in which order. **A list file** (``file_list``): each line has a
    file name and a label. **Given files**: ``files``, with ``labels`` if wanted.

    Fields of a sample::

        data: UINT8    (num_bytes,) the file as it is
        label: INT32   (1,)
        path: STRING   full path or URL
        index: INT64   (), the sample index

    Names are kept as bytes in one buffer. Files are opened when their sample is loaded, in the process that
    loads it.

    Attributes:
        file_table: Names of the files, as they were found or given, and their labels.

    Example::

        provider = FileDataProvider("train", path_name=None)
        data_input = ShuffledShardedInputCallable(provider, batch_size=32, shuffle=True)
        definition = PipelineDefinition(data_input, [ImageDecoder("data", use_device_mixed=True)])
    """

    @explains_unknown_arguments
    def __init__(
        self,
        file_root: StoragePath | None = None,
        *,
        file_list: StoragePath | None = None,
        files: StoragePath | Iterable[StoragePath] | None = None,
        labels: SupportsIndex | Iterable[SupportsIndex] | None = None,
        file_filters: str | Iterable[str] = DEFAULT_FILE_FILTERS,
        dir_filters: str | Iterable[str] | None = None,
        case_sensitive_filter: bool = False,
        data_name: Name | None = "data",
        label_name: Name | None = "label",
        path_name: Name | None = "path",
        index_name: Name | None = "index",
        storage_options: StorageOptions | None = None,
    ) -> None:
        """Find the files.

        Args:
            file_root: The folder that has the label folders. With ``file_list`` or ``files``: the folder to which
                their names are relative. None: with ``file_list``, the folder of the list; with ``files``, the
                current folder. A path, or a URL of fsspec such as ``s3://bucket/train``.
            file_list: A text file, or its URL. See `read_list_file` for its form.
            files: Paths or URLs, relative to ``file_root`` or absolute.
            labels: Labels of ``files``, whole numbers that fit into int32. None: label ``i`` for file ``i``.
            file_filters: Patterns for the names of files in label folders, see `NameFilter`; by default for images
                and sounds.
            dir_filters: Patterns for the names of label folders; None for all folders.
            case_sensitive_filter: Whether both filters are case-sensitive.
            data_name: Name of the field for the content of the file. None: no such field, and files are not
                opened.
            label_name: Name of the field for the label; None for no such field.
            path_name: Name of the field for the path; None for no such field. A byte that is not valid UTF-8 is
                written as an escape, e.g. ``\\xff``.
            index_name: Name of the field for the sample index; None for no such field.
            storage_options: Arguments of a remote file system (credentials, endpoint, ...).

        Raises:
            SettingError: Arguments do not go together, no file is found, or a line of the list is wrong.
            FileError: A folder or the list cannot be read. The files themselves are not checked.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        self._field_names = (data_name, label_name, path_name, index_name)
        self._blueprint = self._make_blueprint()
        if files is not None and file_list is not None:
            raise SettingError("Files are named by `files` or by `file_list`, got both.")
        if labels is not None and files is None:
            raise SettingError("`labels` go with `files`, got labels without files.")
        if files is None and file_list is None and file_root is None:
            raise SettingError("Give `file_root` (a folder of label folders), `file_list`, or `files`.")
        if file_root is not None and not checked_path(file_root, "file_root"):
            raise SettingError("`file_root` must not be empty; the current folder is '.'.")
        file_filter = NameFilter(file_filters, case_sensitive=case_sensitive_filter, argument="file_filters")
        folder_filter = None
        if dir_filters is not None:
            folder_filter = NameFilter(dir_filters, case_sensitive=case_sensitive_filter, argument="dir_filters")
        self._storage = Storage("" if file_root is None else file_root, storage_options)
        if files is not None:
            names = [files] if isinstance(files, str | os.PathLike) else [*files]
            given = range(len(names)) if labels is None else labels
            self.file_table = FileTable.from_names(names, given if isinstance(given, Iterable) else [given])
            if not names:
                raise SettingError("`files` must name at least one file, got none.")
        elif file_list is not None:
            folder, name = parent_of(checked_path(file_list, "file_list"))
            of_list = Storage(folder, storage_options)
            self.file_table = read_list_file(of_list, name)
            self._storage = of_list if file_root is None else self._storage
        else:
            self.file_table = scan_folders(self._storage, file_filter, folder_filter)

    def _make_blueprint(self) -> SampleDataGroup:
        uint8, int32, string = types.DALIDataType.UINT8, types.DALIDataType.INT32, types.DALIDataType.STRING
        formats = ((uint8, 1), (int32, 1), (string, None), (types.DALIDataType.INT64, None))
        blueprint = SampleDataGroup()
        for name, (dtype, ndim) in zip(self._field_names, formats, strict=True):
            if name is not None:
                content = ENCODED_IMAGE if dtype == uint8 else UNKNOWN_CONTENT
                blueprint.add_data_field(name, dtype, ndim=ndim, content=content)
        if not len(blueprint):
            raise SettingError("A sample must have at least one field, got None for all names.")
        return blueprint

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """``(N,)`` int32, the label of each file; read-only."""
        return np.asarray(self.file_table.labels, np.int32)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the label folders, in the order of labels; None if the files are not in label folders."""
        names = self.file_table.notes.get("classes")
        return None if names is None else tuple(names)

    @property
    def num_classes(self) -> int | None:
        """Number of label folders, including those without files; None if the files are not in label folders."""
        return None if self.class_names is None else len(self.class_names)

    def describe_sample(self, sample_index: int) -> str:
        """Get the path of a file."""
        return without_secrets(self.path(sample_index))

    def get_number_of_samples(self) -> int:
        """Get the number of files."""
        return len(self.file_table)

    def path(self, sample_index: SupportsIndex) -> str:
        """Get the full path or URL of a file."""
        return self._storage.path(self._name(sample_index))

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample.

        Raises:
            SettingError: There is no such sample; the error is also an IndexError.
            FileError: The file cannot be read, or is empty.
        """
        name = self._name(sample_index)
        data_name, label_name, path_name, index_name = self._field_names
        sample = self.new_sample()
        if data_name is not None:
            sample[data_name] = self._storage.read_bytes(name)
        if label_name is not None:
            sample[label_name] = np.array([self.file_table.label(sample_index)], np.int32)
        if path_name is not None:
            sample[path_name] = as_utf8(self._storage.path(name))
        if index_name is not None:
            sample[index_name] = np.int64(operator.index(sample_index))
        return sample

    def _name(self, sample_index: SupportsIndex) -> str:
        return self.file_table.name(index_in(sample_index, "sample_index", len(self.file_table)))

    def __repr__(self) -> str:
        return f"FileDataProvider({without_secrets(self._storage.root)!r}, {len(self.file_table)} files)"
