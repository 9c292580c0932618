# SPDX-License-Identifier: Apache-2.0
"""Check of data providers against their contract."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import filled
from ..providers.data_provider import DataProvider
from ..providers.sample_loading import SampleLoader
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.conversion import as_numpy
from ..sample_data.formats import describe_difference
from ..sample_data.names import described_together
from ..sampling.plans.tracks import PlannedBatch
from ..sampling.random_access_sampler import RandomAccessSampler
from ..sources.sampler_inputs import SamplerInputCallable
from .rule_check import Finding, RuleCheck, in_samples, sample_differences


def check_provider(
    provider: DataProvider,
    *,
    num_samples: int = 5,
    num_workers: int = 2,
    start_method: str = "forkserver",
    seed: int = 0,
) -> str:
    """Check a provider against the contract of data providers, by loading some samples of it.

    The rules:

    *   There is at least one sample.
    *   The blueprint is a new, equal object each time, even if an earlier one was changed.
    *   The first, the last and some other samples have the format of the blueprint; all their fields are set, with
        arrays of the declared types and numbers of dimensions.
    *   Loading a sample again gives a new, equal object, even if the first one was changed.
    *   `DataProvider.load_batch` and `DataProvider.load_fields` deliver what `DataProvider.get_data` delivers.
    *   The provider can be pickled, and the copy delivers the same; also in worker processes.

    * Rules of the provider itself (`DataProvider.contract_findings`), e.g. about driving data.

    Args:
        provider: The provider.
        num_samples: How many samples to load.
        num_workers: Number of worker processes; with 0, nothing is loaded in workers.
        start_method: How they start, ``"forkserver"``, ``"spawn"`` or ``"fork"``.
        seed: Seed for the choice of the samples.

    Returns:
        The figures of the provider's own rules, a line each; "" without such rules.

    Raises:
        ContractError: Also an AssertionError; lists each broken rule with its cause.
    """
    check = _ProviderCheck(provider)
    with check.reporting("the number of samples must be known"):
        count = provider.get_number_of_samples()
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            check.break_rule("the number of samples must be a whole number of at least 1", f"got {count!r}")
            count = 0
        indices = _chosen(int(count), num_samples, seed)
        if check.blueprint_rule() and indices:
            samples = check.sample_rules(indices)
            if len(samples) == len(indices):
                check.own_rules(indices, samples, seed)
                check.batch_rule(indices, samples)
                check.fields_rule(indices, samples)
                check.pickle_rule(indices, samples)
                if num_workers > 0 and not check.broken:
                    check.worker_rule(indices, samples, num_workers, start_method)
    check.raise_broken(provider)
    return "\n".join(check.figures)


def _chosen(count: int, num_samples: int, seed: int) -> list[int]:
    """Indices of the first, the last and some other samples."""
    others = random.Random(seed).sample(range(count), min(count, num_samples))
    return [*dict.fromkeys([0, count - 1, *others])][: max(num_samples, 1)] if count else []


@attrs.define
class _ProviderCheck(RuleCheck):
    kind = "data providers"
    provider: DataProvider

    def blueprint_rule(self) -> bool:
        with self.reporting("there must be a blueprint"):
            first = self.provider.sample_data_structure
            if not isinstance(first, SampleDataGroup):
                self.break_rule("the blueprint must be a SampleDataGroup", f"got {type(first).__name__}")
                return False
            before = first.format
            for name in [*first]:
                first.remove_field(name)
            again = self.provider.sample_data_structure.format
            if again == before:
                return True
            rule = "the blueprint must be the same each time, a new object"
            self.break_rule(rule, describe_difference(before, again))
        return False

    def sample_rules(self, indices: Sequence[int]) -> list[SampleDataGroup]:
        blueprint = self.provider.sample_data_structure
        samples: list[SampleDataGroup] = []
        misfits: dict[int, list[str]] = {}
        changes: dict[int, list[str]] = {}
        for index in indices:
            with self.reporting(f"sample {index} must be loaded"):
                sample = self.provider.get_data(index)
                misfits[index] = _misfits(blueprint, sample)
                if not misfits[index]:
                    kept = filled(sample.get_empty_like_self(), map(np.array, map(as_numpy, sample.get_data())))
                    _spoil(sample)
                    changes[index] = sample_differences(kept, self.provider.get_data(index))
                    samples.append(kept)
        self.take(Finding("a sample must fit the blueprint", problems=in_samples(misfits)))
        again = in_samples(changes)
        self.take(Finding("a sample that is loaded again must be the same, a new object", problems=again))
        return samples

    def own_rules(self, indices: Sequence[int], samples: Sequence[SampleDataGroup], seed: int) -> None:
        with self.reporting("the rules of the provider itself must be checked"):
            for finding in self.provider.contract_findings(dict(zip(indices, samples, strict=True)), seed):
                self.take(finding)

    def batch_rule(self, indices: Sequence[int], samples: Sequence[SampleDataGroup]) -> None:
        rule = "load_batch must deliver what get_data delivers"
        with self.reporting(rule):
            loaded = [*self.provider.load_batch([*indices, indices[0]], range(len(indices) + 1))]
            if len(loaded) != len(indices) + 1:
                self.break_rule(rule, f"got {len(loaded)} samples for {len(indices) + 1} indices")
                return
            self.compare(rule, zip([*indices, indices[0]], [*samples, samples[0]], loaded, strict=True))

    def fields_rule(self, indices: Sequence[int], samples: Sequence[SampleDataGroup]) -> None:
        rule = "load_fields must deliver what get_data delivers"
        with self.reporting(rule):
            numbers = [*reversed(range(len(indices))), 0]
            in_order, expected = [indices[number] for number in numbers], [samples[number] for number in numbers]
            paths = expected[0].format.flat_paths
            columns = SampleLoader(self.provider).load_fields(dict.fromkeys(paths, in_order))
            rows = zip(*(columns[path] for path in paths), strict=True)
            found = [filled(expected[0].get_empty_like_self(), row) for row in rows]
            self.compare(rule, zip(in_order, expected, found, strict=True))

    def pickle_rule(self, indices: Sequence[int], samples: Sequence[SampleDataGroup]) -> None:
        with self.reporting("the provider must be picklable"):
            copy = pickle.loads(pickle.dumps(self.provider))
            rule = "a pickled copy must deliver the same"
            copies = [copy.get_data(index) for index in indices]
            self.compare(rule, zip(indices, samples, copies, strict=True))

    def worker_rule(
        self, indices: Sequence[int], samples: Sequence[SampleDataGroup], num_workers: int, start_method: str
    ) -> None:
        rule = "worker processes must deliver the same"
        with self.reporting(rule):
            data_input = SamplerInputCallable(self.provider, _Chosen(indices))
            pipeline: Any = PipelineDefinition(data_input).get_dali_pipeline(
                num_threads=1, py_num_workers=num_workers, py_start_method=start_method
            )
            with contextlib.closing(pipeline):
                loaded = [
                    filled(self.provider.sample_data_structure, (np.array(each.at(0)) for each in pipeline.run()))
                    for _ in indices
                ]
            self.compare(rule, zip(indices, samples, loaded, strict=True))


class _Chosen(RandomAccessSampler):
    """Chosen samples, in batches of one."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(1)
        self._indices = indices

    def num_batches(self, epoch: int) -> int:
        return len(self._indices)

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        return PlannedBatch([self._indices[batch]])


