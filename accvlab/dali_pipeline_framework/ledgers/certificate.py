# SPDX-License-Identifier: Apache-2.0
"""What the ledgers of all ranks and restarts prove about a training.

What a restart makes void::

    run 1, shards 0 and 1    |0 1 2 3 4 5 6 7|                 killed behind batch 7
                                       ^ the last checkpoint, behind batch 4
    run 2, shard 0                     |5 6 7 8 9 ...|          goes on at batch 5
    counts                   |0 1 2 3 4|5 6 7 8 9 ...|          the model knows nothing of 5 to 7 of run 1

Parts of several shards that were begun together form a run. A run that has loaded a state at a position makes void
what earlier runs have delivered from that position on.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import MOST_SAMPLES, elements, flag, whole_number
from ..errors import SettingError
from .ledger import NEW, STATE, LedgerPart, ledgers_in

_MOST_NAMED = 20
_common_of = operator.attrgetter(
    "launch", "shards", "begin", "epoch", "batch"
)  # of parts that were begun together
_NO_SAMPLES: npt.NDArray[Any] = np.empty(0, np.int64)


@attrs.frozen
class Certificate:
    """What ledgers prove.

    Attributes:
        is_exact: Whether each sample was delivered as often as requested, and nothing speaks against it.
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
        num_samples: Samples of the data set. None: as the ledgers say.
        epochs: Epochs to look at. None: all that are in the ledgers.
        counts_anew: Whether a loader that began without a state has begun the training anew, so that all that
            was delivered before is void. Else it counts, too.

    Raises:
        FileError: A ledger cannot be read, or is damaged.
        SettingError: An argument is out of its range, there are no ledgers, they belong to different trainings, or
            the number of samples is not known.
    """
    times = None if times is None else _checked(times, "times")
    num_samples = None if num_samples is None else _checked(num_samples, "num_samples")
    which = None if epochs is None else [_checked(epoch, "epochs") for epoch in elements(epochs) or ()]
    if which == []:
        raise SettingError("`epochs` must be numbers of epochs, one or several.")
    counts_anew = flag(counts_anew, "counts_anew")
    ledgers = ledgers_in(paths)
    if not ledgers:
        raise SettingError("`paths` must be ledgers, or folders of them, at least one.")
    runs = _runs([part for parts, _ in ledgers for part in parts])
    problems: list[str] = []
    delivered: dict[int, list[npt.NDArray[Any]]] = {}
    instead: dict[int, dict[int, int]] = {}  # per epoch, for each sample that was replaced
    num_batches = num_void = num_unknown = 0
    for number, part in [(number, part) for number, run in enumerate(runs) for part in run]:
        limit = _limit(part, number, runs, counts_anew, problems)
        for place, samples, replaced in part.batches:
            if place >= limit:
                num_void += 1
                continue
            num_batches += 1
            num_unknown += samples is None
            delivered.setdefault(place[0], []).append(_NO_SAMPLES if samples is None else samples)
            instead.setdefault(place[0], {}).update(zip(replaced[::2], replaced[1::2], strict=False))
    if num_samples is None:
        num_samples = max(part.num_samples for run in runs for part in run)
        if num_samples < 0:
            raise SettingError("The ledgers do not say how many samples the data set has. Pass `--samples`.")
    which = sorted(delivered) if which is None else which
    if num_unknown:
        problems.append(f"of {num_unknown} batches it is not known which samples they hold")
    if not which:
        problems.append("no batch was delivered")
    for group in [[epoch] for epoch in which] if times is None else [which]:
        where = f"epoch {group[0]}: " if times is None else ""
        found = np.concatenate([_NO_SAMPLES, *(each for epoch in group for each in delivered.get(epoch, []))])
        lost = {due: other for epoch in group for due, other in instead.get(epoch, {}).items()}
        differences = _differences(found, lost, num_samples, 1 if times is None else times)
        problems += [where + text for text in differences]
    num_torn = sum(is_torn for _, is_torn in ledgers)
    notes = [
        f"{_number(len(ledgers), 'ledger')}, {_number(len(runs), 'run')}: {num_batches} batches count, {num_void} "
        f"were superseded by restarts" + f"; {_number(num_torn, 'ledger')} incomplete at the end" * bool(num_torn),
        *map(_line_of, itertools.count(1), runs),
    ]
    if not problems:
        often = "once in each of the epochs" if times is None else f"{times} times in the epochs"
        named = ", ".join(map(str, which)) if len(which) <= _MOST_NAMED else f"{min(which)} .. {max(which)}"
        notes.append(f"Each of the {num_samples} samples was delivered exactly {often} {named}.")
    return Certificate(not problems, tuple(problems), tuple(notes))


def _checked(value: object, name: str) -> int:
    return whole_number(value, name, at_least=0, at_most=MOST_SAMPLES)


def _runs(parts: Iterable[LedgerPart]) -> list[list[LedgerPart]]:
    """Put together the parts of several shards that were begun together; in the order of time.

    Raises:
        SettingError: They belong to different trainings.
    """
    runs: list[list[LedgerPart]] = []
    for part in sorted(parts, key=lambda each: each.time_ns):
        first = runs[0][0] if runs else part
        if part.order != first.order:
            raise SettingError(
                f"The ledgers belong to different trainings: data set, order or seed of {first.path!r} and "
                f"{part.path!r} differ. Give those of one training."
            )
        if runs and _common_of(part) == _common_of(runs[-1][0]) and part.shard not in {p.shard for p in runs[-1]}:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _limit(
    part: LedgerPart, number: int, runs: Sequence[list[LedgerPart]], counts_anew: bool, problems: list[str]
) -> tuple[float, float]:
    """The position from which a part of a run is void."""
    limit: tuple[float, float] = (math.inf, 0)
    for later, (first, *others) in enumerate(runs[number + 1 :], number + 2):
        if first.begin != STATE and not counts_anew:
            continue
        if part.end_ns <= first.time_ns or part.path in {each.path for each in (first, *others)}:
            limit = min(limit, (first.epoch, first.batch))
        else:
            problems.append(
                f"run {number + 1} still delivered on shard {part.shard} after run {later} had begun: both went "
                f"on at the same time ({part.path} and {first.path}), so neither supersedes the other"
            )
    return limit


def _line_of(number: int, run: Sequence[LedgerPart]) -> str:
    first, shards = run[0], {part.shard for part in run}
    missing = [shard for shard in range(min(first.shards, 4096)) if shard not in shards]
    begun = "began without a state" if first.begin == NEW else "went on from a state"
    line = f"run {number}: {begun} at epoch {first.epoch}, batch {first.batch}, {len(shards)} of {first.shards} "
    return line + "shard(s)" + f"; there is no ledger of shard {_named(missing)}" * bool(missing)


def _differences(
    delivered: npt.NDArray[Any], instead: dict[int, int], num_samples: int, times: int
) -> Iterator[str]:
    """Say which samples were not delivered as often as they should."""
    indices, counts = np.unique(delivered, return_counts=True)
    is_inside = (indices >= 0) & (indices < num_samples)
    if not is_inside.all():
        yield f"not in the data set of {num_samples} samples: {_named(indices[~is_inside].tolist())}"
    indices, counts = indices[is_inside], counts[is_inside]
    num_missing = num_samples - len(indices)
    if num_missing and times:
        present = {*indices.tolist()}
        missing = itertools.islice((index for index in range(num_samples) if index not in present), _MOST_NAMED)
        texts = [f"{each} (sample {instead[each]} in its place)" if each in instead else each for each in missing]
        yield f"missing: {_named(texts, num_missing)}"
    for count in np.unique(counts[counts != times]).tolist():
        often = {1: "once", 2: "twice"}.get(count, f"{count} times")
        yield f"delivered {often}: {_named(indices[counts == count].tolist())}"


def _number(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _named(values: Sequence[object], total: int | None = None) -> str:
    shown = values[:_MOST_NAMED]
    more = (len(values) if total is None else total) - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")
