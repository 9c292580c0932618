# SPDX-License-Identifier: Apache-2.0
"""Files of point clouds (PCD) of uncompressed bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving.array_types import Float32, UInt8

_END_OF_HEADER = b"\nDATA "
_MOST_HEADER = 4096  # bytes
_KINDS = {"F": "f", "U": "u", "I": "i"}


def points_of(content: UInt8, columns: Sequence[str], name: str) -> Float32:
    """Read points from the bytes of a file ``name``: ``(P, len(columns))``.

    Raises:
        FileError: It is no such file, lacks a column, or is cut short.
    """
    head = content[:_MOST_HEADER].tobytes()
    place = head.find(_END_OF_HEADER)
    end = head.find(b"\n", place + 1) + 1
    if place < 0 or not end:
        raise FileError(f"The file {name!r} is no point cloud (PCD): it begins with {shown(head[:20])}.")
    lines = (line.split() for line in head[:end].decode("latin1").splitlines() if not line.startswith("#"))
    header = {line[0]: line[1:] for line in lines if line}
    if header["DATA"] != ["binary"]:
        raise FileError(f"The points of {name!r} must be stored as `DATA binary`, got {listed(header['DATA'])}.")
    try:
        kinds = zip(header["FIELDS"], header["TYPE"], header["SIZE"], header["COUNT"], strict=True)
        dtype = np.dtype([(field, f"<{_KINDS[kind]}{size}", (int(count),)) for field, kind, size, count in kinds])
        if "0" in header["COUNT"]:
            raise ValueError("COUNT must be above 0")
        count = int(header["POINTS"][0])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise FileError(f"The header of the point cloud {name!r} is damaged ({error!r}).") from error
    missing = [column for column in columns if column not in (dtype.names or ())]
    if missing:
        raise FileError(f"The point cloud {name!r} has no {listed(missing)}; it has {listed(dtype.names or ())}.")
    needed = count * dtype.itemsize
    if count < 0 or content.size - end < needed:
        raise FileError(
            f"The point cloud {name!r} is cut short: its header says {count} points of {dtype.itemsize} bytes, "
            f"{needed} bytes, but {content.size - end} follow. Download it again."
        )
    stored = np.frombuffer(content, dtype, count, end)
    rows = np.empty((len(columns), count), np.float32)
    for row, column in zip(rows, columns, strict=True):
        row[:] = stored[column][:, 0]
    return rows.T  # each column in one piece, which is quicker to write, and to compare with a limit
