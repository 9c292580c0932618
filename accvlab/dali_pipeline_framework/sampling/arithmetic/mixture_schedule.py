# SPDX-License-Identifier: Apache-2.0
"""Which component stands at which position of an endless mixture."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from fractions import Fraction
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ...checks import elements, whole_number
from ...errors import SettingError

Int64Array = npt.NDArray[np.int64]

MAX_PERIOD = 65536
SUM_TOLERANCE = 1e-6
_RATE_TOLERANCE = Fraction(1, 10**9)


class MixtureSchedule:
    """Deals the positions of an endless mixture to its components, as evenly as their rates allow.

    After any number ``p`` of positions each component has had ``p * rate`` of them, give or take less than one:
    at most ``1 - 1 / (2 * K - 2)`` for ``K`` components. No randomness is involved, and nothing is rounded as
    positions go on, so the bound holds arbitrarily far.

    The rates are fractions with a common denominator, the period: in each period a component has exactly the
    same whole number of positions. One period is computed when it is first needed, and looked up from then on.
    The algorithm is the one of R. Tijdeman, "The chairman assignment problem" (Discrete Mathematics 32, 1980):
    of the components that may have a position without running ahead of the bound, it goes to the one that would
    first fall behind it.

    Example::

        >>> schedule = MixtureSchedule([0.5, 0.25, 0.25])
        >>> schedule.locate(np.arange(8))[0].tolist()
        [0, 1, 0, 2, 0, 1, 0, 2]
        >>> schedule.counts(6).tolist()
        [3, 2, 1]
    """

    def __init__(self, rates: Iterable[float | Fraction]) -> None:
        """Choose the fractions: ``(K,)`` rates, at most 65536; above 0, with the sum 1 (within 1e-6)."""
        asked_for = _checked_rates(rates)
        shares = exact_shares(asked_for)
        self._is_exact = shares is not None
        if shares is None:
            shares = rounded_shares(asked_for)
        self._shares = np.array(shares, dtype=np.int64)
        self._period = sum(shares)

    def __getstate__(self) -> dict[str, Any]:  # each process makes the table anew: that is faster than to send it
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    @property
    def num_components(self) -> int:
        """Number of components."""
        return len(self._shares)

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """The rates that are kept exactly; their sum is 1.

        They are the rates asked for where `is_exact`; else they are those rounded to multiples of 1/65536, and
        not below 1/65536.
        """
        return tuple(Fraction(share, self._period) for share in self._shares.tolist())

    @property
    def is_exact(self) -> bool:
        """Whether the rates asked for are the fractions that are kept (within 1e-9, so 0.1 is 1/10)."""
        return self._is_exact

    @property
    def period(self) -> int:
        """Number of positions after which the schedule repeats, at most 65536."""
        return self._period

    def locate(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Tell who stands at ``(n,)`` positions, each in ``[0, 2**62]``.

        Returns:
            The component at each position, ``(n,)`` int64, and how many earlier positions that component has,
            ``(n,)`` int64.
        """
        components_of, ranks_of = self._table
        periods, offsets = np.divmod(positions, self._period)
        components = components_of[offsets].astype(np.int64)
        return components, periods * self._shares[components] + ranks_of[offsets]

    def counts(self, num_positions: SupportsIndex) -> Int64Array:
        """Count the positions of each component among the first ones: ``(K,)`` int64."""
        number = whole_number(num_positions, "num_positions", at_least=0)
        periods, rest = divmod(number, self._period)
        in_rest = np.bincount(self._table[0][:rest], minlength=self.num_components)
        counts: Int64Array = periods * self._shares + in_rest
        return counts

    @functools.cached_property
    def _table(self) -> tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[np.int32]]:
        return _make_table(self._shares)


