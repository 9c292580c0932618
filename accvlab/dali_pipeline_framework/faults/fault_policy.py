# SPDX-License-Identifier: Apache-2.0
"""Handling of faults by a loader, and the samples that can take the place of one that has failed.

The order of substitutes is arithmetic on the plan, the same on all shards::

    sequences and clips   the neighbouring frames of the same slot:   k-1, k+1, k-2, k+2          then as below
    other samples         what is at other positions of the same epoch, chosen by a key of
                          (seed, epoch, sample, visit, attempt): samples are chosen as often as the plan has them
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, get_args

import attrs

from ..checks import choice, file_path, file_paths, number, probability, shown, whole_number
from ..draws.keyed_draws import SamplePlace, derive_key
from ..errors import SettingError
from ..sampling.plans.tracks import PlannedBatch
from ..sampling.random_access_sampler import RandomAccessSampler

SamplePolicy: TypeAlias = Literal["raise", "skip", "replace"]
"""What becomes of samples that fail, see `FaultPolicy`."""


@attrs.frozen(kw_only=True, init=False)
class FaultPolicy:
    """What a loader does about faults: samples that cannot be loaded, and workers that die or stand still.

    Without one, the first fault is raised. See the page on faults.

    Attributes:
        samples: What becomes of a sample that cannot be loaded or decoded. ``"raise"``: an error, after which the
            loader can go on behind its batch. ``"skip"``: the batch has one sample less. ``"replace"``: another
            sample takes its place.
        max_failed: How many different samples may fail; with one more, the run ends with a summary.
        max_failed_share: Which share of the samples that were delivered may fail, in [0, 1]; as long as fewer than
            1,000 were, that share of 1,000.
        quarantine: A file to which a line of JSON is added for each sample that fails.
        exclude: Files of this kind, whose samples are taken for failed without trying them; not with ``samples``
            ``"raise"``.
        restarts: How many times, in all, workers are started again after one was killed, ended or stood still, or
            the pipeline was lost otherwise; the loop goes on with exactly the batch that was due. A sample that
            has ended two workers is one that cannot be loaded.
        blocked_after: Seconds after which a worker that loads one sample counts as standing still, and is killed.
            Its set-up is watched as well: how long the input or the steps are unpickled, or ``worker_init_fn``
            runs, without another module being imported. None: never.
        stacks_after: Seconds of waiting for a batch after which the stacks of all workers and the state of the
            queues are logged. None: never.

    Raises:
        SettingError: A value is out of its range, or two do not go together.

    Example:
        >>> FaultPolicy(samples="replace", max_failed=100, quarantine="failed.jsonl").samples
        'replace'
    """

    samples: SamplePolicy
    max_failed: int | None
    max_failed_share: float | None
    quarantine: str | None
    exclude: tuple[str, ...] | None
    restarts: int
    blocked_after: float | None
    stacks_after: float | None

    def __init__(
        self,
        *,
        samples: SamplePolicy = "raise",
        max_failed: int | None = None,
        max_failed_share: float | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        exclude: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        restarts: int = 0,
        blocked_after: float | None = None,
        stacks_after: float | None = 120.0,
    ) -> None:
        """Check the settings, see the class."""
        self.__attrs_init__(
            samples=choice(samples, "samples", get_args(SamplePolicy)),
            max_failed=None if max_failed is None else whole_number(max_failed, "max_failed", at_least=0),
            max_failed_share=(
                None if max_failed_share is None else probability(max_failed_share, "max_failed_share")
            ),
            quarantine=None if quarantine is None else file_path(quarantine, "quarantine"),
            exclude=None if exclude is None else file_paths(exclude, "exclude"),
            restarts=whole_number(restarts, "restarts", at_least=0),
            blocked_after=None if blocked_after is None else number(blocked_after, "blocked_after", above=0),
            stacks_after=None if stacks_after is None else number(stacks_after, "stacks_after", above=0),
        )
        if self.samples != "raise":
            return
        for name in ("exclude", "max_failed", "max_failed_share"):
            if getattr(self, name) is not None:
                raise SettingError(
                    f"`{name}` does not go with samples='raise', where the first sample that fails is raised. Say "
                    f"what becomes of such samples: 'replace' or 'skip'. (To raise the first one beside "
                    f"those of `exclude`: samples='replace', max_failed=0, exclude=...)"
                )

    @classmethod
    def of(cls, faults: FaultPolicy | SamplePolicy | None) -> FaultPolicy:
        """Get the policy of an argument ``faults``: a policy, what becomes of failed samples, or None.

        Raises:
            SettingError: It is something else.
        """
        if faults is None or isinstance(faults, FaultPolicy):
            return faults or cls()
        if not isinstance(faults, str):
            raise SettingError(
                f"`faults` must be a FaultPolicy, or 'raise', 'skip' or 'replace', got {shown(faults)}."
            )
        return cls(samples=choice(faults, "faults", get_args(SamplePolicy)))


_NEIGHBOURS = (-1, 1, -2, 2)
_BATCHES_OF_ENDLESS = 1024
_MOST_POSITIONS = 64

MOST_SUBSTITUTES = 24
"""How many samples are tried in the place of one."""


def substitutes(sampler: RandomAccessSampler, place: SamplePlace, num_samples: int) -> Iterator[int]:
    """Get the indices of the samples to try in the place of one that has failed, in order."""
    chosen = {place.sample_index}
    for index in itertools.chain(_beside(sampler, place), _elsewhere(sampler, place, num_samples)):
        if index in chosen:
            continue
        chosen.add(index)
        yield index
        if len(chosen) > MOST_SUBSTITUTES:
            return


def _beside(sampler: RandomAccessSampler, place: SamplePlace) -> Iterator[int]:
    """The frames beside it of what its slot plays."""
    if place.sequence < 0 and place.clip < 0:
        return
    num_batches = sampler.num_batches(place.epoch)
    first = sampler.num_batches_before(place.epoch)
    for distance in _NEIGHBOURS:
        batch = place.batch + distance
        if batch < first or (num_batches is not None and batch >= num_batches):
            continue
        planned = sampler.plan_batch(place.epoch, batch)
        same = (planned.sequence[place.slot], planned.clip[place.slot]) == (place.sequence, place.clip)
        if same and not planned.is_padding[place.slot]:
            yield int(planned.indices[place.slot])


def _elsewhere(sampler: RandomAccessSampler, place: SamplePlace, num_samples: int) -> Iterator[int]:
    seed = getattr(sampler, "seed", 0)
    first = sampler.num_batches_before(place.epoch)
    num_batches = None if sampler.must_be_played else sampler.num_batches(place.epoch)
    if num_batches is None:
        num_batches = _BATCHES_OF_ENDLESS
    for attempt in range(_MOST_POSITIONS):
        key = derive_key("substitute", seed, place.epoch, place.sample_index, place.visit, attempt)
        if sampler.must_be_played:
            yield key % num_samples
            continue
        batch, slot = divmod(key % ((num_batches - first) * sampler.total_batch_size), sampler.total_batch_size)
        planned: PlannedBatch = sampler.plan_batch(place.epoch, first + batch)
        if not planned.is_padding[slot]:
            yield int(planned.indices[slot])
