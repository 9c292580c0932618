"""The contract of a processing step, for steps that users write."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from nvidia.dali import fn, pipeline_def
from support.arrays import DT, ArrayProvider
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.steps import Doubler, ImageUser, Renamer

from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import GraphError, StepOutputError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    ImageDecoder,
    LambdaStep,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.sample_data.formats import describe_difference


class Configurable(PipelineStepBase):
    """Does in the graph and declares as its tests say; never calls the constructor of its base."""

    def __init__(self, process: Any, declare: Any) -> None:
        self.process = process
        self.declare = declare

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self.process(data)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return self.declare(data_empty)


def same(data: SampleDataGroup) -> SampleDataGroup:
    return data


def nothing(data: SampleDataGroup) -> None:
    return None


def as_dict(data: SampleDataGroup) -> dict[str, Any]:
    return data.to_dictionary()


def with_surplus(data: SampleDataGroup) -> SampleDataGroup:
    data.add_data_field("surplus", DT.INT64)
    if data["index"] is not None:
        data["surplus"] = data["index"]
    return data


def without_index(data: SampleDataGroup) -> SampleDataGroup:
    data.remove_field("index")
    data.add_data_field("other", DT.INT64)
    return data


def as_float(data: SampleDataGroup) -> SampleDataGroup:
    value = data["index"]
    data.change_type_of_data_and_remove_data("index", DT.FLOAT)
    if value is not None:
        data["index"] = fn.cast(value, dtype=DT.FLOAT)
    return data


def make(step: PipelineStepBase, **arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(IndexProvider(8)), [step])
    return definition.get_dali_pipeline(num_threads=1, py_num_workers=0, **arguments)


class TestFormat:
    @pytest.mark.parametrize("declare", [same, with_surplus, without_index, as_float])
    def test_the_argument_is_left_as_it_is(self, declare: Any) -> None:
        blueprint = IndexProvider().sample_data_structure
        before = str(blueprint)
        output = Configurable(same, declare).check_input_data_format_and_set_output_data_format(blueprint)
        assert str(blueprint) == before
        assert output is not blueprint
        output.add_data_field("more", DT.FLOAT)
        assert str(blueprint) == before

    def test_values_of_the_argument_are_not_seen(self) -> None:
        seen: list[Any] = []

        def declare(data: SampleDataGroup) -> SampleDataGroup:
            seen.append(data["index"])
            return data

        sample = IndexProvider().get_data(3)
        output = Configurable(same, declare).check_input_data_format_and_set_output_data_format(sample)
        assert seen == [None]
        assert output["index"] is None
        assert sample["index"] == 3

    def test_a_new_group_may_be_returned(self) -> None:
        def declare(data: SampleDataGroup) -> SampleDataGroup:
            output = SampleDataGroup()
            output.add_data_field("sum", DT.INT64)
            return output

        def process(data: SampleDataGroup) -> SampleDataGroup:
            output = SampleDataGroup()
            output.add_data_field("sum", DT.INT64)
            output["sum"] = data["index"] + 1
            return output

        with make_iterator(shuffled(IndexProvider(4)), [Configurable(process, declare)]) as iterator:
            assert [{**batch, "sum": batch["sum"].tolist()} for batch in iterator] == [{"sum": [1, 2, 3, 4]}]

    @pytest.mark.parametrize(
        ("declare", "found"), [(nothing, r"None \(a missing `return`\?\)"), (as_dict, "dict")]
    )
    def test_what_is_no_format_is_refused(self, declare: Any, found: str) -> None:
        message = (
            r"Configurable\._check_and_adjust_data_format_input_to_output must return a SampleDataGroup, got "
            + found
        )
        step = Configurable(same, declare)
        with pytest.raises(StepOutputError, match=message):
            step.check_input_data_format_and_set_output_data_format(IndexProvider().sample_data_structure)
        with pytest.raises(AssertionError, match=message):
            make(step)

    def test_of_a_step_on_arrays_is_named_by_its_method(self) -> None:
        class Nothing(ArrayStep):
            def format_after(self, data_empty: SampleDataGroup) -> Any:
                return None

            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                return data

        message = r"Nothing\.format_after must return a SampleDataGroup, got None"
        with pytest.raises(StepOutputError, match=message):
            Nothing().check_input_data_format_and_set_output_data_format(IndexProvider().sample_data_structure)

    def test_an_error_of_the_user_keeps_its_kind(self) -> None:
        class CalibrationError(LookupError):
            pass

        def declare(data: SampleDataGroup) -> SampleDataGroup:
            raise CalibrationError("no calibration")

        step = Configurable(same, declare)
        with pytest.raises(CalibrationError, match="no calibration"):
            step.check_input_data_format_and_set_output_data_format(IndexProvider().sample_data_structure)
        with pytest.raises(CalibrationError, match=r"step 0 \(Configurable\)(.|\n)*no calibration"):
            make(step)


class TestOutput:
    @pytest.mark.parametrize("enable_conditionals", [False, True])
    @pytest.mark.parametrize(
        ("process", "declare"),
        [
            (same, with_surplus),
            (with_surplus, same),
            (without_index, same),
            (same, without_index),
            (as_float, same),
            (same, as_float),
        ],
    )
    def test_another_format_than_declared_is_refused_when_the_pipeline_is_made(
        self, process: Any, declare: Any, enable_conditionals: bool
    ) -> None:
        with pytest.raises(AssertionError, match="did not produce the format that it declared") as caught:
            make(Configurable(process, declare), enable_conditionals=enable_conditionals)
        assert isinstance(caught.value, StepOutputError)
        blueprint = IndexProvider().sample_data_structure
        declared = declare(IndexProvider().sample_data_structure).format
        produced = process_format(process, blueprint).format
        message = str(caught.value)
        assert describe_difference(declared, produced) in message
        assert message.startswith("Configurable did not produce ")

    def test_another_order_than_declared_is_refused(self) -> None:
        def other_order(data: SampleDataGroup) -> SampleDataGroup:
            value = data["index"]
            data.remove_field("index")
            data.add_data_field("index", DT.INT64)
            data["index"] = value
            return data

        step = Configurable(other_order, same)
        definition = PipelineDefinition(shuffled(NumberProvider(8)), [step])
        with pytest.raises(StepOutputError, match="did not produce"):
            definition.get_dali_pipeline(num_threads=1, py_num_workers=0)

    @pytest.mark.parametrize(
        ("process", "found"), [(nothing, r"None \(a missing `return`\?\)"), (as_dict, "dict")]
    )
    def test_what_is_no_sample_is_refused(self, process: Any, found: str) -> None:
        message = r"Configurable\._process must return a SampleDataGroup, got " + found
        with pytest.raises(AssertionError, match=message):
            make(Configurable(process, same))

    def test_the_step_that_raises_while_it_defines_its_operators_is_named(self) -> None:
        def process(data: SampleDataGroup) -> SampleDataGroup:
            raise ZeroDivisionError("oh")

        steps = [Doubler("index"), Configurable(process, same)]
        with pytest.raises(ZeroDivisionError, match="oh") as caught:
            PipelineDefinition(shuffled(IndexProvider(8)), steps).get_dali_pipeline(num_threads=1)
        if hasattr(caught.value, "__notes__"):  # Python >= 3.11
            assert caught.value.__notes__ == ["raised while step 1 (Configurable) defined its operators"]

    @pytest.mark.parametrize(
        "compute",
        [
            np.mean,
            np.sqrt,
            np.asarray,
            lambda node: np.concatenate([node, node]),
            lambda node: node @ np.eye(4),
            float,
            len,
            lambda node: node if node > 0 else -node,
            lambda node: [one + 1 for one in node],
            sum,
            lambda node: cv2.resize(node, (2, 2)),
            lambda node: node.mean(),
            lambda node: node.shape[0],
            lambda node: node[[0, 1]],
            torch.from_numpy,
            lambda node: f"{node:.2f}",
        ],
    )
    def test_a_step_that_takes_nodes_for_arrays_is_named_with_what_to_use(self, compute: Any) -> None:
        def process(data: SampleDataGroup) -> SampleDataGroup:
            data["index"] = compute(data["index"])
            return data

        steps = [Configurable(process, same)]
        if compute is not np.asarray:  # which makes an array of the node: no result of a LambdaStep
            steps.append(LambdaStep(compute, input_names="index", output_types={"index": DT.INT64}))
        for step in steps:
            with pytest.raises(GraphError, match=r"nodes of DALI(.|\n)*MapStep .* ArrayStep") as caught:
                PipelineDefinition(shuffled(IndexProvider(8)), [Doubler("index"), step]).get_dali_pipeline()
            kind = type(caught.value).__bases__[-1].__name__
            assert str(caught.value).startswith(f"step 1 ({type(step).__name__}) failed with {kind}: ")

    @pytest.mark.parametrize(
        ("error", "compute"),
        [
            (ValueError, lambda node: raised(ValueError("by hand"))),
            (TypeError, lambda node: raised(TypeError("by hand"))),
            (KeyError, lambda node: {}["by hand"]),
            (KeyError, lambda node: fn.resize(node, no_such=3)),
        ],
    )
    def test_other_errors_of_a_step_are_left_as_they_are(self, error: type[Exception], compute: Any) -> None:
        step = LambdaStep(compute, input_names="index", output_types={"index": DT.INT64})
        with pytest.raises(error) as caught:
            PipelineDefinition(shuffled(IndexProvider(8)), [step]).get_dali_pipeline()
        assert type(caught.value) is error


def raised(error: Exception) -> None:
    raise error


def process_format(process: Any, blueprint: SampleDataGroup) -> SampleDataGroup:
    """What the functions above do to a format in the graph."""
    return process(blueprint.get_empty_like_self())


class TestSubclasses:
    def test_both_methods_are_needed(self) -> None:
        class Half(PipelineStepBase):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                return data

        with pytest.raises(TypeError, match="_check_and_adjust_data_format_input_to_output"):
            Half()
        with pytest.raises(TypeError, match="abstract"):
            PipelineStepBase()

    def test_without_any_constructor(self) -> None:
        class PlusOne(PipelineStepBase):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                data["index"] = data["index"] + 1
                return data

            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                return data_empty

        step = PlusOne()
        assert repr(step) == "PlusOne()"
        for arguments in ({"args": [1]}, {"name": "index"}):
            with pytest.raises(TypeError, match=r"PlusOne\(\) takes no arguments"):
                PlusOne(*arguments.pop("args", ()), **arguments)
        with make_iterator(shuffled(IndexProvider(8)), [step, step]) as iterator:
            assert indices(iterator) == [[2, 3, 4, 5], [6, 7, 8, 9]]

    def test_names_of_steps_on_arrays_are_free_in_a_step_of_operators(self) -> None:
        class Own(Configurable):
            arrays = graph = format_after = None

        step = Own(same, same)
        assert not step.has_array_form
        with make_iterator(shuffled(IndexProvider(4)), [step]) as iterator:
            assert indices(iterator) == [[0, 1, 2, 3]]

    def test_one_object_may_serve_several_pipelines(self) -> None:
        step = Doubler("index")
        for _ in range(2):
            with make_iterator(shuffled(IndexProvider(4)), [step], py_num_workers=0) as iterator:
                assert indices(iterator) == [[0, 2, 4, 6]]

    @pytest.mark.parametrize("enable_conditionals", [False, True])
    def test_in_a_bare_pipeline(self, enable_conditionals: bool) -> None:
        pipeline = bare_pipeline(Renamer("index", "number"), enable_conditionals=enable_conditionals)
        [numbers] = pipeline.run()
        assert np.asarray(numbers.as_tensor()).tolist() == [3, 4]

    def test_a_mismatch_in_a_bare_pipeline(self) -> None:
        with pytest.raises(AssertionError, match="did not produce the format that it declared"):
            bare_pipeline(Configurable(same, as_float))

    def test_labels_stay_numbers_behind_the_input(self) -> None:
        class LabelShifter(PipelineStepBase):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                for path in data.find_all_occurrences("label"):
                    data.set_item_in_path(path, data.get_item_in_path(path) + 100)
                return data

            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                return data_empty

        with make_iterator(shuffled(NumberProvider(4)), [LabelShifter()]) as iterator:
            [batch] = iterator
        assert [batch["cameras"][camera]["label"].tolist() for camera in range(2)] == [[101] * 4, [99] * 4]

    def test_values_may_be_constants(self) -> None:
        class ConstantAdder(PipelineStepBase):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                data.add_data_field("size", DT.INT32)
                data["size"] = [480, 640]
                return data

            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                data_empty.add_data_field("size", DT.INT32)
                return data_empty

        with make_iterator(shuffled(IndexProvider(4)), [ConstantAdder()], py_num_workers=0) as iterator:
            [batch] = iterator
        assert batch["size"].tolist() == [[480, 640]] * 4
        assert batch["size"].dtype == np.int32


@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def bare_pipeline(step: PipelineStepBase) -> tuple[Any, ...]:
    data = SampleDataGroup()
    data.add_data_field("index", DT.INT64)
    data["index"] = fn.external_source(source=[[np.array(3), np.array(4)]], batch=True, dtype=DT.INT64)
    return step(data).get_data()


STEPS = [
    (Doubler("gain", above=2), "Doubler(name='gain', above=2)"),
    (ImageUser("image"), "ImageUser(name='image')"),
    (
        ImageDecoder("image", True),
        "ImageDecoder(image_name='image', use_device_mixed=True, hw_decoder_load=0.65, as_bgr=False)",
    ),
    (
        DataGroupInPathAppliedStep(Renamer("a", "b"), ("x", 0)),
        "DataGroupInPathAppliedStep(processing_step_to_apply=Renamer(old='a', new='b'), "
        "path_to_apply_to=('x', 0))",
    ),
    (
        DataGroupsWithNameAppliedStep(Doubler("a"), "x"),
        "DataGroupsWithNameAppliedStep(processing_step_to_apply=Doubler(name='a', above=None), "
        "names_of_groups_to_apply_to=('x',), check_minimum_one_name_match=True)",
    ),
    (
        DataGroupArrayWithNameElementsAppliedStep(Doubler("a"), "x", False),
        "DataGroupArrayWithNameElementsAppliedStep(processing_step_to_apply=Doubler(name='a', above=None), "
        "name_of_arrays_to_apply_to='x', check_minimum_one_name_match=False)",
    ),
]


@pytest.mark.parametrize(("step", "text"), STEPS, ids=lambda value: type(value).__name__)
class TestText:
    def test_shows_class_and_settings(self, step: PipelineStepBase, text: str) -> None:
        assert repr(step) == text

    @pytest.mark.parametrize("copied", [lambda step: pickle.loads(pickle.dumps(step)), copy.deepcopy])
    def test_of_a_copy_is_the_same(self, step: PipelineStepBase, text: str, copied: Any) -> None:
        made = copied(step)
        assert made is not step
        assert repr(made) == text


def test_a_copy_works() -> None:
    step = pickle.loads(pickle.dumps(DataGroupInPathAppliedStep(Doubler("index"), "ego")))
    provider = ArrayProvider({"ego": {"index": (DT.INT64, [1, 2])}, "index": (DT.INT64, [3, 4])})
    with make_iterator(shuffled(provider, 2), [step], py_num_workers=0) as iterator:
        [batch] = iterator
    assert batch["ego"]["index"].tolist() == [2, 4]
    assert batch["index"].tolist() == [3, 4]
