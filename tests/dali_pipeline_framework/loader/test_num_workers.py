"""``num_workers``: as many as there are cores where no number is given, and a warning of more than these."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
from support.inputs import NumberCallable, NumberIterable
from support.pipelines import indices, worker_pids
from support.providers import IndexProvider
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.limits import control_groups
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.sampling import SequentialSampler


@pytest.fixture(autouse=True)
def _without_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: None)


def set_cores(monkeypatch: pytest.MonkeyPatch, count: int, ranks: str = "") -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)


def default_of(source: Any, **arguments: Any) -> int:
    with DataLoader(source, 4, **arguments) as loader:
        return loader.num_workers


@pytest.mark.parametrize(
    ("num_cores", "ranks", "num_workers"), [(1, "", 1), (5, "", 5), (64, "", 8), (6, "2", 3), (2, "4", 1)]
)
def test_none_is_the_usable_cores_of_this_rank_at_most_8(
    monkeypatch: pytest.MonkeyPatch, num_cores: int, ranks: str, num_workers: int
) -> None:
    set_cores(monkeypatch, num_cores, ranks)
    assert default_of(IndexProvider(8)) == num_workers
    assert default_of(IndexProvider(8), run="graph", num_workers=None) == num_workers
    assert default_of(NumberCallable(8)) == num_workers
    assert default_of(IndexProvider(8), num_workers=0) == 0
    assert default_of(NumberIterable(8)) == 1  # where there is nothing to share


def test_that_many_processes_load(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cores(monkeypatch, 3)
    loader = DataLoader(IndexProvider(12), 4, start_method="fork", output_type="numpy")
    assert repr(loader).startswith("DataLoader(batch_size=4, num_workers=3, device=CPU")
    with loader:
        assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert len(worker_pids()) == 3


@pytest.mark.parametrize(("ranks", "num_cores"), [("", 3), ("2", 1), ("9", 1)])
def test_more_workers_than_cores_are_warned_of_at_the_user_s_line(
    monkeypatch: pytest.MonkeyPatch, ranks: str, num_cores: int
) -> None:
    set_cores(monkeypatch, 3, ranks)
    source = SamplerInputCallable(IndexProvider(8), SequentialSampler(8, 4))
    here = PipelineDefinition(source, use_parallel_external_source=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        here.get_dali_pipeline(py_num_workers=99).build()  # starts none
        DataLoader(IndexProvider(8), 4, num_workers=num_cores).close()
        assert of_product(caught) == []
        DataLoader(IndexProvider(8), 4, num_workers=num_cores + 1).close()
    (warning,) = caught
    assert (warning.category, warning.filename) == (UserWarning, __file__)
    text = f"`num_workers={num_cores + 1}` starts {num_cores + 1} worker processes, and this rank has"
    assert str(warning.message).startswith(text)
