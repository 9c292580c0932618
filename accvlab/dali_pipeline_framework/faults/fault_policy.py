# SPDX-License-Identifier: Apache-2.0
"""Handling of faults by a loader, and the samples that have failed: which, why, and files that list them."""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import importlib.util
import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import attrs
from attrs.validators import optional

from ..checks import bullets, choice, file_path, file_paths, flag, number, probability, shown, valid, whole_number
from ..errors import MissingPackageError, QuarantineError, SettingError, TooManyFailedError, reason_of
from ..limits.file_limits import open_table
from ..unknown_arguments import explains_unknown_arguments

_logger = logging.getLogger(__name__)

SamplePolicy: TypeAlias = Literal["raise", "skip", "replace"]
"""Handling of samples that fail, see `FaultPolicy`."""


def _quarantine(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else file_path(path, "quarantine")


def _exclude(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None) -> tuple[str, ...] | None:
    return None if paths is None else file_paths(paths, "exclude")


@explains_unknown_arguments
@attrs.frozen(kw_only=True)
class FaultPolicy:
    """Handling of faults by a loader: samples that cannot be loaded, and workers that die or are blocked.

    Without one, the first fault is raised. See the page on faults.

    Attributes:
        samples: Handling of a sample that cannot be loaded or decoded. ``"raise"``: an error; the loader can
            continue with the next batch. ``"skip"``: the batch has one sample less; this needs a sampler of single
            samples, with ``last_batch="partial"``. ``"replace"``: another sample takes its place.
        max_failed: Number of different samples that may fail on a rank; one more ends the run with a summary.
            Failed samples in a loaded state count, here and for ``max_failed_share``.
        max_failed_share: Largest ratio of failed samples to delivered ones, in [0, 1]. Until 1,000 samples are
            delivered, the ratio is computed as if 1,000 were.
        quarantine: File to which a line of JSON is added for each failed sample. If writing fails, e.g. on a full
            disk, an error is logged, and the loop goes on.
        exclude: Files written by ``quarantine``; their samples are handled like failed ones, untried. Not
            with ``samples="raise"``.
        restarts: Number of restarts in total. A restart replaces a worker that was killed, ended or hung, or tries
            a batch again that failed through no fault of a sample. The loop continues with exactly the batch that
            was due. Workers that are lost together count once. A sample that has ended two workers counts as
            failed.
            None: 0; but actors of a Ray cluster, which may lose machines at any time, are replaced without limit.
        blocked_after: Seconds after which a worker that is busy with one sample counts as hung, and is killed. The
            limit holds for its set-up as well: for unpickling the input or the steps, for ``worker_init_fn``, and
            for each imported module (at least 300 s for interpreter and main script). None: never.
        checks_images: Whether workers check image files for damage before the graph decodes them. DALI decodes
            JPEG files with changed bytes without an error; decoders in the workers, and this check, notice most
            changes. The check takes about half as long as decoding on the CPU, and needs the extra ``cpu``.
        stacks_after: Seconds of waiting for a batch after which the stacks of all workers and the state of the
            queues are logged. None: never.

    Raises:
        SettingError: A value is out of its range, or two do not go together.

    Example:
        >>> FaultPolicy(samples="replace", max_failed=100, quarantine="failed.jsonl").samples
        'replace'
    """

    samples: SamplePolicy = attrs.field(default="raise", validator=valid(choice, allowed=get_args(SamplePolicy)))
    max_failed: int | None = attrs.field(default=None, validator=optional(valid(whole_number, at_least=0)))
    max_failed_share: float | None = attrs.field(default=None, validator=optional(valid(probability)))
    quarantine: str | None = attrs.field(default=None, converter=_quarantine)
    exclude: tuple[str, ...] | None = attrs.field(default=None, converter=_exclude)
    restarts: int | None = attrs.field(default=None, validator=optional(valid(whole_number, at_least=0)))
    blocked_after: float | None = attrs.field(default=None, validator=optional(valid(number, above=0)))
    checks_images: bool = attrs.field(default=False, validator=valid(flag))
    stacks_after: float | None = attrs.field(
        default=cast(float | None, 120.0), validator=optional(valid(number, above=0))
    )

    def __attrs_post_init__(self) -> None:
        if self.checks_images and importlib.util.find_spec("simplejpeg") is None:
            raise MissingPackageError(
                "`checks_images=True` needs simplejpeg, which is not installed: pip install simplejpeg."
            )
        if self.samples != "raise":
            return
        for name in ("exclude", "max_failed", "max_failed_share"):
            if getattr(self, name) is not None:
                raise SettingError(
                    f"`{name}` does not go with samples='raise', which raises the first failure. Choose 'replace' "
                    f"or 'skip'. (To raise the first failure that is not in `exclude`: samples='replace', "
                    f"max_failed=0, exclude=...)"
                )

    @classmethod
    def of(cls, faults: FaultPolicy | SamplePolicy | None) -> FaultPolicy:
        """Get the policy of an argument ``faults``: a policy, the handling of failed samples, or None.

        Raises:
            SettingError: It is something else.
        """
        if faults is None or isinstance(faults, FaultPolicy):
            return faults or cls()
        if not isinstance(faults, str):
            rule = "a FaultPolicy, or 'raise', 'skip' or 'replace'"
            raise SettingError(f"`faults` must be {rule}, got {shown(faults)}.")
        return cls(samples=choice(faults, "faults", get_args(SamplePolicy)))


_LONGEST_TEXT = 2000
_COUNTS, _TEXTS = ("epoch", "batch"), ("file", "reason", "step", "host")


@attrs.frozen
class QuarantineEntry:
    """A line of a file that lists failed samples.

    Attributes:
        sample_index: Index of the sample in the data set.
        file: Where it comes from, as far as the provider knows.
        reason: Why it failed.
        step: Where it failed: ``"loading"``, ``"checks"``, ``"steps"`` or ``"graph"``.
        epoch: Epoch in which it failed; None if no loop found it, e.g. in a line that a check or the user wrote.
        batch: Batch of the epoch.
        host: Name of the machine.
    """

    sample_index: int
    file: str = ""
    reason: str = ""
    step: str = ""
    epoch: int | None = None
    batch: int | None = None
    host: str = ""


class Quarantine:
    """Appends lines to a file, each in one piece, also where several processes do so."""

    def __init__(self, path: str) -> None:
        """Check that the file can be written.

        Raises:
            QuarantineError: It cannot.
        """
        self._path = path
        self._host = socket.gethostname()
        self._append(b"")

    def add(self, failed: FailedSample) -> None:
        """Append a line for a sample."""
        line: dict[str, Any] = {
            "sample": failed.sample_index,
            "file": failed.file[:_LONGEST_TEXT],
            "reason": failed.reason[:_LONGEST_TEXT],
            "step": failed.stage,
            "epoch": failed.epoch,
            "batch": failed.batch,
            "host": self._host,
        }
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        try:
            # Not waiting: else a pipe that nobody reads would be waited for without end.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            file = os.open(self._path, flags, 0o666)
            try:
                if line:
                    # One write to the end of a file is whole on local disks; network file systems need the lock.
                    with _locked(file):
                        written = os.write(file, line)
                        if written < len(line):  # else half a line would stay, which nobody can read
                            os.ftruncate(file, max(0, os.fstat(file).st_size - written))
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(file)
        except OSError as error:
            why = f"{reason_of(error)}. Make room, or name another file: `FaultPolicy(quarantine=...)`."
            raise QuarantineError(f"The list of failed samples {self._path!r} cannot be written: {why}") from error


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
    except OSError:  # some network file systems have no locks
        yield
        return
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


def read_quarantine(path: str) -> list[QuarantineEntry]:
    """Read a file that lists failed samples.

    Each line is a JSON object with the fields of `QuarantineEntry`, ``sample_index`` as ``"sample"``. Only
    ``"sample"`` is required, so such files can be written by hand. Empty lines are skipped.

    Raises:
        QuarantineError: The file cannot be read, or a line is not of this form; the message names the line.
    """
    try:
        with open_table(file_path(path, "path")) as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise QuarantineError(
            f"The list of failed samples {path!r} cannot be read: {reason_of(error)}."
        ) from error
    entries = []
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(_entry(line))
        except ValueError as error:
            is_cut = line_number == len(lines)
            advice = " The file ends in the middle of a line: was writing it interrupted?" if is_cut else ""
            raise QuarantineError(f"{path}, line {line_number}: {error}{advice}") from None
    return entries


def _entry(line: bytes) -> QuarantineEntry:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON, got {shown(line)} ({error}).") from None
    if not isinstance(fields, dict):
        raise ValueError(f'must be an object such as {{"sample": 7}}, got {shown(fields)}.')
    if "sample" not in fields:
        raise ValueError(f'must have "sample", the index of a sample; has {", ".join(fields) or "nothing"}.')
    for name in ("sample", *_COUNTS):
        value = fields.get(name, 0)
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f'"{name}" must be a whole number of at least 0, got {shown(value)}.')
    for name in _TEXTS:
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f'"{name}" must be a text, got {shown(fields[name])}.')
    return QuarantineEntry(
        fields["sample"], **{name: fields[name] for name in (*_COUNTS, *_TEXTS) if name in fields}
    )


