# SPDX-License-Identifier: Apache-2.0
"""What the pool and its workers send to each other: a task for each batch, and one answer to it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import attrs

from ..draws.keyed_draws import SamplePlace
from ..faults.fault_policy import Stage
from .reports import WorkerReport

Position: TypeAlias = tuple[int, int]
"""Epoch, and batch in it, as the input counts them."""

_next_number = functools.partial(next, itertools.count())


@attrs.define(eq=False)
class Task:
    """A batch that is to be loaded.

    Attributes:
        position: Which one.
        places: Places of its samples; None where only the input knows them.
        instead: Samples that take the place of planned ones, by number in the batch: the index in the data set, or
            None if the sample is left out.
        number: Distinguishes tasks for the same batch; answers carry it.
    """

    position: Position
    places: Sequence[SamplePlace] | None = None
    instead: Mapping[int, int | None] = attrs.Factory(dict)
    number: int = attrs.field(factory=_next_number)

    def sample_index(self, number: int) -> int | None:
        """Index in the data set of the sample with a number in the batch; None if it is not known."""
        if self.instead.get(number) is not None:
            return self.instead[number]
        if self.places is None or not 0 <= number < len(self.places):
            return None
        return self.places[number].sample_index


class Work(NamedTuple):
    """What a worker has done, for one batch or added up.

    Attributes:
        reading_ns: Time in which it has read samples.
        steps_ns: Time in steps on arrays, and in random draws for steps of the graph.
        packing_ns: Time in which it has made batches of samples.
        num_samples: Samples.
        num_bytes: Bytes that it has sent to the graph.
        num_batches: Batches.
        num_frames: Frames of videos in these samples.
        num_decoded_frames: Frames that were decoded for them, or will be in the graph.
        cpu_ns: Processor time of the process.
        each_step_ns: Time in each step on arrays.
    """

    reading_ns: int = 0
    steps_ns: int = 0
    packing_ns: int = 0
    num_samples: int = 0
    num_bytes: int = 0
    num_batches: int = 0
    num_frames: int = 0
    num_decoded_frames: int = 0
    cpu_ns: int = 0
    each_step_ns: tuple[int, ...] = ()

    def plus(self, other: Work) -> Work:
        """Add the work of another batch."""
        of_steps, more = self.each_step_ns, other.each_step_ns
        sums = map(int.__add__, self[:-1], other[:-1])
        return Work._make((*sums, tuple(map(int.__add__, of_steps, more)) if of_steps else more))


@attrs.define(eq=False)
class Loaded:
    """A batch that was loaded.

    Attributes:
        number: Of the task.
        outputs: For each output of the source one array with the entries of the batch as first axis, or a list of
            arrays; on its way, what the receiver makes them of.
        numbers: Numbers in the batch of the samples that it has, in order.
        work: What it has taken.
        indices: Indices of the samples, where an input without places knows them.
        owner: Which worker has its memory, and what of that; None where nothing is to be given back.
    """

    number: int
    outputs: Any
    numbers: Sequence[int]
    work: Work = attrs.Factory(Work)
    indices: Sequence[int] | None = None
    owner: Any = None


@attrs.define(eq=False)
class Failed:
    """A batch that was not loaded.

    Attributes:
        number: Of the task.
        report: What has failed, for people.
        sample: Number in the batch of the sample that has failed; None if it was none.
        stage: Where it has failed.
        reason: Why, in a line.
        file: Where the sample comes from, as far as the provider knows.
        cause: The exception, where it was raised in the main process.
    """

    number: int
    report: WorkerReport
    sample: int | None = None
    stage: Stage = "loading"
    reason: str = ""
    file: str = ""
    cause: BaseException | None = None


@attrs.define(eq=False)
class Ended:
    """The epoch has no such batch.

    Attributes:
        number: Of the task.
    """

    number: int


Answer: TypeAlias = Loaded | Failed | Ended
