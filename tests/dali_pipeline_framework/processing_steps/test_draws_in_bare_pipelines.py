"""Steps with random draws in a DALI pipeline without a `PipelineDefinition`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import pipeline_def, types
from support.array_samples import group_of
from support.arrays import DT
from support.draws import Drawer

from accvlab.dali_pipeline_framework.draws import IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase, for_each

BATCH_SIZE = 40


def run(*steps: PipelineStepBase, conditionals: bool = False) -> dict[str, np.ndarray]:
    """The fields of two cameras, and others, after the steps."""
    outputs: list[SampleDataGroup] = []

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, device_id=None, seed=1, enable_conditionals=conditionals)
    def bare() -> Any:
        data = group_of(cameras=(group_of(gain=DT.FLOAT), 2))
        data.set_data([types.Constant(1.0, device="cpu") for _ in range(2)])
        for step in steps:
            data = step(data)
        outputs[:] = [data]
        return tuple(data.get_data())

    pipeline = bare()
    pipeline.build()
    return dict(zip(outputs[0].field_names_flat, (each.as_array() for each in pipeline.run()), strict=True))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings with which `fn.random.uniform` is called."""
    seen: list[dict[str, Any]] = []
    original: Callable[..., Any] = fn.random.uniform

    def uniform(**kwargs: Any) -> Any:
        seen.append(kwargs)
        return original(**kwargs)

    monkeypatch.setattr(fn.random, "uniform", uniform)
    return seen


@pytest.mark.parametrize("conditionals", [False, True])
def test_uniform_goes_through_fn_random_uniform(calls: list[dict[str, Any]], conditionals: bool) -> None:
    step = Drawer(UniformDraw("a", 0.25, 4), UniformDraw("b", shape=(3,)), UniformDraw("c", 2, 2))
    found = run(step, conditionals=conditionals)
    assert calls == [{"range": [0.25, 4.0]}, {"range": [0.0, 1.0], "shape": [3]}]
    assert len({*found["a"].tolist()}) == BATCH_SIZE
    assert found["b"].shape == (BATCH_SIZE, 3)
    assert (found["c"] == 2).all()
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


def test_integers_and_normal_numbers(calls: list[dict[str, Any]]) -> None:
    integers = [IntegerDraw("a", -2, 3, shape=(20,)), IntegerDraw("b", 7, 8)]
    found = run(Drawer(*integers, NormalDraw("c", 5, 2, shape=(50,)), NormalDraw("d", 3, 0)))
    assert calls == [{"range": [-2, 3], "shape": [20]}]
    values, counts = np.unique(found["a"], return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert counts.min() > 100  # of 160 each: the outer ones are as frequent as the others
    assert found["a"].dtype == found["b"].dtype == np.int32
    assert 4.8 < found["c"].mean() < 5.2
    assert 1.8 < found["c"].std() < 2.2
    assert (found["b"] == 7).all()
    assert (found["d"] == 3).all()


def test_groups_share_what_they_are_to_share(calls: list[dict[str, Any]]) -> None:
    step = Drawer(UniformDraw("own"), UniformDraw("ours", key="rig"), UniformDraw("long", key="sequence-rig"))
    found = run(for_each("cameras", step))
    is_shared = {
        name: (found[f"cameras.[0].{name}"] == found[f"cameras.[1].{name}"]).mean()
        for name in ("own", "ours", "long")
    }
    assert is_shared == {"own": 0, "ours": 1, "long": 1}
    assert len(calls) == 4


class Twice(Drawer):
    """Uses its draw twice; adds a field with each call."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        name = f"call {len(data)}"
        data.add_data_field(name, DT.FLOAT)
        data[name] = self.draw("a") + 10 * (self.draw("a") - self.draw("a"))
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field(f"call {len(data_empty)}", DT.FLOAT)
        return data_empty


def test_a_draw_is_drawn_once_in_a_call_and_anew_in_the_next_one(calls: list[dict[str, Any]]) -> None:
    step = Twice(UniformDraw("a"))
    found = run(step, step)
    assert ((found["call 1"] < 1) & (found["call 1"] != found["call 2"])).all()
    assert len(calls) == 2
