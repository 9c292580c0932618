# SPDX-License-Identifier: Apache-2.0
"""Which component stands at which position of an endless mixture whose rates change."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, SupportsIndex

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import whole_number
from .mixture_schedule import MAX_PERIOD, exact_shares, rounded_shares
from .rate_curve import RateCurve

Int64Array = npt.NDArray[np.int64]

# Rounding errors of `_left_of_ramps`, as a part of the length of the ramp. Those of float64 are a hundredth of it.
_TOLERANCE = 2.0**-44


class MovingSchedule:
    """Deals the positions of an endless mixture to its components, by rates that follow a `RateCurve`.

    After any number of positions each component has had the integral of its rate up to there, give or take half
    the depth of a tree with the ``K`` components as leaves: ``ceil(log2(K)) / 2``, which is 0.5 for two
    components, 1 for four, and 3 for 64. So a component may come early by that where its rate is still 0, with
    more than four. No randomness is involved, and nothing adds up, however far one looks.

    It is arithmetic. A position goes down the tree, in which each node knows the integral of its rates as pieces
    of parabolas. The ``n``-th position that a node gets stands for the time at which its integral is ``n``. What
    the integral of its left child is then, rounded, is how many of the first ``n`` positions go left, and the
    others go right. Numbers are whole: an integral is a multiple of ``1 / (2 * W)`` at the knots, where ``W`` is
    the common denominator of the rates, and where rounding is in doubt, square roots are taken in whole
    numbers.

    Example::

        >>> curve = RateCurve(knots=[(0, [1, 0]), (8, [0, 1])])
        >>> schedule = MovingSchedule(curve)
        >>> schedule.locate(np.arange(10))[0].tolist()
        [0, 0, 1, 0, 1, 0, 1, 1, 1, 1]
        >>> schedule.counts(8).tolist()
        [4, 4]
    """

    def __init__(self, curve: RateCurve) -> None:
        """Choose the fractions that are kept."""
        self._curve = curve
        self._shares, self._whole, self._is_exact = _shares_of(curve)

    def __getstate__(self) -> dict[str, Any]:  # each process makes the tree anew
        return {name: value for name, value in self.__dict__.items() if name != "_tree"}

    @property
    def curve(self) -> RateCurve:
        """The rates asked for."""
        return self._curve

    @property
    def num_components(self) -> int:
        """Number of components."""
        return self._curve.num_components

    @property
    def rates(self) -> tuple[tuple[int, tuple[Fraction, ...]], ...]:
        """The knots that are kept exactly: positions, not steps, and rates.

        The rates are those asked for where `is_exact`; else they are those rounded to multiples of 1/65536.
        """
        positions = [step * self._curve.num_per_step for step, _ in self._curve.knots]
        rates = (tuple(Fraction(share, self._whole) for share in shares) for shares in self._shares)
        return tuple(zip(positions, rates, strict=True))

    @property
    def is_exact(self) -> bool:
        """Whether the rates asked for are the fractions that are kept (within 1e-9, so 0.1 is 1/10)."""
        return self._is_exact

    @property
    def largest_deviation(self) -> float:
        """How far the count of a component can be away from the integral of its rate."""
        return self._tree.depth / 2

    def locate(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Tell who stands at ``(n,)`` positions, each in ``[0, 2**62]``.

        Returns:
            The component at each position, ``(n,)`` int64, and how many earlier positions that component has,
            ``(n,)`` int64.
        """
        tree = self._tree
        clocks, periods = tree.within_one_period(np.asarray(positions, np.int64))
        nodes = np.zeros(len(clocks), np.int64)
        for _ in range(tree.depth):
            inner = np.flatnonzero(tree.left[nodes] >= 0)
            at, now = nodes[inner], clocks[inner]
            lefts = tree.num_left(np.concatenate([at, at]), np.concatenate([now, now + 1]))
            before, after = np.split(lefts, 2)
            goes_left = after > before
            nodes[inner] = np.where(goes_left, tree.left[at], tree.right[at])
            clocks[inner] = np.where(goes_left, before, now - before)
        components = tree.component[nodes]
        return components, clocks + periods * tree.shares_at_end[components]

    def counts(self, num_positions: SupportsIndex) -> Int64Array:
        """Count the positions of each component among the first ones: ``(K,)`` int64."""
        number = whole_number(num_positions, "num_positions", at_least=0)
        tree = self._tree
        (clock,), (periods,) = tree.within_one_period(np.array([number], np.int64))
        clocks = np.zeros(len(tree.left), np.int64)
        clocks[0] = clock
        for node in np.flatnonzero(tree.left >= 0):  # parents come before their children
            num_left = tree.num_left(np.array([node]), clocks[[node]])[0]
            clocks[tree.left[node]] = num_left
            clocks[tree.right[node]] = clocks[node] - num_left
        counts = np.zeros(self.num_components, np.int64)
        leaves = tree.left < 0
        counts[tree.component[leaves]] = clocks[leaves]
        result: Int64Array = counts + periods * tree.shares_at_end
        return result

    @functools.cached_property
    def _tree(self) -> _Tree:
        positions = [position for position, _ in self.rates]
        return _Tree.of(
            positions, np.array(self._shares, np.int64), self._whole, self._curve.interpolation == "linear"
        )


