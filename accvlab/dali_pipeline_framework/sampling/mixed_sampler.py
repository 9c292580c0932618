# SPDX-License-Identifier: Apache-2.0
"""Several samplers, or data sets, at given rates."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from numbers import Real
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import MOST_SAMPLES, elements, setting_error, whole_number
from ..draws.keyed_draws import Int64Array
from ..errors import SettingError
from ..unknown_arguments import explains_unknown_arguments
from .arithmetic.last_batch import LastBatch
from .planned_sampler import PlannedSampler
from .plans.orders import Order, UnitsAt
from .plans.tracks import Segments
from .random_access_sampler import Description, SamplerBase

MAX_PERIOD = 65536
SUM_TOLERANCE = 1e-6
_RATE_TOLERANCE = Fraction(1, 10**9)
_BLOCK = 64  # units of a component that are computed together: a batch may have only one of each
_SCHEDULE = 2  # raised with the order of `MixtureSchedule`, so that states of another order are refused


class MixtureSchedule:
    """Deals the positions of an endless mixture to its components evenly, without randomness.

    The rates are fractions with a common denominator, the period: a component has the same whole
    number of positions, ``period * rate``, in every period. After the first ``p`` positions, a component has had
    ``p * rate`` of them, within half a position if there are two components, and within less than two positions
    always. One period is computed when it is first needed, and looked up from then on.

    Attributes:
        num_components: Number of components.
        period: Number of positions after which the schedule repeats.

    Example::

        >>> schedule = MixtureSchedule([0.5, 0.25, 0.25])
        >>> schedule.locate(np.arange(8))[0].tolist()
        [0, 1, 0, 2, 0, 1, 0, 2]
    """

    def __init__(self, rates: Iterable[float | Fraction]) -> None:
        """Choose the fractions by K rates, ``K <= 65536``: each above 0, with the sum 1 (within 1e-6)."""
        requested = _checked_rates(rates)
        shares = exact_shares(requested)
        if shares is None:
            shares = [max(1, round(rate * MAX_PERIOD)) for rate in requested]
        self._shares = np.array(shares, dtype=np.int64) // math.gcd(*shares)
        self.num_components: Final = len(shares)
        self.period: Final = int(self._shares.sum())

    def __getstate__(self) -> dict[str, object]:  # to make the table is faster than to send it
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """The rates that are kept exactly; their sum is 1.

        They are the requested rates (within 1e-9, so 0.1 is 1/10) where these have a common denominator of at most
        65536; else they are rounded to fractions above 0 with a common denominator of about 65536 (with very many
        rates, up to twice that).
        """
        return tuple(Fraction(share, self.period) for share in self._shares.tolist())

    def locate(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Find the components at ``(n,)`` positions, each in ``[0, 2**62]``.

        Returns:
            The component at each position, ``(n,)`` int64, and how many earlier positions that component has,
            ``(n,)`` int64.
        """
        components_of, ranks_of = self._table
        periods, offsets = np.divmod(positions, self.period)
        components = components_of[offsets].astype(np.int64)
        return components, periods * self._shares[components] + ranks_of[offsets]

    @functools.cached_property
    def _table(self) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int32]]:
        """Of each position of a period its component, and how many earlier ones of the period that has."""
        components = dealt(self._shares)
        ranks = np.empty(self.period, np.int32)
        starts = np.cumsum(self._shares) - self._shares
        ranks[np.argsort(components, kind="stable")] = np.arange(self.period) - np.repeat(starts, self._shares)
        return components.astype(np.uint16), ranks


def _checked_rates(rates: Iterable[float | Fraction]) -> list[Fraction]:
    kept: list[float | Fraction] | None = elements(rates)
    if kept is None:
        raise setting_error("rates", "a sequence of numbers above 0", rates)
    if not 1 <= len(kept) <= MAX_PERIOD:
        raise SettingError(f"`rates` must have from 1 to {MAX_PERIOD} rates, got {len(kept)}.")
    for number, rate in enumerate(kept):
        if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < rate < math.inf:
            raise setting_error(f"rates[{number}]", "a number above 0", rate, "Leave out unused components.")
    total = math.fsum(kept)
    if abs(total - 1) > SUM_TOLERANCE:
        raise SettingError(
            f"`rates` must have the sum 1 (within {SUM_TOLERANCE:g}), got {len(kept)} rate(s) with the sum "
            f"{total:.9g}. To use them as proportions, divide each by the sum."
        )
    return [Fraction(rate) if isinstance(rate, Fraction | int) else Fraction(float(rate)) for rate in kept]


def exact_shares(requested: list[Fraction]) -> list[int] | None:
    """Get the positions per period with the shortest period that keeps the rates; None where it is too long."""
    period = 1
    rates = []
    for wanted in requested:
        rate = wanted.limit_denominator(MAX_PERIOD)
        period = math.lcm(period, rate.denominator)
        if period > MAX_PERIOD or rate == 0 or abs(rate - wanted) >= _RATE_TOLERANCE:
            return None
        rates.append(rate)
    return [int(rate * period) for rate in rates] if sum(rates) == 1 else None


