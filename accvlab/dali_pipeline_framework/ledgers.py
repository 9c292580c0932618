# SPDX-License-Identifier: Apache-2.0
"""Ledgers: files in which loaders note what they have delivered, and what the files of a training prove.

A ledger is written by one loader in its process: a line of JSON per batch, and one where it begins, or
goes on from a state::

    {"begin":"new","epoch":0,"batch":0,"time_ns":17..,"shard":0,"shards":2,"num_samples":300,"order":"5f.."}
    {"epoch":0,"batch":0,"time_ns":17..,"samples":[5,299]}
    {"epoch":0,"batch":1,"time_ns":17..,"samples":[1,3],"replaced":[[33,3]]}

``samples`` are those that were delivered, without what only fills a batch; null where they are not known.
``replaced`` has pairs: the sample that was due, and that in its place. ``"again": true`` stands in the line of a
batch that was made again after an interrupt, where the line before it is of the same batch: they count once.

What a restart makes void::

    shards 0 and 1 of 2      |0 1 2 3 4 5 6 7|                 killed after batch 7
                                       ^ the last checkpoint, after batch 4
    shard 0 of 1                       |5 6 7 8 9 ...|          goes on at batch 5
    counts                   |0 1 2 3 4|5 6 7 8 9 ...|          the model knows nothing of the first 5 to 7

A loader that goes on from a state makes void what its shard has delivered earlier from that position on; where the
number of shards is another one, what any shard has.
"""

from __future__ import annotations

import errno
import glob
import itertools
import json
import math
import operator
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from .checks import MOST_SAMPLES, elements, file_path, file_paths, listed, shown, whole_number
from .errors import FileError, SettingError, file_error
from .limits.file_limits import open_table, parse_json

NEW, STATE = "new", "state"
"""Why a run of batches begins: a loader was made, or a state was loaded."""

_SUFFIX = ".ledger"
_NO_SAMPLES: npt.NDArray[Any] = np.empty(0, np.int64)


class LedgerWriter:
    """Appends to a new ledger. What was noted outlives the process, however it ends.

    All methods raise the `OSError` of the system where there is no room, or the disk fails.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, int | str]) -> None:
        """Make the file, and the folder where it is not there.

        Args:
            folder: The folder.
            about: Who writes: ``shard``, ``shards``, ``num_samples``, ``order``, see `LedgerPart`.
        """
        self._about, self._pid = about, os.getpid()
        who = f"shard-{about['shard']}-of-{about['shards']}.{os.uname().nodename}.{self._pid}"
        self.path = os.path.join(folder, f"{who}.{time.time_ns()}{_SUFFIX}")
        os.makedirs(folder, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, _close, self._file, self._pid)

    def begin(self, why: str, epoch: int, batch: int) -> None:
        """Note that a run of batches begins at a position: `NEW` or `STATE`."""
        where = {"begin": why, "epoch": epoch, "batch": batch, "time_ns": time.time_ns()}
        self._append({**where, **self._about})

    def note_batch(self, epoch: int, batch: int, samples: Sequence[int] | None, **more: Any) -> None:
        """Note a batch of an epoch with its samples; ``more``: ``replaced`` and ``again``, where there is any."""
        where = {"epoch": epoch, "batch": batch, "time_ns": time.time_ns()}
        self._append({**where, "samples": samples, **more})

    def _append(self, values: Mapping[str, Any]) -> None:
        """Append a line, or a part of it and raise an error; nothing happens in a forked copy of the process."""
        if os.getpid() != self._pid:
            return
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Have the system write it to the disk, so that it also outlives the machine."""
        if self._close.alive:
            os.fsync(self._file)

    def close(self) -> None:
        """Write it to the disk and close it; nothing happens the second time."""
        try:
            self.sync()
        finally:
            self._close()


