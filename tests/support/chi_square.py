"""How well counts agree with a distribution."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FAR_OUT = 3.719  # a normal deviate is larger with probability 1e-4


def chi_square_deviate(
    counts: npt.ArrayLike, expected: npt.ArrayLike, num_free: int | None = None, factor: float = 1.0
) -> float:
    """Chi-square statistic of counts, as the normal deviate of the same probability (Wilson and Hilferty, 1931).

    Args:
        counts: Observed counts, ``(n,)``.
        expected: Expected counts, ``(n,)`` or a number.
        num_free: Degrees of freedom; None for ``n - 1``.
        factor: By which the statistic is multiplied, where the counts are tied by more than their sum.
    """
    observed = np.asarray(counts, dtype=np.float64).reshape(-1)
    statistic = factor * float(np.sum((observed - expected) ** 2 / expected))
    freedom = observed.size - 1 if num_free is None else num_free
    spread = 2 / (9 * freedom)
    return float((np.cbrt(statistic / freedom) - (1 - spread)) / math.sqrt(spread))
