"""Steps that run in the workers, on arrays: the same results as in the graph, and errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from array_steps import Doubles, Gain, InGraph, Renames, Unpicklable
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.inputs import GivenBatch
from support.laws import examples, some
from support.providers import NumberProvider
from support.random_steps import each_camera as in_cameras
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.draws import Draws, FieldKey
from accvlab.dali_pipeline_framework.errors import (
    GraphError,
    NotSupportedError,
    SettingError,
    SourceError,
    SourcePicklingError,
    StepOutputError,
)
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ArrayStep, PipelineStepBase
from accvlab.dali_pipeline_framework.sampling import SequentialSampler
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType

pytestmark = pytest.mark.filterwarnings("ignore:These fields are not used")


def loader_of(
    steps: Sequence[PipelineStepBase], source: Any = None, *, batch_size: int | None = 3, **arguments: Any
) -> DataLoader:
    arguments = {"run": "graph", "num_workers": 0, **arguments}
    return DataLoader(source or NumberProvider(7), batch_size, steps=steps, **arguments)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The fields of a batch, by name."""
    if not isinstance(value, dict) and not (isinstance(value, list) and isinstance(value[0], dict)):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {path: leaf for key, child in items for path, leaf in flat(child, f"{name}.{key}").items()}


def delivered(steps: Sequence[PipelineStepBase], **arguments: Any) -> list[dict[str, Any]]:
    """All fields of all samples of two epochs, by name."""
    samples = []
    with loader_of(steps, output_type="numpy", **arguments) as loader:
        for _ in range(2):
            for batch in loader:
                fields = flat(batch)
                rows = zip(*fields.values(), strict=True)
                samples += [dict(zip(fields, row, strict=True)) for row in rows]
    return samples


def assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name, strict=True)


class TestResults:
    @some(("num_workers", "start_method"), [(3, "fork"), (2, "forkserver"), (2, "spawn")], {0})
    @pytest.mark.parametrize("key", ["sample", FieldKey("index")])
    def test_are_those_of_the_graph_whatever_the_workers(
        self, key: Any, num_workers: int, start_method: str
    ) -> None:
        steps = [in_cameras(Gain(key)), Renames(), in_cameras(Gain("rig")), InGraph(), in_cameras(Gain(key))]
        in_graph = delivered(steps)
        assert_same(delivered(steps, run="workers"), in_graph)
        together = delivered(steps, run="workers", num_workers=num_workers, start_method=start_method)
        assert_same(together, in_graph)

    @settings(max_examples=examples(3, 30))
    @given(st.lists(st.sampled_from("gprd"), max_size=5), st.booleans(), st.integers(1, 4))
    def test_of_any_chain_are_those_of_the_graph(self, kinds: list[str], fold: bool, batch_size: int) -> None:
        of_kind = {"g": in_cameras(Gain()), "p": Gain("rig"), "r": Renames(), "d": InGraph()}
        first = kinds.index("r") if "r" in kinds else None  # of a field that is taken away, which is possible once
        steps = [of_kind[kind] for place, kind in enumerate(kinds) if kind != "r" or place == first]
        how = {"fold_arrays": fold, "batch_size": batch_size}
        assert_same(delivered(steps, run="workers", **how), delivered(steps, **how))

    def test_of_an_iterable(self) -> None:
        samples = [NumberProvider(9).get_data(number) for number in range(3)]
        steps, how = [in_cameras(Gain()), InGraph()], {"run": "workers", "batch_size": None}
        found = delivered(steps, source=GivenBatch(samples), **how)
        assert_same(delivered(steps, source=GivenBatch(samples), **how), found)
        samples *= 2  # batches of an epoch
        runs = run_step(steps, samples, seed=0)  # the same positions
        gains = [run.draws["Gain[0]/cameras[1]/gain"] for run in runs]
        assert len({float(gain) for gain in gains}) == 6
        for before, sample, gain in zip(samples, found, gains, strict=False):
            expected = (before["cameras"][1]["gain"] + np.float32(1)) * gain
            np.testing.assert_array_equal(sample[".cameras.1.gain"], expected)


class TestFailures:
    @pytest.mark.parametrize(
        ("does", "words", "num_workers"),
        [
            *(("raises", "failed with KeyError: 'no such thing'...in _misbehave", number) for number in (0, 2)),
            ("dtype", "pair: is declared as float32, got float64 (shape (2,))\nReturn what is declared", 0),
            ("none", "pair: is not set", 0),
            ("exits", "SystemExit", 2),
            ("panics", "Panic", 0),
        ],
    )
    def test_name_step_and_sample(self, does: str, words: str, num_workers: int) -> None:
        steps = [in_cameras(Gain()), Doubles(does)]
        how = {"run": "workers", "num_workers": num_workers, "start_method": "fork"}
        words = f"Step 1 (Doubles) on sample 2 ...{words}"
        error: Any = assert_refused(lambda: delivered(steps, **how), words, SourceError)
        assert error.sample_index == 2
        assert isinstance(error, KeyError) == (does == "raises")

    def test_of_ranks_that_differ_name_sample_and_field(self) -> None:
        steps = [Doubles("rank"), in_cameras(Gain()), InGraph()]
        words = "Sample 2 does not fit ...\n...cameras[1].gain: expected 0 dim"
        assert_refused(lambda: delivered(steps), words, SourceError)

    def test_in_the_graph_behind_them_name_the_sample(self) -> None:
        steps = [in_cameras(Gain()), Doubles(at=-1), InGraph(bad=8)]
        error: Any = assert_refused(lambda: delivered(steps), "sample 4...[in step 2: InGraph]", GraphError)
        assert error.sample_indices == (4,)

    def test_to_pickle_name_the_step(self) -> None:
        steps = [in_cameras(Gain()), Unpicklable()]
        words = "The steps ... because `chain...steps[1]._lock`"
        assert_refused(lambda: delivered(steps, num_workers=1), words, SourcePicklingError)