def _close(file: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child must not close what has its number there
        os.close(file)


def _whole(value: object) -> int:
    if type(value) is not int or not -1 <= value < 2**63:
        raise ValueError
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError
    return value


def _indices(values: object) -> npt.NDArray[Any]:
    found = np.array(values) if values else _NO_SAMPLES
    if type(values) is not list or found.dtype != np.int64 or found.ndim != 1:
        raise ValueError
    return found


@attrs.define(eq=False)
class LedgerPart:
    """A run of batches of one loader, from a continuation to the next one.

    Attributes:
        path: The file.
        begin: `NEW` or `STATE`.
        epoch, batch, time_ns: Where it begins, and when, in nanoseconds since 1970.
        shard, shards: Shard of the loader, of so many.
        num_samples: Samples of the data set; -1 where that is not known.
        order: Digest of what the order depends on: ledgers of the same training have the same.
        end_ns: When its last batch was delivered; 0 where there is none.
        batches: Epoch and number of each batch, indices of its samples (None: not known), and pairs of samples
            that were replaced.
    """

    path: str
    begin: str = attrs.field(converter=_text)
    epoch: int = attrs.field(converter=_whole)
    batch: int = attrs.field(converter=_whole)
    time_ns: int = attrs.field(converter=_whole)
    shard: int = attrs.field(converter=_whole)
    shards: int = attrs.field(converter=_whole)
    num_samples: int = attrs.field(converter=_whole)
    order: str = attrs.field(converter=_text)
    end_ns: int = attrs.field(default=0, init=False)
    batches: list[tuple[tuple[int, int], npt.NDArray[Any] | None, list[list[int]]]] = attrs.field(
        factory=list, init=False
    )

    def add(
        self, epoch: int, batch: int, time_ns: int, samples: Any, replaced: Sequence[Any] = (), again: bool = False
    ) -> None:
        """Add a batch with the values of its line."""
        place = _whole(epoch), _whole(batch)
        pairs = [[_whole(due), _whole(found)] for due, found in replaced]
        if again and self.batches and self.batches[-1][0] == place:
            del self.batches[-1]
        self.batches.append((place, None if samples is None else _indices(samples), pairs))
        self.end_ns = max(self.end_ns, _whole(time_ns))


def read_ledger(path: str | os.PathLike[str]) -> list[LedgerPart]:
    """Read a ledger: its parts, in the order in which they were written.

    The last line may be incomplete, where a process was killed or a disk was full while it was written: it is left
    out.

    Raises:
        SettingError: ``path`` is no path.
        FileError: It cannot be read, is no ledger of this release, or is damaged.
    """
    text = file_path(path, "path")
    try:
        with open_table(text) as file:
            lines = file.readlines()
    except OSError as error:
        raise file_error(f"The ledger {shown(text)} cannot be read", error) from error
    parts: list[LedgerPart] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        try:
            values = parse_json(line)
            if "begin" in values:
                parts.append(LedgerPart(text, **values))
            else:
                parts[-1].add(**values)
        except (ValueError, TypeError, IndexError, OverflowError):
            message = f"{shown(text)} is damaged in line {number}, or no ledger of this release."
            raise FileError(message) from None
    if not parts:
        raise FileError(f"{shown(text)} is no ledger: it has no whole line.")
    return parts


def ledgers_in(paths: Iterable[str | os.PathLike[str]]) -> list[list[LedgerPart]]:
    """Read the ledgers at some paths: files, or folders with files whose names end with ``.ledger``.

    Raises:
        SettingError: ``paths`` are no paths.
        FileError: One cannot be read or is damaged, or a folder has none.
    """
    found: list[str] = []
    for path in file_paths(paths, "paths"):
        files = sorted(glob.glob(f"{glob.escape(path)}/*{_SUFFIX}")) if os.path.isdir(path) else [path]
        if not files:
            raise FileError(f"The folder {shown(path)} has no ledgers (*{_SUFFIX}).")
        found += files
    return [read_ledger(path) for path in {os.path.realpath(path): path for path in found}.values()]


# --- what they prove ------------------------------------------------------------------------------------

_MOST_NAMED = 20  # as `listed` has it


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
    paths: Iterable[str | os.PathLike[str]],
    *,
    num_samples: int | None = None,
    epochs: Sequence[int] | None = None,
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
    num_samples = None if num_samples is None else _checked(num_samples, "num_samples")
    which = None if epochs is None else [_checked(epoch, "epochs") for epoch in elements(epochs) or ()]
    if which == []:
        raise SettingError("`epochs` must be numbers of epochs, one or several.")
    ledgers = ledgers_in(paths)
    if not ledgers:
        raise SettingError("`paths` must be ledgers, or folders of them, at least one.")
    parts = sorted(itertools.chain.from_iterable(ledgers), key=operator.attrgetter("time_ns"))
    problems: list[str] = []
    notes: list[str] = []
    delivered: dict[int, list[npt.NDArray[Any]]] = {}
    instead: dict[int, dict[int, int]] = {}  # per epoch, for each sample that was replaced
    num_batches = num_unknown = 0
    for number, part in enumerate(parts):
        if part.order != parts[0].order:
            raise SettingError(
                f"The ledgers belong to different trainings: data set, order or seed of {parts[0].path!r} and "
                f"{part.path!r} differ. Give those of one training."
            )
        limit = _limit(part, parts[number + 1 :], problems)
        counted = [batch for batch in part.batches if batch[0] < limit]
        for (epoch, _), samples, replaced in counted:
            num_unknown += samples is None
            delivered.setdefault(epoch, []).append(_NO_SAMPLES if samples is None else samples)
            instead.setdefault(epoch, {}).update((due, found) for due, found in replaced)
        num_batches += len(counted)
        begun = "began without a state" if part.begin == NEW else "went on from a state"
        notes.append(
            f"shard {part.shard} of {part.shards} {begun} at epoch {part.epoch}, batch {part.batch}: "
            f"{len(counted)} of {len(part.batches)} batches count"
        )
    for num_shards in sorted({part.shards for part in parts}):
        found = {part.shard for part in parts if part.shards == num_shards}
        missing = [shard for shard in range(min(num_shards, 4096)) if shard not in found]
        if missing:
            notes.append(f"there is no ledger of shard {listed(missing)} of {num_shards}")
    if num_samples is None:
        num_samples = max(part.num_samples for part in parts)
        if num_samples < 0:
            raise SettingError("The ledgers do not say how many samples the data set has. Pass `--samples`.")
    which = sorted(delivered) if which is None else which
    if num_unknown:
        problems.append(f"of {num_unknown} batches it is not known which samples they hold")
    if not which:
        problems.append("no batch was delivered")
    for epoch in which:
        in_epoch = np.concatenate([_NO_SAMPLES, *delivered.get(epoch, [])])
        differences = _differences(in_epoch, instead.get(epoch, {}), num_samples)
        problems += [f"epoch {epoch}: {text}" for text in differences]
    num_void = sum(len(part.batches) for part in parts) - num_batches
    counts = f"{num_batches} batches count, {num_void} were superseded by restarts"
    notes.insert(0, f"{len(ledgers)} ledger{'s' * (len(ledgers) > 1)}: {counts}")
    if not problems:
        named = listed(which) if len(which) <= _MOST_NAMED else f"{min(which)} .. {max(which)}"
        notes.append(
            f"Each of the {num_samples} samples was delivered exactly once in each of the epochs {named}."
        )
    return Certificate(tuple(problems), tuple(notes))


def _checked(value: object, name: str) -> int:
    return whole_number(value, name, at_least=0, at_most=MOST_SAMPLES)


def _limit(part: LedgerPart, others: Iterable[LedgerPart], problems: list[str]) -> tuple[float, float]:
    """The position from which a part is void, by those that were begun after it."""
    limit: tuple[float, float] = (math.inf, 0)
    for later in others:
        if later.begin != STATE or (later.shards == part.shards and later.shard != part.shard):
            continue
        if part.end_ns <= later.time_ns:
            limit = min(limit, (later.epoch, later.batch))
        else:
            problems.append(
                f"shard {part.shard} still delivered after it had gone on from a state elsewhere: both went on at "
                f"the same time ({part.path} and {later.path}), so neither supersedes the other"
            )
    return limit


def _differences(delivered: npt.NDArray[Any], instead: Mapping[int, int], num_samples: int) -> Iterator[str]:
    """Say which samples of an epoch were not delivered once."""
    indices, counts = np.unique(delivered, return_counts=True)
    is_inside = (indices >= 0) & (indices < num_samples)
    if not is_inside.all():
        yield f"not in the data set of {num_samples} samples: {listed(indices[~is_inside].tolist())}"
    indices, counts = indices[is_inside], counts[is_inside]
    num_missing = num_samples - len(indices)
    if num_missing:
        present = {*indices.tolist()}
        missing = itertools.islice((index for index in range(num_samples) if index not in present), _MOST_NAMED)
        texts = [f"{each} (sample {instead[each]} in its place)" if each in instead else each for each in missing]
        more = f" and {num_missing - len(texts)} more" if num_missing > len(texts) else ""
        yield f"missing: {listed(texts)}{more}"
    for count in np.unique(counts[counts > 1]).tolist():
        often = "twice" if count == 2 else f"{count} times"
        yield f"delivered {often}: {listed(indices[counts == count].tolist())}"
