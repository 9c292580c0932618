"""Steps that run in the workers, on arrays: the same results as in the graph, and errors that say what to do."""

from __future__ import annotations

import json
import pickle
import sys
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

from accvlab.dali_pipeline_framework.draws import (
    Draws,
    FieldKey,
)
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
from accvlab.dali_pipeline_framework.operators.array_packages import needed_package
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    DataGroupInPathAppliedStep,
    PipelineStepBase,
    UnneededFieldRemover,
)
from accvlab.dali_pipeline_framework.sampling import SequentialSampler
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType

pytestmark = pytest.mark.filterwarnings("ignore:These fields are not used")


def chain(key: Any = "sample") -> list[PipelineStepBase]:
    return [in_cameras(Gain(key)), Renames(), in_cameras(Gain("rig")), InGraph(), in_cameras(Gain(key))]


# --- running ---------------------------------------------------------------------------------------------


def definition(
    steps: Sequence[PipelineStepBase], *, num_samples: int = 7, batch_size: int = 3, **arguments: Any
) -> PipelineDefinition:
    sampler = SequentialSampler(num_samples, total_batch_size=batch_size, last_batch="partial")
    return PipelineDefinition(SamplerInputCallable(NumberProvider(num_samples), sampler), steps, **arguments)


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
    @pytest.mark.parametrize("key", ["sample", "rig", FieldKey("index")])
    def test_are_those_of_the_graph(self, key: Any) -> None:
        in_graph = delivered(chain(key))
        in_workers = delivered(chain(key), run="workers")
        assert_same(in_workers, in_graph)

    @some(("num_workers", "start_method"), [(1, "fork"), (3, "fork"), (2, "forkserver"), (2, "spawn")], {0, 1, 2})
    def test_do_not_depend_on_workers(self, num_workers: int, start_method: str) -> None:
        alone = delivered(chain(), run="workers")
        together = delivered(chain(), run="workers", num_workers=num_workers, start_method=start_method)
        assert_same(together, alone)

    @settings(max_examples=examples(3, 60))
    @given(st.lists(st.sampled_from("gprd"), max_size=5), st.booleans(), st.integers(1, 4))
    def test_of_any_chain_are_those_of_the_graph(self, kinds: list[str], fold: bool, batch_size: int) -> None:
        def make() -> list[PipelineStepBase]:
            made: list[PipelineStepBase] = []
            for kind in kinds:
                if kind == "r" and any(isinstance(step, Renames) for step in made):
                    continue
                made.append({"g": in_cameras(Gain()), "p": Gain("rig"), "r": Renames(), "d": InGraph()}[kind])
            return made

        how = {"fold_arrays": fold, "batch_size": batch_size}
        assert_same(delivered(make(), run="workers", **how), delivered(make(), **how))

    def test_with_the_graph_forced_for_a_step(self) -> None:
        steps = [in_cameras(Gain()), in_cameras(Gain()).with_run("graph"), Renames()]
        mixed = definition(steps, run="workers")
        assert "in the workers: 1 of 3 steps (run='workers'; step 1 (DataGroupArray" in mixed.plan()
        assert_same(delivered(steps, run="workers"), delivered(steps))

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


class TestPlacement:
    def test_is_shown(self) -> None:
        made = definition([in_cameras(Gain()), Renames(), InGraph(), in_cameras(Gain())], run="workers")
        lines = made.plan().splitlines()
        assert lines[:3] == [
            "in the workers: 2 of 4 steps (run='workers'; step 2 (InGraph) has a form for the graph only; what "
            "comes after it runs in the graph, too)",
            "step 0 (DataGroupArrayWithNameElementsAppliedStep of Gain): on arrays, in the workers",
            "step 1 (Renames): on arrays, in the workers",
        ]
        assert lines[4].startswith("step 2 (InGraph): ")
        assert "run='workers'" in repr(made)
        with loader_of([in_cameras(Gain()), Renames(), InGraph(), in_cameras(Gain())], run="workers") as loader:
            lines = loader.describe().splitlines()[:6]
            named = repr(loader).splitlines()[2:]
        marks = [line.endswith("[on arrays, in the workers]") for line in lines]
        assert marks == [False, False, True, True, False, False]
        wrapped = "DataGroupArrayWithNameElementsAppliedStep of Gain"
        assert named == [
            f"  steps in the workers: {wrapped}, Renames",
            f"  steps in the graph: InGraph, {wrapped}",
        ]

    def test_of_array_steps_needs_no_setting(self) -> None:
        steps = [in_cameras(Gain()), Doubles(at=-1), InGraph()]
        assert "in the workers: 2 of 3 steps (step 1 (Doubles) works on arrays only" in definition(steps).plan()
        found = delivered(steps)
        assert [int(sample[".index"]) for sample in found] == [2 * number for number in range(7)] * 2

    def test_of_steps_without_images_is_the_graph(self) -> None:
        with DataLoader(NumberProvider(), 2, steps=chain(), num_workers=0) as loader:
            assert (
                "in the workers: 0 of 5 steps (in the workers, steps would at most decode images)" in loader.plan
            )

    @pytest.mark.parametrize(
        "make", [lambda steps: definition(steps), lambda steps: DataLoader(NumberProvider(), 2, steps=steps)]
    )
    def test_of_array_steps_behind_the_graph_is_refused(self, make: Any) -> None:
        rule = r"step 2 \(Doubles\) works on arrays only, .* but step 0 \(InGraph\) has a form for the graph only"
        with pytest.raises(SettingError, match=rule):
            make([InGraph(), in_cameras(Gain()), Doubles()])
        with pytest.raises(SettingError, match=r"step 1 \(Gain\) is to run in the workers .* step 0 \(InGraph\)"):
            make([InGraph(), Gain().with_run("workers")])
        with pytest.raises(SettingError, match=r"step 0 \(Gain\) is to run in the graph"):
            make([Gain().with_run("graph"), Doubles()])

    def test_without_a_package_is_refused_or_the_graph(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Gain, "array_form_needs", ("cv2", "no_such_package"))
        rule = (
            r"step 0 \(DataGroup.* of Gain\) runs in the workers, on arrays, and needs no_such_package, which is"
        )
        with pytest.raises(SettingError, match=rule):
            definition([in_cameras(Gain())], run="workers")
        with pytest.raises(SettingError, match=rule):
            definition([in_cameras(Gain()), Doubles()]).plan()
        assert "in the workers: 0 of 1 steps" in definition([in_cameras(Gain())], run="auto").plan()
        monkeypatch.setattr(Gain, "array_form_needs", ("simplejpeg",))
        monkeypatch.setitem(sys.modules, "simplejpeg", None)
        with pytest.raises(SettingError, match=r"Steps on arrays need simplejpeg, .*pip install simplejpeg"):
            needed_package("simplejpeg")

    def test_settings_are_checked(self) -> None:
        with pytest.raises(SettingError, match="`run` must be one of"):
            Gain().with_run("gpu")  # type: ignore[arg-type]


