"""Steps with random draws in a DALI pipeline without a `PipelineDefinition`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import pipeline_def, types
from support.arrays import DT
from support.draws import Drawer

from accvlab.dali_pipeline_framework.draws import IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    PipelineStepBase,
)

BATCH_SIZE = 40


def run(step: PipelineStepBase, conditionals: bool = False) -> dict[str, np.ndarray]:
    camera = SampleDataGroup()
    camera.add_data_field("gain", DT.FLOAT)
    blueprint = SampleDataGroup()
    blueprint.add_data_group_field_array("cameras", camera, 2)
    names: list[str] = []

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, device_id=None, seed=1, enable_conditionals=conditionals)
    def bare() -> Any:
        data = blueprint.get_empty_like_self()
        data.set_data([types.Constant(1.0, device="cpu") for _ in range(2)])
        data = step(data)
        names[:] = data.field_names_flat
        return tuple(data.get_data())

    pipeline = bare()
    pipeline.build()
    return {name: output.as_array() for name, output in zip(names, pipeline.run(), strict=True)}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    original: Callable[..., Any] = fn.random.uniform

    def uniform(*args: Any, **kwargs: Any) -> Any:
        assert not args
        seen.append(kwargs)
        return original(**kwargs)

    monkeypatch.setattr(fn.random, "uniform", uniform)
    return seen


@pytest.mark.parametrize("conditionals", [False, True])
def test_uniform_goes_through_fn_random_uniform(calls: list[dict[str, Any]], conditionals: bool) -> None:
    found = run(
        Drawer(UniformDraw("a", 0.25, 4), UniformDraw("b", shape=(3,)), UniformDraw("c", 2, 2)), conditionals
    )
    assert calls == [{"range": [0.25, 4.0]}, {"range": [0.0, 1.0], "shape": [3]}]
    assert len({*found["a"].tolist()}) == BATCH_SIZE
    assert found["b"].shape == (BATCH_SIZE, 3)
    assert (found["c"] == 2).all()
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


def test_integers(calls: list[dict[str, Any]]) -> None:
    found = run(Drawer(IntegerDraw("a", -2, 3, shape=(20,)), IntegerDraw("b", 7, 8)))
    assert calls == [{"range": [-2, 3], "shape": [20]}]
    values, counts = np.unique(found["a"], return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert counts.min() > 100  # of 160 each: the outer ones are as frequent as the others
    assert found["a"].dtype == found["b"].dtype == np.int32
    assert (found["b"] == 7).all()


def test_normal() -> None:
    found = run(Drawer(NormalDraw("a", 5, 2, shape=(50,)), NormalDraw("b", 3, 0)))
    assert 4.8 < found["a"].mean() < 5.2
    assert 1.8 < found["a"].std() < 2.2
    assert (found["b"] == 3).all()


def test_groups_share_what_they_are_to_share(calls: list[dict[str, Any]]) -> None:
    step = Drawer(UniformDraw("own"), UniformDraw("ours", key="rig"), UniformDraw("long", key="sequence-rig"))
    found = run(DataGroupArrayWithNameElementsAppliedStep(step, "cameras"))
    first, second = (
        {name: found[f"cameras.[{camera}].{name}"] for name in ("own", "ours", "long")} for camera in (0, 1)
    )
    assert (first["ours"] == second["ours"]).all()
    assert (first["long"] == second["long"]).all()
    assert (first["own"] != second["own"]).all()
    assert len(calls) == 4


def test_a_draw_that_is_asked_for_twice_is_one_draw() -> None:
    class Twice(Drawer):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            data.add_data_field("a", DT.FLOAT)
            data["a"] = self.draw("a") - self.draw("a")
            return data

    assert (run(Twice(UniformDraw("a")))["a"] == 0).all()


def test_two_calls_of_a_step_draw_anew(calls: list[dict[str, Any]]) -> None:
    step = Drawer(UniformDraw("a"))

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def bare() -> Any:
        return tuple(step(SampleDataGroup())["a"] for _ in range(2))

    pipeline = bare()
    pipeline.build()
    first, second = pipeline.run()
    assert (first.as_array() != second.as_array()).all()
    assert len(calls) == 2
