# SPDX-License-Identifier: Apache-2.0
"""Types of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bool: TypeAlias = npt.NDArray[np.bool_]
Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Names: TypeAlias = npt.NDArray[np.bytes_]
UInt8: TypeAlias = npt.NDArray[np.uint8]
