# SPDX-License-Identifier: Apache-2.0
"""Lidar points as py123d stores them in a cell: an Arrow stream with a column for each of x, y, z and features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving.arrow_files import ArrowFile, import_pyarrow, require_memory

_STREAM = b"\xff\xff\xff\xff"
_PLACE = ("x", "y", "z")
# Microseconds since 1970 do not fit into float32.
_LEFT_OUT = ("timestamps",)


def point_columns_of(file: ArrowFile, column: str) -> tuple[str, ...]:
    """What the points of a file have: of its first record that has any.

    Raises:
        FileError: They are stored in another form.
    """
    stored = str(file.type_of(column))
    if stored == "string":
        # The files are those of the data set, each with another format.
        return _PLACE
    if stored != "binary":
        raise FileError(f"The column {column!r} of {file.path!r} must hold points (binary), got {stored}.")
    for row in range(file.num_rows):
        content = file.content(column, row)
        if content is not None:
            _, names = _batch(file, row, content)
            return (*_PLACE, *(name for name in names if name not in (*_PLACE, *_LEFT_OUT)))
    return _PLACE


def read_points(file: ArrowFile, column: str, row: int, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Read the points of a record, ``(P, K)`` float32; ``(0, K)`` where there are none.

    Raises:
        FileError: They cannot be read, or lack a column.
    """
    if str(file.type_of(column)) == "string":
        raise FileError(
            f"The lidar points of {file.path!r} are stored as paths of files of the data set. Convert the logs "
            f"with lidar_store_option='binary' and lidar_codec='ipc', or leave `lidar` off."
        )
    content = file.content(column, row)
    if content is None:
        return np.zeros((0, len(names)), np.float32)
    batch, known = _batch(file, row, content)
    missing = [name for name in names if name not in known]
    if missing:
        raise FileError(f"The points in row {row} of {file.path!r} have no {listed(missing)}.")
    points = np.empty((batch.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        values = batch.column(batch.schema.get_field_index(name))
        try:
            points[:, place] = values.to_numpy(zero_copy_only=False)
        except (ValueError, TypeError) as error:
            raise FileError(
                f"The points in row {row} of {file.path!r} must have numbers as {name!r}, got {values.type}."
            ) from error
    return points


def _batch(file: ArrowFile, row: int, content: npt.NDArray[np.uint8]) -> tuple[Any, list[str]]:
    arrow = import_pyarrow(file.path)
    if content[:4].tobytes() != _STREAM:
        raise FileError(
            f"The points in row {row} of {file.path!r} are no Arrow stream (LAZ or Draco, maybe). Convert the "
            f"logs with lidar_store_option='binary' and lidar_codec='ipc', 'ipc_lz4' or 'ipc_zstd', or leave "
            "`lidar` off."
        )
    try:
        with arrow.ipc.open_stream(arrow.py_buffer(content)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
        require_memory(batch.nbytes)
        return batch, list(batch.schema.names)
    except (arrow.ArrowException, StopIteration, OSError, MemoryError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise FileError(f"The points in row {row} of {file.path!r} cannot be read: {reason}.") from error
