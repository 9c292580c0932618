# SPDX-License-Identifier: Apache-2.0
"""What is known in this process of samples that have failed: which, why, and how many there may be."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from ..checks import bullets
from ..errors import TooManyFailedError
from ..url_secrets import without_secrets
from .fault_policy import FaultPolicy
from .quarantine import Quarantine, read_quarantine

Stage: TypeAlias = Literal["loading", "checks", "steps", "graph"]

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
        outcome: What has become of it, e.g. ``"sample 7 in its place"``.
        file: Where it comes from, as far as the provider tells (`DataProvider.describe_sample`).
        epoch: Epoch in which that was noticed first.
        batch: Batch of the epoch.
        slot: Its number in the batch of this shard.
        substitute: Index of the sample that was delivered in its place; None for none.
        message: All that is to say about it, with the traceback.
    """

    sample_index: int
    reason: str = attrs.field(converter=without_secrets)
    stage: Stage
    outcome: str
    file: str = attrs.field(default="", converter=without_secrets)
    epoch: int = 0
    batch: int = 0
    slot: int = 0
    substitute: int | None = None
    message: str = attrs.field(default="", repr=False, converter=without_secrets)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> FailedSample:
        """Make it of a record that a worker wrote."""
        return cls(**{field.name: record[field.name] for field in attrs.fields(cls) if field.name in record})


class FailedSamples:
    """Keeps the samples that have failed, in the order in which their batches were delivered.

    Attributes:
        policy: What becomes of them.
        not_tried: Those that are not tried (again), and why: they stand on an exclusion list, or failed in the
            graph.
        num_delivered: Samples that were delivered so far.
        by_index: The samples that have failed, by index.
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
        self.by_index: dict[int, FailedSample] = {}
        self._quarantine = None if policy.quarantine is None else Quarantine(policy.quarantine)

    @property
    def samples(self) -> tuple[FailedSample, ...]:
        """The samples that have failed, each once; without those that were excluded from the start."""
        return tuple(self.by_index.values())

    def note(self, failed: FailedSample) -> None:
        """Note a sample; nothing happens where it is known."""
        if failed.sample_index in self.by_index:
            return
        self.by_index[failed.sample_index] = failed
        if self._quarantine is not None:
            self._quarantine.add(failed)

    def note_not_to_be_tried(self, failed: FailedSample) -> None:
        """Note a sample that is not tried again."""
        self.not_tried[failed.sample_index] = failed.reason
        self.note(failed)

    def require_budget(self) -> None:
        """Raise a `TooManyFailedError` where more samples have failed than may."""
        most, share = self.policy.max_failed, self.policy.max_failed_share
        if not self.by_index:  # the usual case, with each batch
            return
        num_delivered = max(self.num_delivered, _FEW)
        limits = []
        if most is not None and len(self.by_index) > most:
            limits.append(f"max_failed={most}")
        if share is not None and len(self.by_index) > share * num_delivered:
            limits.append(f"max_failed_share={share:g} of {num_delivered} samples")
        if limits:
            error = TooManyFailedError(f"{self.summary()}\nMore than there may be: {', '.join(limits)}.")
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