class TestFailures:
    @pytest.mark.parametrize(
        ("does", "text", "num_workers"),
        [
            ("raises", r"Step 1 \(Doubles\) on sample 2 failed with KeyError: 'no such thing'", 0),
            ("raises", r"Step 1 \(Doubles\) on sample 2 failed with KeyError: 'no such thing'", 2),
            ("changes", "changes an array that it was given in place", 0),
            (
                "dtype",
                r"pair: is declared as float32, got float64 \(shape \(2,\)\)\nReturn what is declared",
                0,
            ),
            ("name", "did not produce the format that it declared", 0),
            ("none", "pair: is not set", 0),
            ("exits", "SystemExit", 0),
            ("exits", "SystemExit", 2),
            ("panics", "Panic", 0),
            ("panics", "Panic", 2),
        ],
    )
    def test_name_step_and_sample(self, does: str, text: str, num_workers: int) -> None:
        steps = [in_cameras(Gain()), Doubles(does)]
        with pytest.raises(SourceError, match=text) as caught:
            delivered(steps, run="workers", num_workers=num_workers, start_method="fork")
        assert "Step 1 (Doubles) on sample 2" in str(caught.value)
        assert caught.value.sample_index == 2
        if does == "raises":
            assert isinstance(caught.value, KeyError)
            assert "_misbehave" in str(caught.value)

    def test_of_ranks_that_differ_name_sample_and_field(self) -> None:
        steps = [Doubles("rank"), in_cameras(Gain()), InGraph()]
        with pytest.raises(SourceError, match=r"Sample 2 does not fit .*\n.*cameras\[1\].gain: expected 0 dim"):
            delivered(steps)

    def test_in_the_graph_behind_them_name_the_sample(self) -> None:
        steps = [in_cameras(Gain()), Doubles(at=-1), InGraph(bad=8)]
        with pytest.raises(GraphError, match=r"sample 4.*\[in step 2: InGraph\]") as caught:
            delivered(steps)
        assert caught.value.sample_indices == (4,)

    def test_to_pickle_name_the_step(self) -> None:
        steps = [in_cameras(Gain()), Unpicklable()]
        with pytest.raises(SourcePicklingError, match=r"(?s)The steps .* because `chain.*steps\[1\]\._lock`"):
            delivered(steps, num_workers=1)


