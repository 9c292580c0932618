"""Steps on arrays where a graph needs them: Python runs the one form that they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.arrays import DT, ArrayProvider
from support.draws import flatten
from support.pipelines import make_iterator, shuffled
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader, PipelineDefinition, SequentialSampler, for_each
from accvlab.dali_pipeline_framework.draws import Draws, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import GraphError, NotSupportedError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    BEVBBoxesTransformer3D,
    FieldUse,
    LambdaStep,
    PipelineStepBase,
    VisibleBboxSelector,
)

COUNTS = (3, 0, 1, 5, 0, 2)


class BoxMover(ArrayStep):
    """Moves boxes by a draw, and adds how far; drops boxes with a negative first number."""

    only_in_workers = False

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("shift", 0, 10)]

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return FieldUse([("boxes",)])

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("shift", DT.FLOAT)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        boxes, shift = data["boxes"], draws["shift"]
        if (boxes > 1e6).any():
            raise ValueError("a box is far away")
        data["boxes"] = (boxes + shift)[boxes[:, 0] >= 0]
        data.add_data_field("shift", DT.FLOAT)
        data["shift"] = shift
        return data


class Changer(ArrayStep):
    """Uses fields, and changes a sample by a function of it and of the draws, as a test says."""

    only_in_workers = False

    def __init__(self, change: Callable[..., Any], fields: FieldUse | None = None, **adds: DT) -> None:
        self._change, self._fields, self._adds = change, fields, adds

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return super().fields_used(data_empty) if self._fields is None else self._fields

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for name, dtype in self._adds.items():
            data_empty.add_data_field(name, dtype)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        for name, value in self._change(data, draws).items():
            if name in self._adds:
                data.add_data_field(name, self._adds[name])
            data[name] = value
        return data


class ElementChanger(Changer):
    treats_elements_alike = True


def boxes_of(index: int) -> npt.NDArray[np.float32]:
    boxes = np.arange(4 * COUNTS[index], dtype=np.float32).reshape(-1, 4) + 10 * index
    boxes[1::3, 0] = -1
    return boxes


BOXES = [*map(boxes_of, range(len(COUNTS)))]


def provider(**more: Any) -> ArrayProvider:
    return ArrayProvider({"boxes": (DT.FLOAT, BOXES), "index": (DT.INT32, [*range(len(COUNTS))]), **more})


def in_graph() -> LambdaStep:
    """A step of operators: what follows it runs in the graph."""
    return LambdaStep(lambda index: index + 0, input_names="index", output_types={"index": DT.INT32})


def iterator_of(steps: Sequence[PipelineStepBase], data: Any = None, batch_size: int = 3, **arguments: Any) -> Any:
    arguments = {"seed": 5, "py_num_workers": 0, **arguments}
    return make_iterator(shuffled(data or provider(), batch_size), steps, iterator={"ragged": "list"}, **arguments)


def batches(steps: Sequence[PipelineStepBase], **arguments: Any) -> list[dict[str, Any]]:
    with iterator_of(steps, **arguments) as iterator:
        return [{name: [*values] for name, values in flatten(batch).items()} for batch in iterator]


def assert_same(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            for first, second in zip(one[name], other[name], strict=True):
                np.testing.assert_array_equal(first, second)
                assert np.asarray(first).dtype == np.asarray(second).dtype


EXPECTED = batches([BoxMover(), in_graph()])


def test_the_workers_compute_what_is_expected() -> None:
    assert len(EXPECTED) == 2
    boxes, shift = EXPECTED[0]["boxes"][0], EXPECTED[0]["shift"][0]
    np.testing.assert_array_equal(boxes, (BOXES[0] + np.float32(shift))[[0, 2]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"py_num_workers": 1},
        {"enable_conditionals": True},
        {"enable_checkpointing": True},
        {"exec_dynamic": False},
        {"exec_dynamic": False, "exec_async": False, "exec_pipelined": False},
        {"exec_dynamic": True, "prefetch_queue_depth": 1},
    ],
    ids=str,
)
def test_behind_a_step_of_operators_the_bits_are_the_same(arguments: dict[str, Any]) -> None:
    assert_same(batches([in_graph(), BoxMover()], **arguments), EXPECTED)


def test_in_the_graph_where_that_is_requested() -> None:
    assert_same(batches([BoxMover().with_run("graph"), in_graph()]), EXPECTED)


def test_a_run_goes_on_from_a_checkpoint() -> None:
    steps = [in_graph(), BoxMover()]
    with iterator_of(steps, enable_checkpointing=True) as iterator:
        next(iter(iterator))
        state = iterator.internal_iterator.checkpoint()
    assert_same(batches(steps, enable_checkpointing=True, checkpoint=state), EXPECTED[1:])


# --- errors -----------------------------------------------------------------------------------------------


def refused_by_the_graph(step: PipelineStepBase, data: Any = None) -> str:
    with iterator_of([in_graph(), step], data, batch_size=2) as iterator, pytest.raises(GraphError) as raised:
        next(iter(iterator))
    return str(raised.value)


def test_an_error_names_sample_step_and_rule() -> None:
    boxes = [np.zeros((1, 4)), np.full((2, 4), 1e7)]
    text = refused_by_the_graph(
        BoxMover(), ArrayProvider({"boxes": (DT.FLOAT, boxes), "index": (DT.INT32, [0, 1])})
    )
    assert "sample 1" in text
    assert "field boxes" in text
    assert "ValueError: a box is far away [in step 1: BoxMover]" in text
    assert "sample #" not in text.partition("DALI reports")[0]


def test_what_a_step_does_not_declare_is_refused() -> None:
    of_boxes = FieldUse([("boxes",)])
    wrong_type = Changer(lambda data, draws: {"boxes": np.zeros((1, 4), np.float64)}, of_boxes)
    assert "boxes: is declared as float32, got float64" in refused_by_the_graph(wrong_type)
    curious = Changer(lambda data, draws: {"boxes": data["boxes"] + data["index"]}, of_boxes)
    assert "a field that `fields_used` does not name" in refused_by_the_graph(curious)


class AsksForANode(BoxMover):
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        assert (len(draws), [*draws], "other" in draws) == (1, ["shift"], False)
        self.draw("shift")
        return data


def test_draws_come_as_the_argument() -> None:
    undeclared = Changer(lambda data, draws: draws["other"])
    assert_refused(lambda: undeclared(provider().get_data(0)), "draws['other'] of Changer: there is no such draw.")
    assert_refused(
        lambda: AsksForANode()(provider().get_data(0)),
        "AsksForANode.draw('shift') is for `_process`: `arrays` gets the numbers, as `draws['shift']`",
    )


def test_debug_mode_is_refused() -> None:
    definition = PipelineDefinition(shuffled(provider(), 2), [BoxMover().with_run("graph")])
    pipeline = definition.get_dali_pipeline(debug=True, num_threads=1, py_num_workers=0)
    pipeline.build()
    assert_refused(pipeline.run, "cannot be part of a graph with debug=True", NotSupportedError)


# --- bare pipelines, fields and elements ------------------------------------------------------------------


def test_fields_that_a_step_does_not_use_stay_what_workers_sent() -> None:
    images = [np.full((2 + index, 3, 3), index, np.uint8) for index in range(len(COUNTS))]
    with iterator_of([in_graph(), BoxMover()], provider(image=(DT.UINT8, images))) as iterator:
        plan = iterator.internal_iterator.plan
        batch = next(iter(iterator))
    assert "step 1 (BoxMover): no arrays are folded, on arrays, by Python in the graph" in plan
    for image, expected in zip(batch["image"], images[:3], strict=True):
        np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("folds", [True, False])
def test_elements_of_an_array_are_one_batch(folds: bool) -> None:
    random = np.random.default_rng(3)
    cameras: dict[Any, Any] = {}
    for number in range(4):
        boxes = [random.uniform(0, 90, (COUNTS[(number + each) % 6], 4)) for each in range(6)]
        depths = [random.uniform(0, 9, len(each)) for each in boxes]
        cameras[number] = {"boxes": (DT.FLOAT, boxes), "depths": (DT.FLOAT, depths)}
    data = ArrayProvider({"cameras": cameras, "index": (DT.INT32, [*range(6)])})
    selector = VisibleBboxSelector(
        "boxes", "is_visible", image_hw=[90, 90], depths_field_name="depths", minimum_bbox_size=5
    )
    keeper = ElementChanger(lambda data, draws: {"boxes": data["boxes"][data["is_visible"]]})
    scaler = BEVBBoxesTransformer3D(None, None, "depths", None, None, None, None, None, None, [0.5, 2.0], None)
    steps = [for_each("cameras", selector), for_each("cameras", keeper), scaler]
    how = {"data": data, "definition": {"fold_arrays": folds}}
    assert_same(batches([in_graph(), *steps], **how), batches([*steps, in_graph()], **how))


KEPT: list[Any] = []


def keep_boxes(data: SampleDataGroup, draws: Draws) -> dict[str, Any]:
    KEPT.append(data["boxes"])
    return {"number": 7}


def test_what_a_step_keeps_stays_as_it_is() -> None:
    KEPT.clear()
    keeper = Changer(keep_boxes, FieldUse(read=[("boxes",)]), number=DT.INT32)
    assert [batch["number"] for batch in batches([in_graph(), keeper])] == [[7] * 3] * 2
    for kept, boxes in zip(KEPT, BOXES, strict=True):
        np.testing.assert_array_equal(kept, boxes)


@pytest.mark.parametrize("run", ["workers", "graph"])
def test_text_is_what_it_is_in_the_workers(run: Any) -> None:
    def greet(data: SampleDataGroup, draws: Draws) -> dict[str, Any]:
        name = data["name"]
        assert isinstance(name, str)
        return {
            "index": data["index"] + np.int32(len(name)),
            "name": name.upper(),
            "greeting": f"Grüß Gott, {name}",
        }

    names, towns = ["Ana", "", "Zoë", "b" * 300], ["Riga", "", "Łódź", "x"]
    data = ArrayProvider(
        {"index": (DT.INT32, [*range(4)]), "name": (DT.STRING, names), "town": (DT.STRING, towns)}
    )
    steps = [Changer(greet, greeting=DT.STRING)]
    how = {"sampler": SequentialSampler(4), "num_workers": 0, "device_id": None, "output_type": "numpy"}
    with DataLoader(data, 4, steps=steps, run=run, **how) as loader:
        batch = next(iter(loader))
    assert batch["index"].tolist() == [3, 1, 5, 303]
    assert batch["name"] == ["ANA", "", "ZOË", "B" * 300]
    assert batch["greeting"] == [f"Grüß Gott, {name}" for name in names]
    assert batch["town"] == towns
