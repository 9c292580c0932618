# SPDX-License-Identifier: Apache-2.0
"""What arrays files of NumPy have, as far as DALI can read them."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...errors import FieldValueError, SettingError
from ...limits.array_headers import array_header
from ...providers.files.storage import open_regular_file
from ...sample_data.dtypes import get_dali_type_for_numpy_type

_READABLE = "DALI reads little-endian arrays of bool, integers, and float16 to float64"


def type_of_array_file(path: str) -> types.DALIDataType:
    """Read the type of the array in a ``.npy`` file from its header.

    Raises:
        SettingError: The file cannot be read, has no (complete) array in it, or one that DALI cannot read.
    """
    try:
        with open_regular_file(path) as file:
            shape, dtype = array_header(file)
            num_stated = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise SettingError(f"The array file {path!r} cannot be read: {reason}.") from error
    what = _why_unreadable(dtype)
    if what is not None:
        raise SettingError(
            f"fn.readers.numpy cannot read the array in {path!r}, of {what}. {_READABLE}: convert the file."
        )
    if size < num_stated:
        raise SettingError(f"The array file {path!r} is incomplete: it must have {num_stated} bytes, has {size}.")
    return get_dali_type_for_numpy_type(dtype)


def type_of_argument(dtype: npt.DTypeLike | types.DALIDataType) -> types.DALIDataType:
    """Get DALI's type for one that was given.

    Raises:
        SettingError: There is none.
    """
    if isinstance(dtype, types.DALIDataType):
        return dtype
    try:
        return get_dali_type_for_numpy_type(np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"`dtype` must be a type of arrays that DALI reads, got {dtype!r}. {_READABLE}."
        ) from error


def _why_unreadable(dtype: np.dtype[np.generic]) -> str | None:
    if dtype.hasobject:
        return f"type {dtype}, which holds Python objects"
    if dtype.names is not None:
        return f"a structured type with the fields {', '.join(map(repr, dtype.names))}"
    try:
        get_dali_type_for_numpy_type(dtype)
    except FieldValueError:
        return f"type {dtype.name}"
    if dtype.itemsize > 1 and dtype != dtype.newbyteorder("<"):
        return f"type {dtype.newbyteorder('<').name} in big-endian order"
    return None
