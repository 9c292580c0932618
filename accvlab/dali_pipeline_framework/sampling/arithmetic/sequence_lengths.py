# SPDX-License-Identifier: Apache-2.0
"""The lengths of the sequences of a data set, checked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...checks import MOST_SAMPLES
from ...errors import SettingError


def checked_lengths(lengths: npt.ArrayLike, name: str = "sequence_lengths") -> npt.NDArray[np.int64]:
    """Return lengths of at least one sequence, each at least 1, as ``(S,)`` int64; or raise a `SettingError`."""
    try:
        array = np.asarray(lengths)
    except ValueError as error:  # nested lists of different lengths
        raise SettingError(f"`{name}` must be a flat list with at least one length, got nested lists.") from error
    if array.ndim == 0:  # NumPy takes None, texts and generators for single objects
        raise SettingError(
            f"`{name}` must be a flat list with at least one length, got an object of type "
            f"{type(lengths).__name__}."
        )
    if array.ndim != 1 or array.size == 0:
        raise SettingError(f"`{name}` must be a flat list with at least one length, got shape {array.shape}.")
    if array.dtype.kind == "f":
        _refuse(array, ~(np.isfinite(array) & (array == np.floor(array))), f"`{name}` must hold whole numbers")
    elif array.dtype.kind not in "iu":
        raise SettingError(f"`{name}` must hold whole numbers, got {array.dtype} values.")
    _refuse(array, array < 1, f"Each of `{name}` must be at least 1", " Leave empty sequences out.")
    if array.sum(dtype=np.float64) > MOST_SAMPLES:
        raise SettingError(f"`{name}` must add up to at most 2**62 samples, got {array.sum(dtype=np.float64):g}.")
    return array.astype(np.int64)


def _refuse(lengths: npt.NDArray[np.generic], is_bad: npt.NDArray[np.bool_], rule: str, advice: str = "") -> None:
    bad = np.flatnonzero(is_bad)
    if bad.size:
        raise SettingError(
            f"{rule}, but length {int(bad[0])} is {lengths[bad[0]]} ({bad.size} such length(s)).{advice}"
        )
