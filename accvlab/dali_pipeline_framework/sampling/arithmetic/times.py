# SPDX-License-Identifier: Apache-2.0
"""Search in the times of frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def nearest(times: npt.NDArray[Any], wanted: npt.ArrayLike, within: float) -> npt.NDArray[np.int64]:
    """Find the position of the nearest of ``(n,)`` ascending times for each wanted time.

    It is -1 where none is within the distance. Of two that are equally near, it is the earlier.
    """
    wanted = np.asarray(wanted)
    if not len(times):
        return np.full(wanted.shape, -1, np.int64)
    after = np.clip(np.searchsorted(times, wanted), 0, len(times) - 1)
    before = np.maximum(after - 1, 0)
    is_before = np.abs(wanted - times[before]) <= np.abs(times[after] - wanted)
    found = np.where(is_before, before, after)
    return np.where(np.abs(times[found] - wanted) <= within, found, -1).astype(np.int64)