@attrs.frozen(eq=False)
class _Tree:
    """The tree, and the integrals of the rates of its nodes in pieces between knots, ``(nodes, pieces)`` int64.

    Attributes:
        depth: Of the deepest leaf.
        left: ``(nodes,)``, left child, -1 for leaves; likewise ``right``.
        right: ``(nodes,)``.
        component: ``(nodes,)``, of leaves.
        whole: What the shares of all components add up to: ``W``.
        starts: ``(pieces,)``, first position of each piece.
        lengths: ``(pieces,)``, number of positions of each; 1 for the last, which has no end.
        shares: At the beginning of each piece.
        growth: What is added to the shares over the piece.
        sums: Twice the integral at the beginning of each piece, times ``W``.
        shares_at_end: ``(K,)``, of the components, behind the last knot.
    """

    depth: int
    left: Int64Array
    right: Int64Array
    component: Int64Array
    whole: int
    starts: Int64Array
    lengths: Int64Array
    shares: Int64Array
    growth: Int64Array
    sums: Int64Array
    shares_at_end: Int64Array

    @classmethod
    def of(cls, positions: list[int], shares: Int64Array, whole: int, is_linear: bool) -> _Tree:
        """Make the tree of ``(knots, K)`` shares at positions."""
        if positions[0] > 0:
            positions, shares = [0, *positions], np.concatenate([shares[:1], shares])
        starts = np.array(positions, np.int64)
        lengths = np.append(np.diff(starts), 1)
        growth = np.zeros_like(shares)
        if is_linear:
            growth[:-1] = np.diff(shares, axis=0)
        twice = (2 * shares + growth) * lengths[:, None]
        sums = np.cumsum(twice, axis=0) - twice  # (pieces, K)
        left, right, ranges = _balanced(shares.shape[1])
        ends = np.array(ranges)  # (nodes, 2)

        def of_nodes(values: Int64Array) -> Int64Array:
            up_to = np.concatenate([np.zeros((len(values), 1), np.int64), np.cumsum(values, axis=1)], axis=1)
            result: Int64Array = np.ascontiguousarray((up_to[:, ends[:, 1]] - up_to[:, ends[:, 0]]).T)
            return result

        return cls(
            depth=(shares.shape[1] - 1).bit_length(),
            left=np.array(left),
            right=np.array(right),
            component=ends[:, 0].copy(),
            whole=whole,
            starts=starts,
            lengths=lengths,
            shares=of_nodes(shares),
            growth=of_nodes(growth),
            sums=of_nodes(sums),
            shares_at_end=shares[-1],
        )

    def within_one_period(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Go back by whole periods of ``whole`` positions where the rates no longer change.

        Returns:
            Positions, and by how many periods they are nearer; in each of them a component has its share.
        """
        # A component lags behind its integral by at most depth / 2, for which it needs at most as many periods.
        settled = int(self.starts[-1]) + (self.depth + 2) * self.whole
        periods = np.maximum(positions - settled, 0) // self.whole
        return positions - periods * self.whole, periods

    def num_left(self, nodes: Int64Array, clocks: Int64Array) -> Int64Array:
        """How many of the first ``(n,)`` positions of ``(n,)`` nodes go to their left child."""
        targets = 2 * self.whole * clocks
        pieces = self._piece_of(nodes, targets)
        left = self.left[nodes]
        # In pieces where the rates stay, all is exact in whole numbers. Where a node has no positions, its
        # integral stays: what is asked for beyond that has the count of the end.
        rest, own = targets - self.sums[nodes, pieces], self.shares[nodes, pieces]
        own_or_1 = np.maximum(own, 1)
        quotients, remainders = np.divmod(np.where(own > 0, rest, 0), own_or_1)
        shares = self.shares[left, pieces]
        inside = shares * quotients + shares * remainders // own_or_1
        counts = (self.sums[left, pieces] + inside + self.whole) // (2 * self.whole)
        ramps = np.flatnonzero((self.growth[nodes, pieces] != 0) | (self.growth[left, pieces] != 0))
        if len(ramps):
            counts[ramps] = self._left_of_ramps(nodes[ramps], pieces[ramps], rest[ramps])
        return counts

    def _piece_of(self, nodes: Int64Array, targets: Int64Array) -> Int64Array:
        """The last piece of each node that begins with a sum of at most its target, by bisection."""
        low = np.zeros(len(nodes), np.int64)
        high = np.full(len(nodes), len(self.starts), np.int64)
        for _ in range(len(self.starts).bit_length()):
            middle = (low + high) // 2
            is_in = self.sums[nodes, np.minimum(middle, len(self.starts) - 1)] <= targets
            is_open = low < high
            low = np.where(is_open & is_in, middle + 1, low)
            high = np.where(is_open & ~is_in, middle, high)
        return low - 1

    def _left_of_ramps(self, nodes: Int64Array, pieces: Int64Array, rest: Int64Array) -> Int64Array:
        """As `num_left`, by parabolas in float64; by whole numbers where that is not sure."""
        left, lengths = self.left[nodes], self.lengths[pieces]
        unit = 2.0 * self.whole
        rate, slope = self._rates(nodes, pieces)
        # Time since the beginning of the piece: slope / 2 * time**2 + rate * time = rest / unit.
        wanted = rest / unit
        root = np.sqrt(np.maximum(rate * rate + 2 * slope * wanted, 0))
        divisor = rate + root
        time = np.where(divisor > 0, 2 * wanted / np.where(divisor > 0, divisor, 1), 0.0)
        rate, slope = self._rates(left, pieces)
        wholes, parts = np.divmod(self.sums[left, pieces] + self.whole, 2 * self.whole)
        inside = parts / unit + time * (rate + slope / 2 * time)
        floors = np.floor(inside)
        counts = wholes + floors.astype(np.int64)
        away = np.minimum(inside - floors, floors + 1 - inside)
        for number in np.flatnonzero(away <= _TOLERANCE * (lengths + 1)).tolist():
            counts[number] = self._exactly_left(int(nodes[number]), int(pieces[number]), int(rest[number]))
        return counts

    def _rates(self, nodes: Int64Array, pieces: Int64Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return (
            self.shares[nodes, pieces] / self.whole,
            self.growth[nodes, pieces] / (self.lengths[pieces] * float(self.whole)),
        )

    def _exactly_left(self, node: int, piece: int, rest: int) -> int:
        """As `num_left`, for one position in a piece in which the rates change; ``rest`` is twice an integral."""
        length, left = int(self.lengths[piece]), int(self.left[node])
        share, growth = int(self.shares[node, piece]), int(self.growth[node, piece])
        own_share, own_growth = int(self.shares[left, piece]), int(self.growth[left, piece])
        # The time x solves  growth * x**2 + 2 * share * length * x == rest * length;  wanted is the whole part of
        # own_growth * x**2 / length + 2 * own_share * x.
        if rest == 0:
            inside = 0
        elif growth == 0:  # x == rest / (2 * share)
            inside = (4 * own_share * rest * share * length + own_growth * rest**2) // (4 * share**2 * length)
        else:  # x == (sqrt(below) - share * length) / growth
            below = (share * length) ** 2 + growth * rest * length
            factor = own_share * growth - own_growth * share
            of_root = math.isqrt(4 * factor**2 * below)
            if factor < 0:
                of_root = -of_root - (of_root**2 < 4 * factor**2 * below)
            inside = (own_growth * rest * growth - 2 * share * length * factor + of_root) // growth**2
        return (int(self.sums[left, piece]) + inside + self.whole) // (2 * self.whole)


def _balanced(num_leaves: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """A binary tree: left and right children (-1 for leaves), and the leaves ``[first, end)`` below each node."""
    left, right, ranges = [-1], [-1], [(0, num_leaves)]
    node = 0
    while node < len(ranges):
        first, end = ranges[node]
        if end - first > 1:
            middle = (first + end + 1) // 2
            left[node], right[node] = len(ranges), len(ranges) + 1
            ranges += [(first, middle), (middle, end)]
            left += [-1, -1]
            right += [-1, -1]
        node += 1
    return left, right, ranges


def _shares_of(curve: RateCurve) -> tuple[list[list[int]], int, bool]:
    """The shares at each knot, what they add up to, and whether they are the rates asked for."""
    asked_for = [[Fraction(rate) for rate in rates] for _, rates in curve.knots]
    exact = [exact_shares([rate for rate in rates if rate]) for rates in asked_for]
    wholes = [sum(shares) for shares in exact if shares is not None]
    whole = math.lcm(*wholes)
    is_exact = len(wholes) == len(exact) and whole <= MAX_PERIOD
    if not is_exact:
        whole = MAX_PERIOD
    result = []
    for rates, kept in zip(asked_for, exact, strict=True):
        shares = kept if is_exact and kept is not None else rounded_shares([rate for rate in rates if rate])
        factor = whole // sum(shares)
        left = iter(shares)
        result.append([next(left) * factor if rate else 0 for rate in rates])
    return result, whole, is_exact