Stage: TypeAlias = Literal["loading", "checks", "steps", "graph"]

OUTCOMES = {"raise": "raised", "skip": "skipped", "replace": "another sample in its place"}
"""Outcome of a failed sample whose substitute is not known, by policy."""


_MOST_LOGGED = 10
_FEW = 1000  # of so many samples the share is taken at least
_MOST_REASONS = 5
_MOST_SHOWN = 10


@attrs.frozen
class FailedSample:
    """A sample that has failed.

    Attributes:
        sample_index: Its index in the data set.
        reason: Why, in a line.
        stage: Where: ``"loading"`` (``get_data`` of the provider), ``"checks"`` (it does not fit the blueprint, or
            the others of its batch), ``"steps"`` (on arrays, in a worker) or ``"graph"``.
        outcome: How it was handled, e.g. ``"sample 7 in its place"``.
        file: Where it comes from, as far as the provider knows (`DataProvider.describe_sample`).
        epoch: Epoch in which the failure was noticed first; always 0 with an endless sampler.
        batch: Batch of the epoch.
        slot: Its place in the batch of this shard, from 0; not the slot in the total batch.
        substitute: Index of the sample that was delivered in its place; None if there was none.
        message: The full message of the failure, with the traceback.
    """

    sample_index: int
    reason: str
    stage: Stage
    outcome: str
    file: str = ""
    epoch: int = 0
    batch: int = 0
    slot: int = 0
    substitute: int | None = None
    message: str = attrs.field(default="", repr=False)