def _checked_rates(rates: Iterable[float | Fraction]) -> list[Fraction]:
    kept: list[float | Fraction] | None = elements(rates)
    if kept is None:
        raise SettingError(f"`rates` must be a sequence of numbers above 0, got {rates!r}.")
    if not 1 <= len(kept) <= MAX_PERIOD:
        raise SettingError(f"`rates` must have from 1 to {MAX_PERIOD} rates, got {len(kept)}.")
    for number, rate in enumerate(kept):
        if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < rate < math.inf:
            raise SettingError(
                f"`rates` must be numbers above 0, but rate {number} is {rate!r}. "
                f"Leave out a component that is not to be used."
            )
    total = math.fsum(kept)
    if abs(total - 1) > SUM_TOLERANCE:
        raise SettingError(
            f"`rates` must have the sum 1 (within {SUM_TOLERANCE:g}), got {len(kept)} rate(s) with the sum "
            f"{total:.9g}. To use them as proportions, divide each by the sum."
        )
    return [Fraction(rate) if isinstance(rate, Fraction | int) else Fraction(float(rate)) for rate in kept]


def exact_shares(asked_for: list[Fraction]) -> list[int] | None:
    """The positions per period with the shortest period that keeps the rates, if one is short enough."""
    period = 1
    rates = []
    for wanted in asked_for:
        rate = wanted.limit_denominator(MAX_PERIOD)
        period = math.lcm(period, rate.denominator)
        if period > MAX_PERIOD or rate == 0 or abs(rate - wanted) >= _RATE_TOLERANCE:
            return None
        rates.append(rate)
    return [int(rate * period) for rate in rates] if sum(rates) == 1 else None


def rounded_shares(asked_for: list[Fraction]) -> list[int]:
    """The positions per period of 65536 by largest remainder (the first of equals), each at least 1."""
    whole = set(range(len(asked_for)))
    while True:  # who has less than one position gets one, and the others share what is left
        per_rate = Fraction(MAX_PERIOD - len(asked_for) + len(whole)) / sum(asked_for[i] for i in whole)
        raised = {i for i in whole if asked_for[i] * per_rate < 1}
        if not raised:
            break
        whole -= raised
    shares = [1] * len(asked_for)
    remainders = {}
    for i in sorted(whole):
        shares[i] = math.floor(asked_for[i] * per_rate)
        remainders[i] = asked_for[i] * per_rate - shares[i]
    for i in sorted(remainders, key=lambda i: -remainders[i])[: MAX_PERIOD - sum(shares)]:
        shares[i] += 1
    common = math.gcd(*shares)
    return [share // common for share in shares]


def _make_table(shares: Int64Array) -> tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[np.int32]]:
    """Deal one period.

    Returns:
        ``(period,)`` components, and ``(period,)`` numbers of earlier positions of that component.
    """
    period = int(shares.sum())
    type_of_components = np.uint8 if len(shares) <= 256 else np.uint16
    # A component with rate `r` that gets position `p` after `rank` earlier ones stays within `1 - margin`, where:
    #   not too early:  (rank + 1) - (p + 1) * r <= 1 - margin   <=>   p >= (rank + margin) / r - 1
    #   not too late:   p * r - rank <= 1 - margin               <=>   p <= (rank + 1 - margin) / r
    # All is multiplied by `inverse_margin`, so that it is exact: no number is above 2**16 * 2**17 * 2**16.
    inverse_margin = max(2 * len(shares) - 2, 1)
    components = np.repeat(np.arange(len(shares)), shares)
    ranks = np.arange(period) - np.repeat(np.cumsum(shares) - shares, shares)
    divisors = shares[components] * inverse_margin
    first_allowed = -(-(ranks * inverse_margin + 1) * period // divisors) - 1
    last_allowed = (ranks * inverse_margin + inverse_margin - 1) * period // divisors
    by_urgency = np.lexsort((components, last_allowed))
    components, ranks, first_allowed = components[by_urgency], ranks[by_urgency], first_allowed[by_urgency]
    dealt = _deal(first_allowed)
    return components[dealt].astype(type_of_components), ranks[dealt].astype(np.int32)


def _deal(first_allowed: Int64Array) -> list[int]:
    """For each position the most urgent request that is allowed there; the requests come sorted by urgency."""
    by_release = np.argsort(first_allowed, kind="stable")
    ends = np.searchsorted(first_allowed[by_release], np.arange(len(first_allowed)), side="right").tolist()
    released = by_release.tolist()
    waiting: list[int] = []
    dealt = []
    begin = 0
    for end in ends:
        for request in released[begin:end]:
            heapq.heappush(waiting, request)
        begin = end
        dealt.append(heapq.heappop(waiting))
    return dealt