def dealt(shares: Int64Array) -> Int64Array:
    """Deal one period: ``(period,)`` components, each as often as its share says.

    The components, the greatest shares first, are cut into two parts of about the same sum. Of the first ``n``
    positions the first part has ``floor(n * its sum / period + 1/2)``; each part deals its own in the same way.
    """
    period = int(shares.sum())
    if len(shares) == 1:
        return np.zeros(period, np.int64)
    by_share = np.argsort(-shares, kind="stable")
    cut = min(int(np.searchsorted(np.cumsum(shares[by_share]), period / 2)) + 1, len(shares) - 1)
    first, others = by_share[:cut], by_share[cut:]
    counts = (np.arange(period + 1) * 2 * int(shares[first].sum()) + period) // (2 * period)  # of the first part
    is_first = np.diff(counts) > 0
    components = np.empty(period, np.int64)
    components[is_first], components[~is_first] = first[dealt(shares[first])], others[dealt(shares[others])]
    return components


class MixedSampler(PlannedSampler):
    """Takes the units (samples or sequences) of other samplers in turn, at given rates.

    The components must be of the same kind, samples or streams. The rates count samples, or for streams whole
    sequences (not their frames). After ``n`` units of the mixture, a component has delivered about ``n`` times its
    rate (`MixtureSchedule`).

    Each component goes through its own epochs: it starts its next one when it is used up, so within one epoch
    of the mixture a small component can be delivered several times, and of a large one only a part.

    Example::

        >>> from accvlab.dali_pipeline_framework.sampling.samplers import ShuffledSampler
        >>> day, night = ShuffledSampler(80, shuffle=False), ShuffledSampler(20, shuffle=False)
        >>> sampler = MixedSampler([day, night], [0.5, 0.5], 4, offsets=[0, 80])
        >>> sampler.get_next_batch_indices()
        [0, 80, 1, 81]
    """

    @explains_unknown_arguments
    def __init__(
        self,
        samplers: Sequence[PlannedSampler],
        rates: Sequence[float],
        total_batch_size: int | None = None,
        *,
        offsets: Sequence[int] | Int64Array | None = None,
        num_per_epoch: int | None = None,
        last_batch: LastBatch | None = None,
    ) -> None:
        """Create the sampler.

        Args:
            samplers: The components. Their own batch size and last-batch policy are not used.
            rates: Rate of each component, above 0; together 1.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            offsets: Added to the sample indices of each component: for data sets that are joined by a
                `ConcatDataProvider`, its ``offsets``. None: all components choose from the same data set.
            num_per_epoch: Number of samples or sequences per epoch of the mixture; None for as many as the
                components have together.
            last_batch: Handling of a last batch that is not full; None for ``"drop"``, with streams for
                ``"pad"``.

        Raises:
            SettingError: An argument is out of its range, or the components are of different kinds.
        """
        self._samplers = _checked_samplers(samplers)
        first = self._samplers[0]
        self.is_streamed = self.has_slots = self.knows_sequences = first.is_streamed
        self.cuts = any(sampler.cuts for sampler in self._samplers)
        if last_batch is None:
            last_batch = "pad" if self.is_streamed else "drop"
        self._schedule = MixtureSchedule(rates)
        _check_count("rates", self._schedule.num_components, self._samplers)
        self._has_offsets = offsets is not None
        self._offsets = [0] * len(self._samplers) if offsets is None else _checked_offsets(offsets, self._samplers)
        num_samples = max(
            offset + sampler.num_samples for offset, sampler in zip(self._offsets, self._samplers, strict=True)
        )
        if num_samples > MOST_SAMPLES:
            raise SettingError(f"A mixture must have at most 2**62 samples, got {num_samples}.")
        self.seed = first.seed
        orders = [sampler.order for sampler in self._samplers]
        if num_per_epoch is None:
            num_per_epoch = sum(order.num_positions for order in orders)
        num_per_epoch = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
        first_units = self._offsets  # sequences are numbered one after the other
        if self.is_streamed:
            counts = [len(sampler.sequences().lengths) for sampler in self._samplers]
            first_units = [0, *itertools.accumulate(counts[:-1])]
        self.order = MixedOrder(orders, first_units, self._schedule, num_per_epoch)
        settings: Description = {
            "schedule": _SCHEDULE,
            "rates": ", ".join(f"{rate:.6g}" for rate in self.rates),
            "offsets": ", ".join(map(str, self._offsets)),
            "num_per_epoch": num_per_epoch,
        }
        for number, sampler in enumerate(self._samplers):
            settings.update({f"samplers[{number}].{name}": value for name, value in sampler.describe().items()})
        super().__init__(total_batch_size, last_batch, num_samples, settings)

    @property
    def samplers(self) -> list[PlannedSampler]:
        """The components."""
        return list(self._samplers)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates that the order keeps exactly: the requested ones, or near fractions, see `MixtureSchedule`."""
        return tuple(float(rate) for rate in self._schedule.rates)

    def check_provider(self, provider: object) -> None:
        """Raise a `SettingError` where the components do not match the data sets that a provider joins."""
        starts, joined = getattr(provider, "offsets", None), getattr(provider, "providers", None)
        if starts is None or joined is None:
            for sampler in self._samplers:
                sampler.check_provider(provider)
            return
        starts = [int(start) for start in starts]
        if self._has_offsets:
            for number, (sampler, offset) in enumerate(zip(self._samplers, self._offsets, strict=True)):
                if offset not in starts:
                    raise SettingError(
                        f"`offsets` must be the first sample indices of joined data sets, which are {starts}; "
                        f"that of sampler {number} is {offset}. Pass offsets=provider.offsets."
                    )
                sampler.check_provider(joined[starts.index(offset)])
        elif self.num_samples <= starts[-1]:
            raise SettingError(
                f"The samplers choose from the first {self.num_samples} samples, so data set {len(starts) - 1} of "
                f"{type(provider).__name__}, which begins at {starts[-1]}, is never reached. Where each sampler "
                f"is for one of the data sets, pass offsets=provider.offsets."
            )

    def sequences(self) -> Segments:
        """Get the sequences of all components, one component after the other.

        With offsets, sequences of different components have different numbers; without, all have the numbers of
        one data set.
        """
        parts, first_sequence = [], 0
        for sampler, offset in zip(self._samplers, self._offsets, strict=True):
            part = sampler.sequences()
            parts.append(part._replace(samples=part.samples + offset, sequences=part.sequences + first_sequence))
            first_sequence += (int(part.sequences.max()) + 1) * self._has_offsets
        return Segments(*map(np.concatenate, zip(*parts, strict=True)))


@attrs.frozen(eq=False)
class MixedOrder(Order):
    """Takes units of several orders in turn, at given rates.

    The components continue over the epochs of the mixture: each starts its own next epoch when it is used up.
    Unit ``u`` of component ``c`` is unit ``first_units[c] + u`` of the mixture.
    """

    orders: Sequence[Order]
    first_units: Sequence[int]
    schedule: MixtureSchedule
    num_positions: int

    def of_epoch(self, epoch: int) -> UnitsAt:
        """The order of an epoch."""
        sizes = np.array([order.num_positions for order in self.orders], np.int64)
        order_of = functools.lru_cache(2 * len(sizes))(lambda number, lap: self.orders[number].of_epoch(lap))

        @functools.lru_cache(4 * len(sizes))
        def block(number: int, lap: int, first: int) -> Int64Array:
            positions = np.arange(first, min(first + _BLOCK, sizes[number]))
            return self.first_units[number] + order_of(number, lap)(positions)[0]

        def units_at(positions: Int64Array) -> tuple[Int64Array, Int64Array]:
            components, in_component = self.schedule.locate(positions + epoch * self.num_positions)
            laps, in_lap = np.divmod(in_component, sizes[components])
            blocks, in_block = np.divmod(in_lap, _BLOCK)
            columns = (each.tolist() for each in (components, laps, blocks * _BLOCK, in_block))
            units = [block(*where)[place] for *where, place in zip(*columns, strict=True)]
            return np.array(units, np.int64), positions + 1

        return units_at


def _checked_offsets(offsets: Sequence[int] | Int64Array, samplers: Sequence[PlannedSampler]) -> list[int]:
    given = elements(offsets)
    if given is None:
        raise setting_error("offsets", "a sequence of whole numbers, or None", offsets)
    checked = [whole_number(each, "offsets", at_least=0, at_most=MOST_SAMPLES) for each in given]
    _check_count("offsets", len(checked), samplers)
    return checked


def _check_count(argument: str, count: int, samplers: Sequence[PlannedSampler]) -> None:
    if count != len(samplers):
        raise SettingError(f"`{argument}` must have one entry per sampler, got {count} for {len(samplers)}.")


def _checked_samplers(samplers: Sequence[PlannedSampler]) -> list[PlannedSampler]:
    if isinstance(samplers, SamplerBase) or not isinstance(samplers, Iterable):
        raise setting_error("samplers", "a sequence of samplers, e.g. a list", samplers)
    kept = list(samplers)
    if not kept:
        raise SettingError("A mixture needs at least one sampler, got none.")
    for number, sampler in enumerate(kept):
        if not isinstance(sampler, PlannedSampler):
            raise SettingError(
                f"Sampler {number} of a mixture must be one of ShuffledSampler, SequentialSampler, "
                f"WeightedSampler, StreamingSequenceSampler and MixedSampler, got {type(sampler).__name__}."
            )
    kinds = ["streams" if sampler.is_streamed else "samples" for sampler in kept]
    if len(set(kinds)) > 1:
        listed = ", ".join(f"{number}: {kind}" for number, kind in enumerate(kinds))
        raise SettingError(f"The samplers of a mixture must be of one kind, samples or streams, got {listed}.")
    return kept