def of_five() -> SampleDataGroup:
    return NumberProvider().get_data(5)


class Sets(ArrayStep):
    """Sets the index."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        data["index"] = self._value
        return data


class TestOneSample:
    def test_is_processed_at_once(self) -> None:
        sample = of_five()
        result = Doubles(at=-1)(sample)
        assert result["index"] == 10
        assert sample["index"] == 5
        assert result.get_item_in_path("pair") is sample.get_item_in_path("pair")
        assert Sets(7)(sample).get_item_in_path("index") == np.int64(7)  # plain values are converted

    def test_draws_follow_numpy(self) -> None:
        np.random.seed(3)
        first, second = (in_cameras(Gain())(of_five())["cameras"] for _ in range(2))
        np.random.seed(3)
        assert in_cameras(Gain())(of_five())["cameras"][0]["gain"] == first[0]["gain"]
        assert first[0]["gain"] != second[0]["gain"]
        rig, before = in_cameras(Gain("rig"))(of_five())["cameras"], of_five()["cameras"]
        gains = [
            [after[camera]["gain"] / (before[camera]["gain"] + 1) for camera in range(2)] for after in (rig, first)
        ]
        np.testing.assert_allclose(gains[0][0], gains[0][1], rtol=1e-6)
        assert gains[1][0] != pytest.approx(gains[1][1], rel=1e-3)
        np.random.seed(3)
        assert gains[1][0] == pytest.approx(np.random.uniform(1, 2), rel=1e-6)

    @pytest.mark.parametrize(
        ("step", "error", "words"),
        [
            (InGraph(), NotSupportedError, "InGraph cannot be applied to arrays"),
            (Sets(7.5), StepOutputError, "index: "),
        ],
    )
    def test_what_a_step_cannot_do_is_refused(self, step: Any, error: type[Exception], words: str) -> None:
        assert_refused(lambda: step(of_five()), words, error)

    def test_must_be_filled(self) -> None:
        sample = of_five()
        sample["pair"] = None
        assert_refused(lambda: Doubles()(sample), "pair: is not set", ValueError)


class TestStepByStep:
    def test_gives_what_the_pipeline_gives(self) -> None:
        steps = [in_cameras(Gain()), Renames(), in_cameras(Gain("rig"))]
        expected = delivered(steps, seed=3)[7 + 4]  # of the second epoch
        with loader_of(steps, seed=3) as loader:
            found = list(loader.step_by_step(4, epoch=1))
        wrapped = "DataGroupArrayWithNameElementsAppliedStep of Gain"
        assert [name for name, _ in found] == [
            *("input", f"step 0 ({wrapped})", "step 1 (Renames)", f"step 2 ({wrapped})")
        ]
        assert found[0][1]["cameras"][0]["gain"] == NumberProvider(7).get_data(4)["cameras"][0]["gain"]
        last = found[-1][1]
        np.testing.assert_array_equal(last["noise"], expected[".noise"])
        np.testing.assert_array_equal(last["cameras"][1]["gain"], expected[".cameras.1.gain"])

    @pytest.mark.parametrize(
        ("step", "position", "error", "words"),
        [
            (InGraph(), 0, NotSupportedError, "InGraph cannot be applied to arrays"),
            (Gain(), 7, SettingError, "Epoch 0 has no sample at position 7"),
            (Doubles("raises"), 2, KeyError, "no such thing"),
        ],
    )
    def test_refuses_what_it_cannot_do(self, step: Any, position: int, error: Any, words: str) -> None:
        sampler = SequentialSampler(7, total_batch_size=3, last_batch="partial")
        definition = PipelineDefinition(SamplerInputCallable(NumberProvider(7), sampler), [step])
        assert_refused(lambda: list(definition.step_by_step(position)), words, error)

    def test_needs_a_callable(self) -> None:
        definition = PipelineDefinition(GivenBatch([of_five()]), [Gain()])
        words = "`step_by_step` needs a callable input, which loads a sample at any position"
        assert_refused(lambda: next(definition.step_by_step()), words)


def test_the_state_of_a_loader_tells_which_form_ran() -> None:
    with loader_of([in_cameras(Gain())], run="workers") as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["plan"]["steps_in_workers"] == 1
        loader.load_state_dict(state)
    with loader_of([in_cameras(Gain())]) as loader:
        assert "steps_in_workers" not in loader.state_dict()["plan"]
        with pytest.warns(UserWarning, match="1 steps ran in the workers, here 0 do"):
            loader.load_state_dict(state)
