"""The contract of a processing step, for steps that users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from nvidia.dali import fn, pipeline_def
from support.arrays import DT
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.steps import Doubler, Renamer

from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import GraphError, StepOutputError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    DataGroupInPathAppliedStep,
    LambdaStep,
    PipelineStepBase,
)


def same(data: SampleDataGroup) -> SampleDataGroup:
    return data


class Configurable(PipelineStepBase):
    """Does in the graph and declares as its tests say; never calls the constructor of its base."""

    def __init__(self, process: Callable[..., Any] = same, declare: Callable[..., Any] = same) -> None:
        self.process = process
        self.declare = declare

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self.process(data)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return self.declare(data_empty)


def with_surplus(data: SampleDataGroup) -> SampleDataGroup:
    data.add_data_field("surplus", DT.INT64)
    data["surplus"] = data["index"]
    return data


def as_float(data: SampleDataGroup) -> SampleDataGroup:
    value = data["index"]
    data.change_type_of_data_and_remove_data("index", DT.FLOAT)
    if value is not None:
        data["index"] = fn.cast(value, dtype=DT.FLOAT)
    return data


def moved_to_the_end(data: SampleDataGroup) -> SampleDataGroup:
    value = data["index"]
    data.remove_field("index")
    data.add_data_field("index", DT.INT64)
    data["index"] = value
    return data


def sums(data: SampleDataGroup) -> SampleDataGroup:
    output = SampleDataGroup()
    output.add_data_field("sum", DT.INT64)
    if data["index"] is not None:
        output["sum"] = data["index"] + 1
    return output


def made(*steps: PipelineStepBase, provider: Any = None, **arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(provider or IndexProvider(8)), [*steps])
    return definition.get_dali_pipeline(num_threads=1, py_num_workers=0, **arguments)


def raises(error: Exception) -> Callable[..., Any]:
    def function(data: Any) -> Any:
        raise error

    return function


# --- format -----------------------------------------------------------------------------------------------


def test_the_format_is_computed_without_values_and_the_argument_stays_as_it_is() -> None:
    seen: list[Any] = []

    def declare(data: SampleDataGroup) -> SampleDataGroup:
        seen.append(data["index"])
        return with_surplus(data)

    sample = IndexProvider().get_data(3)
    output = Configurable(same, declare).check_input_data_format_and_set_output_data_format(sample)
    output.add_data_field("more", DT.FLOAT)
    assert seen == [None]
    assert output["index"] is None
    assert (sample["index"], sample.field_names_flat) == (3, ("index",))


def test_a_new_group_may_be_returned() -> None:
    with make_iterator(shuffled(IndexProvider(4)), [Configurable(sums, sums)]) as iterator:
        assert [{name: values.tolist() for name, values in batch.items()} for batch in iterator] == [
            {"sum": [1, 2, 3, 4]}
        ]


def test_values_may_be_constants() -> None:
    def sized(data: SampleDataGroup) -> SampleDataGroup:
        data.add_data_field("size", DT.INT32)
        data["size"] = [480, 640]
        return data

    with make_iterator(shuffled(IndexProvider(4)), [Configurable(sized, sized)]) as iterator:
        [batch] = iterator
    assert batch["size"].tolist() == [[480, 640]] * 4
    assert batch["size"].dtype == np.int32


class ReturnsNothing(ArrayStep):
    def format_after(self, data_empty: SampleDataGroup) -> Any:
        return None

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        return data


@pytest.mark.parametrize("returned", ["None (a missing `return`?)", "dict"])
def test_what_is_no_sample_is_refused(returned: str) -> None:
    def other(data: SampleDataGroup) -> Any:
        return {} if returned == "dict" else None

    for step, method in (
        (Configurable(other), "_process"),
        (Configurable(same, other), "_check_and_adjust_data_format_input_to_output"),
    ):
        words = f"Configurable.{method} must return a SampleDataGroup, got {returned}"
        error = assert_refused(lambda step=step: made(step), words, AssertionError)
        assert isinstance(error, StepOutputError)
    words = "ReturnsNothing.format_after must return a SampleDataGroup, got None"
    assert_refused(lambda: made(ReturnsNothing()), words, StepOutputError)


def test_an_error_of_the_user_keeps_its_kind() -> None:
    class CalibrationError(LookupError):
        pass

    step = Configurable(same, raises(CalibrationError("no calibration")))
    assert_refused(lambda: made(step), "step 0 (Configurable)...no calibration", CalibrationError)


# --- output -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enable_conditionals", [False, True])
@pytest.mark.parametrize(
    ("process", "declare", "words"),
    [
        (same, with_surplus, "surplus"),
        (with_surplus, same, "surplus"),
        (sums, same, "index...sum"),
        (as_float, same, "INT64...FLOAT"),
        (moved_to_the_end, same, "index"),
    ],
)
def test_another_format_than_declared_is_refused(
    process: Any, declare: Any, words: str, enable_conditionals: bool
) -> None:
    step = Configurable(process, declare)
    words = f"Configurable did not produce the format that it declared...{words}"
    provider = NumberProvider(8)
    error = assert_refused(
        lambda: made(step, provider=provider, enable_conditionals=enable_conditionals), words, AssertionError
    )
    assert isinstance(error, StepOutputError)


def test_the_step_that_raises_while_it_defines_its_operators_is_named() -> None:
    with pytest.raises(ZeroDivisionError, match="oh") as caught:
        made(Doubler("index"), Configurable(raises(ZeroDivisionError("oh"))))
    if hasattr(caught.value, "__notes__"):  # Python >= 3.11
        assert caught.value.__notes__ == ["raised while step 1 (Configurable) defined its operators"]


@pytest.mark.parametrize(
    "compute",
    [
        np.mean,
        len,
        lambda node: node if node > 0 else -node,
        lambda node: [one + 1 for one in node],
        lambda node: cv2.resize(node, (2, 2)),
        lambda node: node.mean(),
    ],
)
def test_a_step_that_takes_nodes_for_arrays_is_named_with_what_to_use(compute: Any) -> None:
    def process(data: SampleDataGroup) -> SampleDataGroup:
        data["index"] = compute(data["index"])
        return data

    as_lambda = LambdaStep(compute, input_names="index", output_types={"index": DT.INT64})
    for step in (Configurable(process), as_lambda):
        with pytest.raises(GraphError, match=r"nodes of DALI(.|\n)*MapStep .* ArrayStep") as caught:
            made(Doubler("index"), step)
        kind = type(caught.value).__bases__[-1].__name__
        assert str(caught.value).startswith(f"step 1 ({type(step).__name__}) failed with {kind}: ")


@pytest.mark.parametrize(
    ("error", "compute"),
    [
        (ValueError, raises(ValueError("by hand"))),
        (KeyError, lambda node: {}["by hand"]),
        (KeyError, lambda node: fn.resize(node, no_such=3)),
    ],
)
def test_other_errors_of_a_step_are_left_as_they_are(error: type[Exception], compute: Any) -> None:
    with pytest.raises(error) as caught:
        made(LambdaStep(compute, input_names="index", output_types={"index": DT.INT64}))
    assert type(caught.value) is error


# --- classes ----------------------------------------------------------------------------------------------


def test_both_methods_are_needed() -> None:
    class Half(PipelineStepBase):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            return data

    with pytest.raises(TypeError, match="_check_and_adjust_data_format_input_to_output"):
        Half()


def test_no_constructor_is_needed_and_one_step_may_serve_twice() -> None:
    class PlusOne(PipelineStepBase):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            data["index"] = data["index"] + 1
            return data

        def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
            return data_empty

    step = PlusOne()
    for arguments, named in (([1], {}), ([], {"name": "index"})):
        with pytest.raises(TypeError, match=r"PlusOne\(\) takes no arguments"):
            PlusOne(*arguments, **named)
    for _ in range(2):
        with make_iterator(shuffled(IndexProvider(8)), [step, step]) as iterator:
            assert indices(iterator) == [[2, 3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("enable_conditionals", [False, True])
def test_steps_work_in_a_bare_pipeline(enable_conditionals: bool) -> None:
    @pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=enable_conditionals)
    def bare(step: PipelineStepBase) -> tuple[Any, ...]:
        data = SampleDataGroup()
        data.add_data_field("index", DT.INT64)
        data["index"] = fn.external_source(source=[[np.array(3), np.array(4)]], batch=True, dtype=DT.INT64)
        return step(data).get_data()

    [numbers] = bare(Renamer("index", "number")).run()
    assert np.asarray(numbers.as_tensor()).tolist() == [3, 4]
    assert_refused(lambda: bare(Configurable(same, as_float)), "did not produce the format", Exception)


def test_the_text_shows_class_and_settings() -> None:
    step = DataGroupInPathAppliedStep(Renamer("a", "b"), ("x", 0))
    name, _, settings = repr(step).partition("(")
    assert name == "DataGroupInPathAppliedStep"
    assert settings == "processing_step_to_apply=Renamer(old='a', new='b'), path_to_apply_to=('x', 0))"
