"""Steps on arrays where a graph needs them: Python runs the one form that they have."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import pipeline_def
from nvidia.dali.pipeline import Pipeline
from support.arrays import DT, ArrayProvider
from support.draws import flatten
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework import DataLoader, PipelineDefinition, SequentialSampler, for_each
from accvlab.dali_pipeline_framework.draws import Draws, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import GraphError, NotSupportedError, SettingError
from accvlab.dali_pipeline_framework.extension import find_paths
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    BEVBBoxesTransformer3D,
    FieldUse,
    LambdaStep,
    PipelineStepBase,
    VisibleBboxSelector,
)

NUM_SAMPLES = 6
AS_LIST = {"ragged": "list"}
COUNTS = (3, 0, 1, 5, 0, 2)


class BoxMover(ArrayStep):
    """Moves boxes by a draw, and adds how far; drops boxes with a negative first number."""

    only_in_workers = False

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("shift", 0, 10)]

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return FieldUse([("boxes",)])

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("shift", DT.FLOAT)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        time.sleep(self._seconds)
        boxes, shift = data["boxes"], draws["shift"]
        if (boxes > 1e6).any():
            raise ValueError("a box is far away")
        data["boxes"] = (boxes + shift)[boxes[:, 0] >= 0]
        data.add_data_field("shift", DT.FLOAT)
        data["shift"] = shift
        return data


def boxes_of(index: int) -> npt.NDArray[np.float32]:
    boxes = np.arange(4 * COUNTS[index], dtype=np.float32).reshape(-1, 4) + 10 * index
    boxes[1::3, 0] = -1
    return boxes


def provider(**more: Any) -> ArrayProvider:
    boxes = [boxes_of(index) for index in range(NUM_SAMPLES)]
    return ArrayProvider({"boxes": (DT.FLOAT, boxes), "index": (DT.INT32, [*range(NUM_SAMPLES)]), **more})


def in_graph() -> LambdaStep:
    """A step of operators: what follows it runs in the graph."""
    return LambdaStep(lambda index: index + 0, input_names="index", output_types={"index": DT.INT32})


def batches(steps: Sequence[PipelineStepBase], **arguments: Any) -> list[dict[str, Any]]:
    with make_iterator(shuffled(provider(), 3), steps, iterator=AS_LIST, seed=5, **arguments) as iterator:
        return [{name: [*values] for name, values in batch.items()} for batch in iterator]


def assert_same(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    assert len(found) == len(expected) == 2
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            for first, second in zip(one[name], other[name], strict=True):
                np.testing.assert_array_equal(first, second)
                assert np.asarray(first).dtype == np.asarray(second).dtype


EXPECTED = batches([BoxMover(), in_graph()])


def test_the_workers_compute_what_is_expected() -> None:
    boxes, shift = EXPECTED[0]["boxes"][0], EXPECTED[0]["shift"][0]
    np.testing.assert_array_equal(boxes, (boxes_of(0) + np.float32(shift))[[0, 2]])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"py_num_workers": 0},
        {"enable_conditionals": True},
        {"enable_checkpointing": True},
        {"exec_dynamic": False},
        {"exec_dynamic": False, "exec_async": False, "exec_pipelined": False, "py_num_workers": 0},
        {"exec_dynamic": True, "prefetch_queue_depth": 1},
    ],
    ids=str,
)
def test_behind_a_step_of_operators_the_bits_are_the_same(arguments: dict[str, Any]) -> None:
    assert_same(batches([in_graph(), BoxMover()], **arguments), EXPECTED)


def test_in_the_graph_where_that_is_requested() -> None:
    assert_same(batches([BoxMover().with_run("graph"), in_graph()]), EXPECTED)


def test_a_run_goes_on_from_a_checkpoint() -> None:
    arguments = {"enable_checkpointing": True, "py_num_workers": 0, "seed": 5}
    steps = [in_graph(), BoxMover()]
    with make_iterator(shuffled(provider(), 3), steps, iterator=AS_LIST, **arguments) as iterator:
        next(iter(iterator))
        state = iterator.internal_iterator.checkpoint()
    with make_iterator(
        shuffled(provider(), 3), steps, iterator=AS_LIST, checkpoint=state, **arguments
    ) as iterator:
        batch = next(iter(iterator))
    for found, expected in zip(batch["boxes"], EXPECTED[1]["boxes"], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_several_pipelines_at_once_and_one_after_the_other() -> None:
    steps = [in_graph(), BoxMover()]
    one, other = (make_iterator(shuffled(provider(), 3), steps, iterator=AS_LIST, seed=seed) for seed in (5, 6))
    for first, second, expected in zip(one, other, EXPECTED, strict=True):
        np.testing.assert_array_equal(np.array([*first["shift"]]), np.array(expected["shift"]))
        assert [*first["shift"]] != [*second["shift"]]
    one.close()
    other.close()
    assert_same(batches(steps), EXPECTED)


def test_closing_while_a_batch_is_computed() -> None:
    began = time.perf_counter()
    for _ in range(2):
        iterator = make_iterator(
            shuffled(provider(), 3),
            [in_graph(), BoxMover(0.05)],
            iterator=AS_LIST,
            prefetch_queue_depth=3,
        )
        next(iter(iterator))
        iterator.close()
        del iterator
        gc.collect()
    assert time.perf_counter() - began < 20


def test_a_process_may_be_forked_while_a_graph_calls_python() -> None:
    with make_iterator(shuffled(provider(), 3), [in_graph(), BoxMover(0.02)], iterator=AS_LIST) as iterator:
        batches_of = iter(iterator)
        next(batches_of)
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        next(batches_of)


def test_python_of_the_loop_runs_meanwhile() -> None:
    counted = [0]
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(0.001):
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        batches([in_graph(), BoxMover(0.02)])
    finally:
        ended.set()
        thread.join()
    assert counted[0] > 10


class TestErrors:
    def failing(self, steps: Sequence[PipelineStepBase]) -> str:
        boxes = [np.zeros((1, 4)), np.full((2, 4), 1e7)]
        data = ArrayProvider({"boxes": (DT.FLOAT, boxes), "index": (DT.INT32, [0, 1])})
        iterator = make_iterator(shuffled(data, 2), steps, py_num_workers=0)
        with iterator, pytest.raises(GraphError) as raised:
            next(iter(iterator))
        return str(raised.value)

    def test_names_sample_step_and_rule(self) -> None:
        text = self.failing([in_graph(), BoxMover()])
        assert "sample 1" in text
        assert "field boxes" in text
        assert "ValueError: a box is far away [in step 1: BoxMover]" in text
        assert "sample #" not in text.partition("DALI reports")[0]

    def test_a_result_of_another_type_is_reported(self) -> None:
        class Wrong(BoxMover):
            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                data = super().arrays(data, draws)
                data["boxes"] = np.zeros((1, 4), np.float64)
                return data

        iterator = make_iterator(shuffled(provider(), 2), [in_graph(), Wrong()], py_num_workers=0)
        with iterator, pytest.raises(GraphError, match="boxes: is declared as float32, got float64"):
            next(iter(iterator))

    def test_a_field_that_is_not_named_cannot_be_read(self) -> None:
        class Curious(BoxMover):
            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                np.asarray(data["index"])
                return super().arrays(data, draws)

        iterator = make_iterator(shuffled(provider(), 2), [in_graph(), Curious()], py_num_workers=0)
        with iterator, pytest.raises(GraphError, match="a field that `fields_used` does not name"):
            next(iter(iterator))

    def test_draws_come_as_the_argument(self) -> None:
        class Undeclared(BoxMover):
            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                assert [*draws] == ["shift"]
                assert (len(draws), "other" in draws, draws.get("other")) == (1, False, None)
                draws["other"]
                return data

        class AsksForANode(BoxMover):
            def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
                self.draw("shift")
                return data

        sample = provider().get_data(0)
        with pytest.raises(
            SettingError, match=r"draws\['other'\] of Undeclared: there is no such draw\. .*: 'shift'"
        ):
            Undeclared()(sample)
        told = r"AsksForANode\.draw\('shift'\) is for `_process`: `arrays` gets the numbers, as `draws\['shift'\]`"
        with pytest.raises(SettingError, match=told):
            AsksForANode()(sample)

    def test_debug_mode_is_refused(self) -> None:
        definition = PipelineDefinition(shuffled(provider(), 2), [BoxMover().with_run("graph")])
        pipeline = definition.get_dali_pipeline(debug=True, num_threads=1, py_num_workers=0)
        pipeline.build()
        with pytest.raises(NotSupportedError, match="cannot be part of a graph with debug=True"):
            pipeline.run()


def bare_pipeline(device_id: int | None = None) -> Pipeline:
    @pipeline_def(batch_size=3, num_threads=1, device_id=device_id, seed=3)
    def bare() -> Any:
        data = provider().sample_data_structure
        boxes = fn.external_source([[boxes_of(index) for index in range(3)]], cycle=True)
        index = fn.external_source([np.zeros(3, np.int32)], cycle=True)
        data.set_data([boxes if device_id is None else boxes.gpu(), index])
        return tuple(BoxMover()(data).get_data())

    pipeline = bare()
    pipeline.build()
    return pipeline


def test_in_a_bare_pipeline_dali_draws() -> None:
    pipeline = bare_pipeline()
    shifts: list[float] = []
    for _ in range(2):
        boxes, _, shift = pipeline.run()
        for index in range(3):
            own = boxes_of(index)
            np.testing.assert_array_equal(boxes.at(index), (own + shift.at(index))[own[:, 0] >= 0])
            shifts.append(float(shift.at(index)))
    assert len({*shifts}) == 6


def test_fields_that_a_step_does_not_use_stay_what_workers_sent() -> None:
    images = [np.full((2 + index, 3, 3), index, np.uint8) for index in range(NUM_SAMPLES)]
    data = provider(image=(DT.UINT8, images))
    with make_iterator(
        shuffled(data, 3), [in_graph(), BoxMover()], iterator=AS_LIST, py_num_workers=0
    ) as iterator:
        plan = iterator.internal_iterator.plan
        batch = next(iter(iterator))
    assert "step 1 (BoxMover): no arrays are folded, on arrays, by Python in the graph" in plan
    for image, expected in zip(batch["image"], images, strict=False):
        np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("folds", [True, False])
def test_elements_of_an_array_are_one_batch(folds: bool) -> None:
    random = np.random.default_rng(3)

    def camera(number: int) -> dict[str, Any]:
        boxes = [random.uniform(0, 90, (COUNTS[(number + each) % 6], 4)) for each in range(NUM_SAMPLES)]
        depths = [random.uniform(0, 9, len(each)) for each in boxes]
        return {"boxes": (DT.FLOAT, boxes), "depths": (DT.FLOAT, depths)}

    cameras = {number: camera(number) for number in range(4)}
    data = ArrayProvider({"cameras": cameras, "index": (DT.INT32, [*range(NUM_SAMPLES)])})
    selector = VisibleBboxSelector(
        "boxes", "is_visible", image_hw=[90, 90], depths_field_name="depths", minimum_bbox_size=5
    )
    scaler = BEVBBoxesTransformer3D(None, None, "depths", None, None, None, None, None, None, [0.5, 2.0], None)
    steps = [for_each("cameras", selector), for_each("cameras", Keeper()), scaler]
    found = []
    for several in ([in_graph(), *steps], [*steps, in_graph()]):
        settings = {"fold_arrays": folds}
        with make_iterator(shuffled(data, 3), several, settings, AS_LIST, py_num_workers=0, seed=2) as iterator:
            found.append([flatten(batch) for batch in iterator])
    assert_same(*found)


class Constant(ArrayStep):
    """Adds a number; keeps what it is given."""

    only_in_workers = False
    kept: list[Any] = []  # noqa: RUF012 (of all instances)

    def __init__(self, *names: str) -> None:
        self._names = names

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return FieldUse(read=[(name,) for name in self._names])

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("number", DT.INT32)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        self.kept.extend(data[name] for name in self._names)
        data.add_data_field("number", DT.INT32)
        data["number"] = 7
        return data


def test_a_step_may_use_nothing() -> None:
    with make_iterator(shuffled(provider(), 3), [in_graph(), Constant()], iterator=AS_LIST) as iterator:
        assert [[*map(int, batch["number"])] for batch in iterator] == [[7] * 3] * 2


def test_what_is_not_used_is_not_computed() -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def bare() -> Any:
        data = provider().sample_data_structure
        boxes, index = (fn.external_source([[array]], cycle=True) for array in (boxes_of(0), np.int32(0)))
        data.set_data([boxes, index])
        return Constant("boxes")(data)["index"]

    Constant.kept.clear()
    pipeline = bare()
    pipeline.build()
    pipeline.run()
    assert Constant.kept == []


def test_what_a_step_keeps_stays_as_it_is() -> None:
    Constant.kept.clear()
    steps = [in_graph(), Constant("boxes")]
    with make_iterator(shuffled(provider(), 3), steps, iterator=AS_LIST, py_num_workers=0) as iterator:
        assert len([*iterator]) == 2
    for index in range(NUM_SAMPLES):
        np.testing.assert_array_equal(Constant.kept[index], boxes_of(index))


class OfTwoLevels(ArrayStep):
    """Scales the gains of cameras by a number of the sample."""

    only_in_workers = False
    treats_elements_alike = True  # which is wrong

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return FieldUse(find_paths(data_empty, ["gain"]), read=[("index",)])

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        for path in find_paths(data, ["gain"]):
            data.set_item_in_path(path, data.get_item_in_path(path) * np.float32(data["index"]))
        return data


class Doubler(ArrayStep):
    """Doubles the gain of a camera."""

    only_in_workers = False
    treats_elements_alike = True

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        data["gain"] = data["gain"] * np.float32(2)
        return data


def test_what_cannot_be_folded_is_computed_by_element() -> None:
    cameras = {number: {"gain": (DT.FLOAT, [np.float32(number + 1)] * 4)} for number in range(3)}
    data = ArrayProvider({"cameras": cameras, "index": (DT.INT32, [*range(4)])})
    steps = [in_graph(), for_each("cameras", Doubler()), OfTwoLevels()]
    with make_iterator(shuffled(data, 2), steps, py_num_workers=0, prefetch_queue_depth=1) as iterator:
        found = [flatten(batch)["cameras.2.gain"].tolist() for batch in iterator]
        assert "it works on" in iterator.internal_iterator.not_folded[2]
        assert "once for all elements of cameras (3), on arrays" in iterator.internal_iterator.plan
    assert found == [[0, 6], [12, 18]]


@pytest.mark.gpu
def test_fields_on_a_gpu_are_copied_and_come_back() -> None:
    boxes, _, shift = bare_pipeline(device_id=0).run()
    assert type(boxes).__name__ == "TensorListGPU"
    for index, own in enumerate(map(boxes_of, range(3))):
        np.testing.assert_array_equal(boxes.as_cpu().at(index), (own + shift.at(index))[own[:, 0] >= 0])


class Keeper(ArrayStep):
    """Keeps the visible boxes."""

    only_in_workers = False
    treats_elements_alike = True

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        data["boxes"] = data["boxes"][data["is_visible"]]
        return data


class Greeter(ArrayStep):
    """Changes one text, adds another, and counts letters; names no fields."""

    only_in_workers = False

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("greeting", DT.STRING)
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        name = data["name"]
        assert isinstance(name, str)
        data["index"] = data["index"] + np.int32(len(name))
        data["name"] = name.upper()
        data.add_data_field("greeting", DT.STRING)
        data["greeting"] = f"Grüß Gott, {name}"
        return data


@pytest.mark.parametrize("run", ["workers", "graph"])
def test_text_is_what_it_is_in_the_workers(run: Any) -> None:
    names, towns = ["Ana", "", "Zoë", "b" * 300], ["Riga", "", "Łódź", "x"]
    fields = {"index": (DT.INT32, [*range(4)]), "name": (DT.STRING, names), "town": (DT.STRING, towns)}
    provider = ArrayProvider(fields)
    order = SequentialSampler(4)
    with DataLoader(
        provider, 4, steps=[Greeter()], sampler=order, run=run, num_workers=0, device_id=None
    ) as loader:
        batch = next(iter(loader))
    assert batch["index"].tolist() == [3, 1, 5, 303]
    assert batch["name"] == ["ANA", "", "ZOË", "B" * 300]
    assert batch["greeting"] == [f"Grüß Gott, {name}" for name in names]
    assert batch["town"] == towns
