# SPDX-License-Identifier: Apache-2.0
"""DALI data types and their NumPy counterparts."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvidia.dali import types

from ..errors import FieldValueError

NUMPY_TYPES: dict[types.DALIDataType, type[np.generic]] = {
    types.DALIDataType.BOOL: np.bool_,
    types.DALIDataType.INT8: np.int8,
    types.DALIDataType.INT16: np.int16,
    types.DALIDataType.INT32: np.int32,
    types.DALIDataType.INT64: np.int64,
    types.DALIDataType.UINT8: np.uint8,
    types.DALIDataType.UINT16: np.uint16,
    types.DALIDataType.UINT32: np.uint32,
    types.DALIDataType.UINT64: np.uint64,
    types.DALIDataType.FLOAT16: np.float16,
    types.DALIDataType.FLOAT: np.float32,
    types.DALIDataType.FLOAT64: np.float64,
}
"""The numeric types a data field can have. ``STRING`` is the one other type; text travels as bytes."""

DTYPES_BY_CODE: dict[int, types.DALIDataType] = {
    dtype.value: dtype for dtype in (*NUMPY_TYPES, types.DALIDataType.STRING)
}
"""DALI's integer code of a type -> the type. Codes are small in pickles and fast to compare."""

_DALI_TYPES: dict[np.dtype[Any], types.DALIDataType] = {
    np.dtype(numpy_type): dtype for dtype, numpy_type in NUMPY_TYPES.items()
}


def get_numpy_type_for_dali_type(dali_type: types.DALIDataType) -> type[np.generic]:
    """Return the NumPy scalar type for a DALI type, e.g. ``np.float32`` for ``FLOAT``.

    Raises:
        FieldValueError: If there is none (``STRING`` and types that are not tensor elements).
    """
    numpy_type = NUMPY_TYPES.get(dali_type)
    if numpy_type is None:
        raise FieldValueError(
            f"{dali_type} does not have a corresponding numpy type. Types that have one: "
            + ", ".join(dtype.name for dtype in NUMPY_TYPES)
        )
    return numpy_type


def get_dali_type_for_numpy_type(numpy_type: object) -> types.DALIDataType:
    """Return the DALI type for anything that ``np.dtype`` accepts, e.g. ``FLOAT`` for ``np.float32``.

    Raises:
        FieldValueError: If there is none (complex, text, dates, objects).
    """
    dtype = np.dtype(numpy_type)  # type: ignore[call-overload]
    dali_type = _DALI_TYPES.get(dtype.newbyteorder("="))
    if dali_type is None:
        raise FieldValueError(f"NumPy type {dtype} does not have a corresponding DALI type")
    return dali_type
