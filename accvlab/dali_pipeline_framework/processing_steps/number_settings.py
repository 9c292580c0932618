# SPDX-License-Identifier: Apache-2.0
"""Checks of the numbers that steps are made with."""

from __future__ import annotations

import math

import numpy as np

from ..errors import SettingError


def checked_prob(value: object, argument: str) -> float:
    """Return a probability.

    Raises:
        SettingError: It is not a number in [0, 1].
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:  # type: ignore[operator]
        raise SettingError(f"`{argument}` must be in [0, 1], got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def checked_range(
    limits: object, argument: str, least: float = -math.inf, most: float = math.inf, *, is_positive: bool = False
) -> tuple[float, float]:
    """Return the least and the greatest of the numbers that may be drawn.

    Args:
        limits: Two finite numbers.
        argument: Its name.
        least: Least allowed number.
        most: Greatest allowed number.
        is_positive: Whether the least number must be above 0.

    Raises:
        SettingError: It is something else.
    """
    try:
        array = np.asarray(limits, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    is_pair = array.shape == (2,) and bool(np.isfinite(array).all())
    if not is_pair or not least <= array[0] <= array[1] <= most or (is_positive and array[0] <= 0):
        lower = "0 < " if is_positive else "" if least == -math.inf else f"{least:g} <= "
        upper = "" if most == math.inf else f" <= {most:g}"
        raise SettingError(f"`{argument}` must be two numbers, {lower}least <= greatest{upper}, got {limits!r}.")
    return float(array[0]), float(array[1])