def _misfits(blueprint: SampleDataGroup, sample: object) -> list[str]:
    """Describe what does not fit the blueprint, in a line each."""
    if not isinstance(sample, SampleDataGroup):
        return [f"must be a SampleDataGroup, got {type(sample).__name__}"]
    if not sample.type_matches(blueprint):
        return describe_difference(blueprint.format, sample.format).splitlines()
    found: list[tuple[FieldPath, str]] = []
    fields = zip(blueprint.format.flat_paths, blueprint.format.flat_leaves, sample.get_data(), strict=True)
    for path, leaf, value in fields:
        array = as_numpy(value)
        if array is None:
            got = "is not set" if value is None else f"must be an array, got {type(value).__name__}"
            found.append((path, got))
        elif array.dtype != leaf.numpy_dtype:
            found.append((path, f"must be {leaf.numpy_dtype}, got {array.dtype}"))
        elif leaf.ndim is not None and array.ndim != leaf.ndim:
            found.append((path, f"must have {leaf.ndim} dimension(s), got shape {array.shape}"))
    return described_together(found)


def _spoil(sample: SampleDataGroup) -> None:
    """Overwrite the arrays of a sample, then unset its fields, as a step or a user may."""
    for value in sample.get_data():
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = np.zeros((), value.dtype) if value.any() else np.ones((), value.dtype)
    sample.set_data([None] * len(sample.get_data()))
