# SPDX-License-Identifier: Apache-2.0
"""Ledgers: files in which loaders note what they have delivered, and what the files of a training prove.

A ledger is written by one loader in its process, a line of JSON per batch::

    {"epoch":0,"batch":5,"time_ns":17..,"samples":[1,3],"replaced":[[33,3]],
     "loop":17..,"state":[0,5],"shard":[0,2],"num_samples":300,"order":"5f.."}

``samples`` are those that were delivered, without what only fills a batch; null where they are not known.
``replaced`` has pairs: the sample that was due, and that in its place. ``loop`` is the time at which the loop over
the loader began, and ``state`` the position at which that went on from a state; null where it did not.

A batch that was made again after an interrupt has two lines of the same loop: the last one counts. What a restart
makes void::

    shards 0 and 1 of 2      |0 1 2 3 4 5 6 7|                 killed after batch 7
                                       ^ the last checkpoint, after batch 4
    shard 0 of 1                       |5 6 7 8 9 ...|          goes on at batch 5
    counts                   |0 1 2 3 4|5 6 7 8 9 ...|          the model knows nothing of the first 5 to 7

A loop that goes on from a state makes void what its shard has delivered earlier from that position on; where the
number of shards is another one, what any shard has.
"""

from __future__ import annotations

import errno
import functools
import glob
import itertools
import json
import logging
import operator
import os
import time
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from typing import Any

import attrs

from .checks import MOST_SAMPLES, elements, file_paths, listed, shown, whole_number
from .errors import FileError, SettingError, file_error
from .limits.file_limits import open_table, parse_json

_logger = logging.getLogger(__name__)

_SUFFIX = ".ledger"
_MOST_NAMED = 20  # as `listed` has it
_as_json = json.JSONEncoder(separators=(",", ":")).encode