class FailedSamples:
    """Keeps the samples that have failed, in the order in which their batches were delivered.

    Attributes:
        policy: How they are handled.
        not_tried: Those that are not tried (again), and why: they are on an exclusion list, or failed in the
            graph.
        num_delivered: Samples that were delivered so far.
        by_index: The samples that have failed, by index.
        num_failed: How many have failed, with those before a state that was loaded.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        """Read the exclusion lists.

        Raises:
            QuarantineError: One cannot be read.
        """
        self.policy = policy
        self.not_tried: dict[int, str] = {}
        self.num_delivered = 0
        for path in policy.exclude or ():
            for entry in read_quarantine(path):
                self.not_tried.setdefault(entry.sample_index, f"excluded: {entry.reason}")
        self.num_excluded = len(self.not_tried)
        self._excluded = frozenset(self.not_tried)
        self.by_index: dict[int, FailedSample] = {}
        self.num_failed = 0
        self._before: frozenset[int] = frozenset()
        self._quarantine = None if policy.quarantine is None else Quarantine(policy.quarantine)

    @property
    def samples(self) -> tuple[FailedSample, ...]:
        """The samples that have failed, each once; without those that were excluded from the start."""
        return tuple(self.by_index.values())

    def is_listed(self, index: int) -> bool:
        """Whether users can know that a sample is left out: it was excluded, or is listed as failed."""
        return index in self._excluded or index in self.by_index

    def for_state(self) -> tuple[int, ...]:
        """Indices of the samples that have failed, where a budget counts them."""
        if self.policy.max_failed is None and self.policy.max_failed_share is None:
            return ()
        return tuple(sorted(map(int, self._before | self.by_index.keys())))

    def resume(self, failed: Iterable[int], num_delivered: int) -> None:
        """Count on after a state, up to which these samples had failed, and so many were delivered."""
        self._before, self.num_delivered = frozenset(failed), num_delivered
        self.num_failed = len(self._before | self.by_index.keys())

    def found(self, failed: FailedSample) -> None:
        """Note a sample, and log it; nothing happens where it is known."""
        if failed.sample_index in self.by_index:
            return
        self.by_index[failed.sample_index] = failed
        self.num_failed += failed.sample_index not in self._before
        file = f" ({failed.file})" if failed.file else ""
        is_error = failed.outcome == OUTCOMES["raise"]  # then the error says it all
        level = logging.INFO if is_error or len(self.by_index) > _MOST_LOGGED else logging.WARNING
        text = "Sample %d%s failed: %s [%s]"
        _logger.log(level, text, failed.sample_index, file, failed.reason, failed.outcome)
        if self._quarantine is None:
            return
        try:
            self._quarantine.add(failed)
        except QuarantineError as error:
            self._quarantine = None
            _logger.error("%s Nothing more is written to it; `failed_samples` of the loader has all.", error)

    def delivered(self, failures: Sequence[FailedSample]) -> None:
        """Note what has failed in a batch that was delivered.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        for each in failures:
            self.found(each)
        self.require_budget()

    def require_budget(self) -> None:
        """Raise a `TooManyFailedError` where more samples have failed than may."""
        most, share = self.policy.max_failed, self.policy.max_failed_share
        if not self.num_failed:  # the usual case, with each batch
            return
        num_delivered = max(self.num_delivered, _FEW)
        limits = []
        if most is not None and self.num_failed > most:
            limits.append(f"max_failed={most}")
        if share is not None and self.num_failed > share * num_delivered:
            limits.append(f"max_failed_share={share:g} of {num_delivered} samples")
        if limits:
            before, text = self.num_failed - len(self.by_index.keys() - self._before), ""
            if before:
                text = f"\n{before} had failed before the state was saved with which this run goes on."
            error = TooManyFailedError(f"{self.summary()}{text}\nMore failed than allowed: {', '.join(limits)}.")
            error.failed_samples = self.samples
            raise error

    def summary(self) -> str:
        """Say in a few lines how many samples have failed, and why."""
        return summary_of(self.by_index.values())


def summary_of(failed: Iterable[FailedSample]) -> str:
    """Say in a few lines how many samples have failed, and why."""
    samples = list(failed)
    if not samples:
        return "No sample has failed."
    kinds = collections.Counter(sample.reason.partition(":")[0] for sample in samples)
    reasons = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common(_MOST_REASONS))
    lines = [
        f"sample {sample.sample_index}{f' ({sample.file})' if sample.file else ''}: {sample.reason}"
        for sample in samples
    ]
    verb = "sample has" if len(samples) == 1 else "samples have"
    return f"{len(samples)} {verb} failed ({reasons}):\n{bullets(lines, _MOST_SHOWN)}"
