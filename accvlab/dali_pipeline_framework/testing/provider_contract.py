# SPDX-License-Identifier: Apache-2.0
"""Check of data providers against their contract."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import attrs
import numpy as np

from ..checks import whole_number
from ..processing_steps.pipeline_step_base import filled
from ..providers.data_provider import DataProvider, blueprint_of
from ..providers.sample_loading import SampleLoader
from ..sample_data import SampleDataGroup
from ..sample_data.conversion import as_numpy
from ..sample_data.formats import describe_difference
from ..workers.samples import SampleChecker
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
        ContractError: Rules are broken; the message lists each with its cause. Also an AssertionError.
    """
    check = _ProviderCheck(provider)
    indices: list[int] = []
    with check.reporting("the number of samples must be known"):
        count = whole_number(provider.get_number_of_samples(), "get_number_of_samples()", at_least=1)
        indices = _chosen(count, num_samples, seed)
    if check.blueprint_rule() and indices:
        check.sample_rules(indices)
        if len(check.samples) == len(indices):
            check.own_rules(seed)
            check.batch_rule()
            check.fields_rule()
            check.pickle_rule()
            if num_workers > 0 and not check.broken:
                check.worker_rule(num_workers, start_method)
    check.raise_broken(provider)
    return "\n".join(check.figures)


def _chosen(count: int, num_samples: int, seed: int) -> list[int]:
    """Indices of the first, the last and some other samples."""
    others = random.Random(seed).sample(range(count), min(count, num_samples))
    return [*dict.fromkeys([0, count - 1, *others])][: max(num_samples, 1)]


@attrs.define
class _ProviderCheck(RuleCheck):
    kind = "data providers"
    provider: DataProvider
    samples: dict[int, SampleDataGroup] = attrs.field(factory=dict, init=False)  # that fit, by index

    def blueprint_rule(self) -> bool:
        with self.reporting("there must be a blueprint"):
            first = blueprint_of(self.provider)
            before = first.format
            for name in [*first]:
                first.remove_field(name)
            again = self.provider.sample_data_structure.format
            if again == before:
                return True
            rule = "the blueprint must be the same each time, a new object"
            self.break_rule(rule, describe_difference(before, again))
        return False

    def sample_rules(self, indices: Sequence[int]) -> None:
        blueprint = self.provider.sample_data_structure
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
                    self.samples[index] = kept
        self.take(Finding("a sample must fit the blueprint", problems=in_samples(misfits)))
        again = in_samples(changes)
        self.take(Finding("a sample that is loaded again must be equal and a new object", problems=again))

    def own_rules(self, seed: int) -> None:
        with self.reporting("the rules of the provider itself must be checked"):
            for finding in self.provider.contract_findings(self.samples, seed):
                self.take(finding)

    def batch_rule(self) -> None:
        rule = "load_batch must deliver what get_data delivers"
        indices = [*self.samples, min(self.samples)]  # one of them twice
        with self.reporting(rule):
            loaded = [*self.provider.load_batch(indices, range(len(indices)))]
            if len(loaded) == len(indices):
                self.compare(rule, indices, [self.samples[index] for index in indices], loaded)
            else:
                self.break_rule(rule, f"got {len(loaded)} samples for {len(indices)} indices")

    def fields_rule(self) -> None:
        rule = "load_fields must deliver what get_data delivers"
        indices = [*reversed(self.samples), min(self.samples)]
        with self.reporting(rule):
            expected = [self.samples[index] for index in indices]
            paths = expected[0].format.flat_paths
            columns = SampleLoader(self.provider).load_fields(dict.fromkeys(paths, indices))
            rows = zip(*(columns[path] for path in paths), strict=True)
            found = [filled(expected[0].get_empty_like_self(), row) for row in rows]
            self.compare(rule, indices, expected, found)

    def pickle_rule(self) -> None:
        with self.reporting("the provider must be picklable"):
            copies = map(pickle.loads(pickle.dumps(self.provider)).get_data, self.samples)
            self.compare("a pickled copy must deliver the same", self.samples, self.samples.values(), copies)

    def worker_rule(self, num_workers: int, start_method: str) -> None:
        rule = "worker processes must deliver the same"
        with self.reporting(rule), ProcessPoolExecutor(num_workers, get_context(start_method)) as workers:
            loaded = workers.map(self.provider.get_data, self.samples, chunksize=2)
            self.compare(rule, self.samples, self.samples.values(), loaded)


def _misfits(blueprint: SampleDataGroup, sample: object) -> list[str]:
    """Describe what does not fit the blueprint, in a line each."""
    if not isinstance(sample, SampleDataGroup):
        return [f"must be a SampleDataGroup, got {type(sample).__name__}"]
    if not sample.type_matches(blueprint):
        return describe_difference(blueprint.format, sample.format).splitlines()
    try:
        SampleChecker(blueprint.format, "get_data").check([*sample.get_data()])
    except ValueError as error:
        return [line.removeprefix("  - ") for line in str(error).splitlines()]
    return []


def _spoil(sample: SampleDataGroup) -> None:
    """Overwrite the arrays of a sample, then unset its fields, as a step or a user may."""
    for value in sample.get_data():
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = not value.any()
    sample.set_data([None] * len(sample.get_data()))
