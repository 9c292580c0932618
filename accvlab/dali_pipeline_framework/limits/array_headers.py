# SPDX-License-Identifier: Apache-2.0
"""What the header of a file of NumPy claims."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np


def array_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of a ``.npy`` file, of version 1.0 of the format, up to its data.

    Returns:
        Shape and type that it claims; whether there are data for them is not looked at.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such header.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"it has version {version[0]}.{version[1]} of the format, and DALI reads 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (OSError, ValueError):
        raise
    except Exception as error:  # what a damaged header makes Python's parser raise can be nearly anything
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    return shape, dtype
