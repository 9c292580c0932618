# SPDX-License-Identifier: Apache-2.0
"""What the ledgers of all ranks and restarts prove about a training.

What a restart makes void::

    run 1, shards 0 and 1    |0 1 2 3 4 5 6 7|                 killed behind batch 7
                                       ^ the last checkpoint, behind batch 4
    run 2, shard 0                     |5 6 7 8 9 ...|          goes on at batch 5
    counts                   |0 1 2 3 4|5 6 7 8 9 ...|          the model knows nothing of 5 to 7 of run 1

Runs of several shards that were started together form a generation. A generation that has loaded a state at a
position makes void what earlier generations have delivered from that position on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from ..checks import MOST_SAMPLES, elements, flag, whole_number
from ..errors import SettingError
from .ledger_file import NEW, STATE, Int64Array, Ledger, LedgerPart, UInt8Array, ledgers_in
from .marks import PADDING, REPLACED

_MOST_NAMED = 20


@attrs.frozen
class Certificate:
    """What ledgers prove.

    Attributes:
        is_exact: Whether each sample was delivered as often as asked for, and nothing speaks against it.
        problems: What speaks against it, one line each.
        notes: What was found: files, runs, and what was superseded.
    """

    is_exact: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """All lines."""
        return "\n".join([*self.notes, *self.problems])


def certify(
    paths: Iterable[str | os.PathLike[str]],
    *,
    times: int | None = None,
    num_samples: int | None = None,
    epochs: Sequence[int] | None = None,
    counts_anew: bool = False,
) -> Certificate:
    """Find out whether each sample was delivered exactly so many times.

    Args:
        paths: Ledgers, or folders of them: those of all ranks and restarts of one training.
        times: How often in all epochs together. None: once in each epoch.
        num_samples: Samples of the data set. None: as the ledgers tell.
        epochs: Epochs to look at. None: all that the ledgers tell of.
        counts_anew: Whether a loader that began without a state has begun the training anew, so that all that
            was delivered before is void. Else it counts, too.

    Raises:
        FileError: A ledger cannot be read, or is damaged.
        SettingError: An argument is out of its range, the ledgers belong to different trainings, or the number of
            samples is not known.
    """
    times = None if times is None else whole_number(times, "times", at_least=0, at_most=MOST_SAMPLES)
    if num_samples is not None:
        num_samples = whole_number(num_samples, "num_samples", at_least=0, at_most=MOST_SAMPLES)
    if epochs is not None:
        epochs = [
            whole_number(epoch, "epochs", at_least=0, at_most=MOST_SAMPLES) for epoch in elements(epochs) or ()
        ]
        if not epochs:
            raise SettingError("`epochs` must be numbers of epochs, one or several.")
    counts_anew = flag(counts_anew, "counts_anew")
    ledgers = ledgers_in(paths)
    _require_one_training(ledgers)
    known = {ledger.header.num_samples for ledger in ledgers} - {-1}
    if num_samples is None:
        if not known:
            raise SettingError("The ledgers do not tell how many samples the data set has. Pass `--samples`.")
        num_samples = max(known)
    generations = _generations([part for ledger in ledgers for part in ledger.parts])
    counted = _Counted(num_samples)
    for generation in generations:
        later = generations[generation.number + 1 :]
        for part in generation.parts:
            counted.add(part, _limit(part, generation, later, counts_anew, counted.problems))
    torn = sum(1 for ledger in ledgers if ledger.is_torn)
    found = f"{_number(len(ledgers), 'ledger')}, {_number(len(generations), 'run')}"
    notes = [
        f"{found}: {counted.num_batches} batches count, {counted.num_void} were superseded by restarts"
        + (f"; {_number(torn, 'ledger')} incomplete at the end" if torn else ""),
        *_lines_of(generations),
    ]
    problems = [*counted.problems, *counted.differences(times, epochs)]
    if not problems:
        which = counted.epochs if epochs is None else epochs
        often = "once in each of the epochs" if times is None else f"{times} times in the epochs"
        named = ", ".join(map(str, which)) if len(which) <= _MOST_NAMED else f"{min(which)} .. {max(which)}"
        notes.append(f"Each of the {num_samples} samples was delivered exactly {often} {named}.")
    return Certificate(not problems, tuple(problems), tuple(notes))


def _require_one_training(ledgers: Sequence[Ledger]) -> None:
    orders = {ledger.header.order: ledger for ledger in ledgers}
    if len(orders) > 1:
        first, other, *_ = orders.values()
        paths = [each.parts[0].path if each.parts else each.header.name for each in (first, other)]
        raise SettingError(
            f"The ledgers belong to different trainings: data set, order or seed of {paths[0]!r} and {paths[1]!r} "
            f"differ. Give those of one training."
        )
    if not any(ledger.parts for ledger in ledgers):
        raise SettingError("The ledgers tell of no loop at all.")


@attrs.frozen(eq=False)
class _Generation:
    """Parts of several shards that were begun together."""

    number: int
    parts: list[LedgerPart]

    def takes(self, part: LedgerPart) -> bool:
        """Whether a part that begins later can belong to it."""
        own = self.parts[0]
        return (own.header.launch, own.header.num_shards, own.start, own.why) == (
            part.header.launch,
            part.header.num_shards,
            part.start,
            part.why,
        ) and part.header.shard_id not in {each.header.shard_id for each in self.parts}

    @property
    def start(self) -> tuple[int, int]:
        return self.parts[0].start

    @property
    def start_ms(self) -> int:
        return self.parts[0].start_ms


def _generations(parts: Iterable[LedgerPart]) -> list[_Generation]:
    generations: list[_Generation] = []
    for part in sorted(parts, key=lambda each: (each.start_ms, each.header.time_ns)):
        if generations and generations[-1].takes(part):
            generations[-1].parts.append(part)
        else:
            generations.append(_Generation(len(generations), [part]))
    return generations


def _limit(
    part: LedgerPart, generation: _Generation, later: Sequence[_Generation], counts_anew: bool, problems: list[str]
) -> tuple[int, int] | None:
    """The position from which a part is void, or None."""
    limits = []
    for other in later:
        if other.parts[0].why == STATE or counts_anew:
            if part.end_ms > other.start_ms and not _is_same_loader(part, other):
                problems.append(
                    f"run {generation.number + 1} still delivered on shard {part.header.shard_id} after run "
                    f"{other.number + 1} had begun: both went on at the same time ({_who(part)}, "
                    f"{_who(other.parts[0])}), so neither supersedes the other"
                )
                continue
            limits.append(other.start)
    return min(limits, default=None)


def _is_same_loader(part: LedgerPart, other: _Generation) -> bool:
    return any(each.header.run == part.header.run for each in other.parts)


def _who(part: LedgerPart) -> str:
    return f"process {part.header.pid} on {part.header.host}"


def _lines_of(generations: Sequence[_Generation]) -> Iterator[str]:
    if len(generations) > 2 * _MOST_NAMED:
        shown = [*generations[:_MOST_NAMED], *generations[-_MOST_NAMED:]]
    else:
        shown = [*generations]
    for generation in shown:
        first = generation.parts[0]
        shards = {part.header.shard_id for part in generation.parts}
        missing = sorted({*range(min(first.header.num_shards, 4096))} - shards)
        begun = "began without a state" if first.why == NEW else "went on from a state"
        line = f"run {generation.number + 1}: {begun} at epoch {first.start[0]}, batch {first.start[1]}, "
        line += f"{len(shards)} of {first.header.num_shards} shard(s)"
        if missing:
            line += f"; there is no ledger of shard {_named(missing)}"
        yield line
    if len(shown) < len(generations):
        yield f"and {len(generations) - len(shown)} more runs between them"


class _Counted:
    """Counts samples that were delivered, by epoch.

    Attributes:
        num_batches: Batches that count.
        num_void: Batches that were superseded.
        problems: What was found meanwhile.
    """

    def __init__(self, num_samples: int) -> None:
        self.num_batches = self.num_void = 0
        self.problems: list[str] = []
        self._num_samples = num_samples
        self._num_unknown = 0
        self._found: dict[int, list[Int64Array]] = {}
        self._lost: dict[int, dict[int, str]] = {}

    @property
    def epochs(self) -> list[int]:
        return sorted(self._found)

    def add(self, part: LedgerPart, limit: tuple[int, int] | None) -> None:
        counts = np.ones(len(part.epochs), np.bool_)
        if limit is not None:
            epoch, batch = limit
            counts = (part.epochs < epoch) | ((part.epochs == epoch) & (part.batches < batch))
        self.num_batches += int(counts.sum())
        self.num_void += int((~counts).sum())
        self._num_unknown += int((counts & ~part.is_known).sum())
        epoch_of = part.epochs[part.batch_of]
        is_counted = counts[part.batch_of] & (part.marks != PADDING)
        for epoch in np.unique(part.epochs[counts]).tolist():
            here = is_counted & (epoch_of == epoch)
            self._found.setdefault(epoch, []).append(part.indices[here])
            self._note_lost(epoch, part.indices[here], part.marks[here], part.planned[here])

    def _note_lost(self, epoch: int, indices: Int64Array, marks: UInt8Array, planned: Int64Array) -> None:
        lost = self._lost.setdefault(epoch, {})
        for position in np.flatnonzero(marks == REPLACED).tolist():
            how = f"sample {indices[position]} in its place"
            lost[int(planned[position])] = how

    def differences(self, times: int | None, epochs: Sequence[int] | None) -> Iterator[str]:
        """Say which samples were not delivered as often as they should."""
        if self._num_unknown:
            yield f"of {self._num_unknown} batches it is not known which samples they hold"
        which = self.epochs if epochs is None else [*epochs]
        if not which:
            yield "no batch was delivered"
        if times is not None:
            found = [each for epoch in which for each in self._found.get(epoch, [])]
            lost = {index: how for epoch in which for index, how in self._lost.get(epoch, {}).items()}
            yield from self._differences("", found, lost, times)
            return
        for epoch in which:
            yield from self._differences(
                f"epoch {epoch}: ", self._found.get(epoch, []), self._lost.get(epoch, {}), 1
            )

    def _differences(
        self, where: str, found: Sequence[Int64Array], lost: dict[int, str], times: int
    ) -> Iterator[str]:
        indices, counts = np.unique(np.concatenate([np.empty(0, np.int64), *found]), return_counts=True)
        is_inside = indices < self._num_samples
        if not is_inside.all():
            outside = _named(indices[~is_inside].tolist())
            yield f"{where}not in the data set of {self._num_samples} samples: {outside}"
        indices, counts = indices[is_inside], counts[is_inside]
        num_missing = self._num_samples - len(indices)
        if num_missing and times:
            missing = _first_missing(indices, self._num_samples)
            told = [f"{index} ({lost[index]})" if index in lost else str(index) for index in missing]
            yield f"{where}missing: {_named(told, num_missing)}"
        for count in np.unique(counts[counts != times]).tolist():
            yield f"{where}delivered {_times(count)}: {_named(indices[counts == count].tolist())}"


def _first_missing(present: Int64Array, num_samples: int) -> list[int]:
    """The first of the numbers below ``num_samples`` that are not among ``present``, ascending and unique."""
    bounds = np.concatenate([[-1], present, [num_samples]])
    missing: list[int] = []
    for gap in np.flatnonzero(np.diff(bounds) > 1).tolist():
        missing += range(int(bounds[gap]) + 1, min(int(bounds[gap + 1]), int(bounds[gap]) + 1 + _MOST_NAMED))
        if len(missing) >= _MOST_NAMED:
            break
    return missing[:_MOST_NAMED]


def _number(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _named(values: Sequence[object], total: int | None = None) -> str:
    shown = values[:_MOST_NAMED]
    more = (len(values) if total is None else total) - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")