class TestOneSample:
    def sample(self) -> SampleDataGroup:
        return NumberProvider().get_data(5)

    def test_is_processed_at_once(self) -> None:
        sample = self.sample()
        result = Doubles(at=-1)(sample)
        assert result["index"] == 10
        assert sample["index"] == 5
        assert result.get_item_in_path("pair") is sample.get_item_in_path("pair")

    def test_draws_follow_numpy(self) -> None:
        np.random.seed(3)
        first = in_cameras(Gain())(self.sample())
        second = in_cameras(Gain())(self.sample())
        np.random.seed(3)
        assert in_cameras(Gain())(self.sample())["cameras"][0]["gain"] == first["cameras"][0]["gain"]
        assert first["cameras"][0]["gain"] != second["cameras"][0]["gain"]
        assert first["cameras"][0]["gain"] != first["cameras"][1]["gain"]
        rig = in_cameras(Gain("rig"))(self.sample())["cameras"]
        before = self.sample()["cameras"]
        gains = [rig[camera]["gain"] / (before[camera]["gain"] + 1) for camera in range(2)]
        np.testing.assert_allclose(gains[0], gains[1], rtol=1e-6)

    def test_is_refused_by_a_step_of_the_graph(self) -> None:
        with pytest.raises(NotSupportedError, match="InGraph cannot be applied to arrays"):
            InGraph()(self.sample())

    def test_must_be_filled(self) -> None:
        sample = self.sample()
        sample["pair"] = None
        with pytest.raises(ValueError, match="pair: is not set"):
            Doubles()(sample)

    def test_in_a_group_draws_of_one_step_follow_run_step(self) -> None:
        both = [run_step(in_cameras(Gain()), self.sample(), seed=4, run=run) for run in ("graph", "workers")]
        assert both[0].draws == both[1].draws != {}
        assert both[0].output["cameras"][1]["gain"] == both[1].output["cameras"][1]["gain"]

    def test_in_a_chain_with_steps_of_the_graph(self) -> None:
        found = run_step([Doubles(at=-1), InGraph()], self.sample(), run="auto")
        assert found.output["index"] == 10
        assert found.output["cameras"][0]["gain"] == (
            self.sample()["cameras"][0]["gain"] + found.draws["InGraph[0]/shift"] + 1
        )

    def test_plain_values_are_converted(self) -> None:
        class Sets(ArrayStep):
            def __init__(self, value: Any) -> None:
                self._value = value

            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                data["index"] = self._value
                return data

        assert Sets(7)(self.sample()).get_item_in_path("index") == np.int64(7)
        with pytest.raises(StepOutputError, match="index: "):
            Sets(7.5)(self.sample())
        with pytest.raises(
            StepOutputError, match=r"must return a SampleDataGroup, got None \(a missing `return`\?\)"
        ):
            type("Nothing", (ArrayStep,), {"arrays": lambda self, data, draws: None})()(self.sample())


class TestStepByStep:
    def test_gives_what_the_pipeline_gives(self) -> None:
        steps = [in_cameras(Gain()), Renames(), in_cameras(Gain("rig"))]
        expected = delivered(steps, seed=3)[7 + 4]  # of the second epoch
        with loader_of(steps, seed=3) as loader:
            found = list(loader.step_by_step(4, epoch=1))
        assert [name for name, _ in found] == [
            "input",
            "step 0 (DataGroupArrayWithNameElementsAppliedStep of Gain)",
            "step 1 (Renames)",
            "step 2 (DataGroupArrayWithNameElementsAppliedStep of Gain)",
        ]
        assert found[0][1]["cameras"][0]["gain"] == NumberProvider(7).get_data(4)["cameras"][0]["gain"]
        last = found[-1][1]
        np.testing.assert_array_equal(last["noise"], expected[".noise"])
        np.testing.assert_array_equal(last["cameras"][1]["gain"], expected[".cameras.1.gain"])

    def test_refuses_what_it_cannot_do(self) -> None:
        with pytest.raises(NotSupportedError, match="InGraph cannot be applied to arrays"):
            list(definition([InGraph()]).step_by_step())
        with pytest.raises(SettingError, match="Epoch 0 has no sample at position 7"):
            list(definition([Gain()]).step_by_step(7))
        with pytest.raises(KeyError, match="no such thing"):
            list(definition([Doubles("raises")]).step_by_step(2))


def test_forms_of_steps() -> None:
    class Other(UnneededFieldRemover):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            return data

    assert Gain().has_array_form
    assert UnneededFieldRemover(["a"]).has_graph_form
    assert not Other(["a"]).has_array_form
    assert not in_cameras(Other(["a"])).has_array_form
    assert not Doubles().has_graph_form
    assert not DataGroupInPathAppliedStep(Doubles(), ()).has_graph_form
    assert pickle.loads(pickle.dumps(Gain().with_run("graph"))).run == "graph"


def test_the_state_of_a_loader_tells_which_form_ran() -> None:
    def make(run: Any) -> DataLoader:
        return loader_of([in_cameras(Gain())], run=run)

    with make("workers") as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["plan"]["steps_in_workers"] == 1
        loader.load_state_dict(state)
    with make("graph") as loader:
        assert "steps_in_workers" not in loader.state_dict()["plan"]
        with pytest.warns(UserWarning, match="1 steps ran in the workers, here 0 do"):
            loader.load_state_dict(state)


def test_fields_that_are_made_in_the_workers_are_stacked_without_a_copy() -> None:
    how = {"run": "workers", "batch_size": 7, "output_type": "numpy"}
    with loader_of([in_cameras(Gain())], **how, stack_arrays=True) as loader:
        stacked = next(iter(loader))["cameras"]["gain"]
    with loader_of([in_cameras(Gain())], **how) as loader:
        cameras = next(iter(loader))["cameras"]
    np.testing.assert_array_equal(stacked, np.stack([cameras[0]["gain"], cameras[1]["gain"]], axis=1))
    base = stacked
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert base.nbytes > 2 * stacked.nbytes  # the buffer of the whole batch