class LedgerWriter:
    """Appends what one loader delivers to a new file. What was noted outlives the process, however it ends.

    A ledger that cannot be written (the disk is full) does not end the training. The log says so once, and nothing
    more is noted, so that what follows is missing when the ledgers are looked at.

    Attributes:
        is_on: Whether anything is noted.
        path: The file.
    """

    def __init__(self, folder: str | None, about: Mapping[str, Any]) -> None:
        """Set up; the file is made with the first batch.

        Args:
            folder: The folder, made if need be. None: nothing is noted.
            about: Who writes: ``shard``, ``num_samples``, ``order``, see `LedgerLine`.
        """
        self.is_on, self._about = folder is not None, about
        self._folder = folder or ""
        self._loop: dict[str, Any] = {}
        self._file: FileIO | None
        self._name_file()

    def _name_file(self) -> None:
        self._pid, self._file = os.getpid(), None
        self.path = os.path.join(self._folder, f"{os.uname().nodename}.{self._pid}.{time.time_ns()}{_SUFFIX}")

    def begin_loop(self, state: tuple[int, int] | None) -> None:
        """Have the next batches be of a new loop, which goes on from a state at a position (None: it does not)."""
        if self._pid != os.getpid():  # this process was forked from the one that has made the loader
            self._name_file()
        self._loop = {"loop": time.time_ns(), "state": state, **self._about}

    def note(self, epoch: int, batch: int, samples: Sequence[int] | None, replaced: Sequence[Any] = ()) -> None:
        """Note a batch that was just delivered, see `LedgerLine`."""
        values = {"epoch": epoch, "batch": batch, "time_ns": time.time_ns(), "samples": samples}
        self._try(self._append, {**values, "replaced": replaced, **self._loop})

    def close(self) -> None:
        """Have the system write the file to the disk, and close it; the next batch opens it again."""
        if self._file is not None:
            self._try(os.fsync, self._file)
            self._file = None  # before it is closed: an exception of a signal handler may come between
            self._try(self._close_file)

    def _append(self, values: Mapping[str, Any]) -> None:
        """Append a line, or a part of it and raise an error."""
        if self._file is None:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            file = FileIO(self.path, "a")
            self._close_file = weakref.finalize(self, file.close)
            self._file = file
        line = _as_json(values).encode() + b"\n"
        if os.write(self._file.fileno(), line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _try(self, action: Callable[..., object], *values: object) -> None:
        try:
            if self.is_on:
                action(*values)
        except OSError as error:
            self.is_on = False
            advice = "Make room, or name another folder: `ledger`. What follows will be found missing."
            _logger.error("The ledger %r ends, it cannot be written: %s. %s", self.path, error, advice)


def _pair(values: Iterable[int]) -> tuple[int, int]:
    first, second = map(operator.index, values)
    return first, second


def _pairs(values: Iterable[Iterable[int]]) -> dict[int, int]:
    return dict(map(_pair, values))


def _indices(values: Iterable[int]) -> array[int]:
    return array("q", values)


@attrs.frozen(eq=False)
class LedgerLine:
    """A batch that was delivered.

    Attributes:
        path: The file.
        epoch, batch, time_ns: Its position, and when it was delivered, in nanoseconds since 1970.
        samples: Indices of its samples, without padding; None if they are not known.
        replaced: For each sample that was replaced, that in its place.
        loop: When the loop began.
        state: Position at which the loop went on from a state; None if it did not.
        shard: Shard of the loader, and their number.
        num_samples: Samples of the data set; -1 where that is not known.
        order: Digest of what the order depends on: ledgers of the same training have the same.
    """

    path: str
    epoch: int = attrs.field(converter=operator.index)
    batch: int = attrs.field(converter=operator.index)
    time_ns: int = attrs.field(converter=operator.index)
    samples: array[int] | None = attrs.field(converter=attrs.converters.optional(_indices))
    replaced: dict[int, int] = attrs.field(converter=_pairs)
    loop: int = attrs.field(converter=operator.index)
    state: tuple[int, int] | None = attrs.field(converter=attrs.converters.optional(_pair))
    shard: tuple[int, int] = attrs.field(converter=_pair)
    num_samples: int = attrs.field(converter=operator.index)
    order: str = attrs.field(converter=str)


def ledger_lines(paths: Iterable[str | os.PathLike[str]]) -> list[LedgerLine]:
    """Read the lines of ledgers: files, or folders with files whose names end with ``.ledger``.

    The last line of a file may be incomplete, where a process was killed or a disk was full: it is left out. Of a
    batch that was made again, the last line counts.

    Raises:
        SettingError: ``paths`` are no paths.
        FileError: A file cannot be read, is no ledger of this release, or is damaged.
    """
    found: dict[str, list[LedgerLine]] = {}
    for path in file_paths(paths, "paths"):
        for file in sorted(glob.glob(f"{glob.escape(path)}/*{_SUFFIX}")) if os.path.isdir(path) else [path]:
            found[os.path.realpath(file)] = _lines_of(file)
    return [*itertools.chain.from_iterable(found.values())]


def _lines_of(path: str) -> list[LedgerLine]:
    try:
        with open_table(path) as file:
            lines = file.read().split(b"\n")[:-1]
    except OSError as error:
        raise file_error(f"The ledger {shown(path)} cannot be read", error) from error
    found: dict[tuple[int, int, int], LedgerLine] = {}
    for number, text in enumerate(lines, 1):
        try:
            line = LedgerLine(path, **parse_json(text))
            found[line.loop, line.epoch, line.batch] = line
        except (ValueError, TypeError, OverflowError):
            raise FileError(f"{shown(path)} is damaged in line {number}, or no ledger of this release.") from None
    return [*found.values()]


@attrs.frozen
class Certificate:
    """What ledgers prove.

    Attributes:
        problems: What speaks against each sample having been delivered once in each epoch, one line each.
        notes: What was found: files, what each loader has delivered, and what was superseded.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether each sample was delivered once in each epoch, and nothing speaks against it."""
        return not self.problems

    def __str__(self) -> str:
        """All lines."""
        return "\n".join([*self.notes, *self.problems])


def certify(
    paths: Iterable[str | os.PathLike[str]], *, num_samples: int | None = None, epochs: Sequence[int] | None = None
) -> Certificate:
    """Find out whether each sample was delivered exactly once in each epoch.

    Args:
        paths: Ledgers, or folders of them: those of all ranks and restarts of one training.
        num_samples: Samples of the data set. None: as the ledgers say.
        epochs: Epochs to look at. None: all that are in the ledgers.

    Raises:
        FileError: A ledger cannot be read, or is damaged.
        SettingError: An argument is out of its range, there are no ledgers, they belong to different trainings, or
            the number of samples is not known.
    """
    lines = ledger_lines(paths)
    if not lines:
        raise SettingError("`paths` must be ledgers, or folders of them, with at least one line.")
    orders = {line.order: line.path for line in lines}
    if len(orders) > 1:
        files = listed(map(shown, orders.values()))
        raise SettingError(f"The ledgers belong to different trainings: data set, order or seed differ: {files}.")
    noted = max(line.num_samples for line in lines)
    size = noted if num_samples is None else _checked(num_samples, "num_samples")
    if size < 0:
        raise SettingError("The ledgers do not say how many samples the data set has. Pass `--samples`.")
    counted = _counted(lines)
    in_ledgers = sorted({line.epoch for line in counted})
    which = in_ledgers if epochs is None else [_checked(epoch, "epochs") for epoch in elements(epochs) or ()]
    if not which:
        raise SettingError("`epochs` must be numbers of epochs, one or several.")
    by_epoch: dict[int, list[LedgerLine]] = {epoch: [] for epoch in which}
    for line in counted:
        by_epoch.get(line.epoch, []).append(line)
    problems = [f"epoch {epoch}: {text}" for epoch in by_epoch for text in _differences(by_epoch[epoch], size)]
    notes = [*_notes(lines, len(counted))]
    if not problems:
        each = f"Each of the {size} samples was delivered exactly once"
        notes.append(f"{each} in each of the epochs {listed(by_epoch)}.")
    return Certificate(tuple(problems), tuple(notes))


def _checked(value: object, name: str) -> int:
    return whole_number(value, name, at_least=0, at_most=MOST_SAMPLES)


def _counted(lines: Iterable[LedgerLine]) -> list[LedgerLine]:
    """Get the lines of the batches that no restart has made void."""
    restarts = {(line.loop, line.state, line.shard) for line in lines if line.state is not None}

    @functools.cache
    def of_shard(shard: tuple[int, int]) -> list[tuple[int, tuple[int, int]]]:
        return [(loop, state) for loop, state, by in restarts if by == shard or by[1] != shard[1]]

    def is_void(line: LedgerLine) -> bool:
        position, time_ns = (line.epoch, line.batch), max(line.loop, line.time_ns)
        return any(time_ns < loop and position >= state for loop, state in of_shard(line.shard))

    return [line for line in lines if not is_void(line)]


def _notes(lines: Sequence[LedgerLine], num_counted: int) -> Iterator[str]:
    """Say how many batches count, and where each file begins."""
    firsts = {line.path: line for line in reversed(lines)}
    void = f"{len(lines) - num_counted} were superseded by restarts"
    yield f"{len(firsts)} ledger{'s' * (len(firsts) > 1)}: {num_counted} batches count, {void}"
    for line in sorted(firsts.values(), key=operator.attrgetter("loop")):
        begun = "began without a state" if line.state is None else "went on from a state"
        yield f"shard {line.shard[0]} of {line.shard[1]} {begun} at epoch {line.epoch}, batch {line.batch}"


def _differences(lines: Sequence[LedgerLine], num_samples: int) -> Iterator[str]:
    """Say which samples of an epoch were not delivered once."""
    known = [line.samples for line in lines if line.samples is not None]
    if len(known) < len(lines):
        yield f"of {len(lines) - len(known)} batches it is not known which samples they hold"
    counts = Counter(itertools.chain.from_iterable(known))
    outside = sorted(index for index in counts if not 0 <= index < num_samples)
    if outside:
        yield f"not in the data set of {num_samples} samples: {listed(outside)}"
    num_missing = num_samples - (len(counts) - len(outside))
    if num_missing:
        instead = {due: given for line in lines for due, given in line.replaced.items()}
        missing = itertools.islice((index for index in range(num_samples) if index not in counts), _MOST_NAMED)
        texts = [f"{each} (sample {instead[each]} in its place)" if each in instead else each for each in missing]
        more = f" and {num_missing - len(texts)} more" if num_missing > len(texts) else ""
        yield f"missing: {listed(texts)}{more}"
    for count in sorted({*counts.values()} - {1}):
        often = "twice" if count == 2 else f"{count} times"
        yield f"delivered {often}: {listed(sorted(index for index in counts if counts[index] == count))}"
