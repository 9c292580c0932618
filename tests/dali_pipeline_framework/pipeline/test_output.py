"""What comes out: arrays of the right kind, without copies, and errors for what cannot come out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from support.array_samples import group_of
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.laws import each_value
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.steps import Doubler

from accvlab.dali_pipeline_framework.errors import OutputError
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder

IN_PROCESS = {"py_num_workers": 0}
EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]
ARRAY_TYPES = {"torch": torch.Tensor, "numpy": np.ndarray}

NUMPY_OF_DALI = {
    DT.BOOL: np.bool_,
    DT.INT8: np.int8,
    DT.INT16: np.int16,
    DT.INT32: np.int32,
    DT.INT64: np.int64,
    DT.UINT8: np.uint8,
    DT.UINT16: np.uint16,
    DT.UINT32: np.uint32,
    DT.UINT64: np.uint64,
    DT.FLOAT16: np.float16,
    DT.FLOAT: np.float32,
    DT.FLOAT64: np.float64,
}


def batches_of(fields: dict[str, Any], batch_size: int = 2, **arguments: Any) -> list[dict[str, Any]]:
    with make_iterator(shuffled(ArrayProvider(fields), batch_size), **{**IN_PROCESS, **arguments}) as iterator:
        return [*iterator]


def pipeline_of(provider: Any, *steps: Any, **arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(provider), steps)
    return definition.get_dali_pipeline(**{"num_threads": 1, **IN_PROCESS, **arguments})


class TestArrays:
    @pytest.mark.parametrize("output_type", ARRAY_TYPES)
    def test_each_type_keeps_its_type_values_and_shape(self, output_type: str) -> None:
        fields, expected = {}, {}
        for dali_type, numpy_type in NUMPY_OF_DALI.items():
            top = 1 if dali_type == DT.BOOL else np.iinfo(numpy_type).max if dali_type.name[0] in "IU" else 1.5
            values = {
                "scalar": [0, top],
                "vector": [[0, top, 1], [top, 1, 0]],
                "matrix": [[[top], [1]], [[0], [top]]],
                "empty": [np.zeros((0, 4)), np.zeros((0, 4))],
            }
            fields |= {f"{dali_type.name} {name}": (dali_type, value) for name, value in values.items()}
            expected |= {f"{dali_type.name} {name}": np.array(value, numpy_type) for name, value in values.items()}
        [batch] = batches_of(fields, iterator={"output_type": output_type})
        assert [*batch] == [*expected]
        for name, array in batch.items():
            assert isinstance(array, ARRAY_TYPES[output_type])
            np.testing.assert_array_equal(np.asarray(array), expected[name], err_msg=name, strict=True)

    def test_by_default_they_are_tensors_in_nested_dicts_with_the_keys_of_the_sample(self) -> None:
        with DALIStructuredOutputIterator(None, pipeline_of(NumberProvider(4))) as iterator:
            [batch] = iterator
        assert [*batch] == ["index", "pair", "name", "cameras"]
        assert [*batch["cameras"]] == [0, 1]
        assert type(batch["index"]) is torch.Tensor
        assert batch["index"].device == torch.device("cpu")
        assert batch["pair"].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
        assert batch["name"] == ["", "x", "xx", ""]
        assert [batch["cameras"][camera]["label"].tolist() for camera in range(2)] == [[1] * 4, [-1] * 4]
        assert batch["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]

    def test_empty_groups_stay(self) -> None:
        fields = {"index": (DT.INT64, [3]), "meta": {}}
        assert batches_of(fields, 1) == [{"index": np.array([3]), "meta": {}}]

    def test_without_conversion_to_dicts(self) -> None:
        arguments = {"convert_sample_data_group_to_dict": False, "output_type": "torch"}
        with make_iterator(shuffled(NumberProvider(4)), iterator=arguments, **IN_PROCESS) as iterator:
            [batch] = iterator
            assert isinstance(batch, SampleDataGroup)
            assert batch.type_matches(iterator.sample_data_structure_blueprint)
        assert batch["name"] == ["", "x", "xx", ""]
        assert isinstance(batch.get_item_in_path(("cameras", 1, "gain")), torch.Tensor)

    @pytest.mark.parametrize("convert", [True, False])
    def test_the_result_of_the_post_processing_is_delivered(self, convert: bool) -> None:
        def post_process(batch: Any) -> tuple[type, list[int]]:
            return type(batch), batch["index"].tolist()

        arguments = {"post_process_func": post_process, "convert_sample_data_group_to_dict": convert}
        with make_iterator(shuffled(IndexProvider(8)), iterator=arguments, **IN_PROCESS) as iterator:
            assert [*iterator] == [(dict if convert else SampleDataGroup, batch) for batch in EIGHT]

    @pytest.mark.parametrize("output_type", ARRAY_TYPES)
    def test_texts_are_lists_of_str(self, output_type: str) -> None:
        texts = ["", "", "a", "", "", "long text", "Straße", "東京", "a b\n", "c", "", ""]
        batches = batches_of({"text": (DT.STRING, texts)}, iterator={"output_type": output_type})
        assert [text for batch in batches for text in batch["text"]] == texts


class TestNoCopy:
    """Batches that are held keep their values; nothing is copied for that."""

    @each_value(
        arguments=[IN_PROCESS, {"py_num_workers": 2}, {"exec_dynamic": False}],  # DALI recycles the last's buffers
        batch_size=[1, 4],
        output_type=ARRAY_TYPES,
    )
    def test_held_batches_stay_as_they_are(self, arguments: dict, batch_size: int, output_type: str) -> None:
        big = [np.full((64, 64), index) for index in range(16)]
        data_input = shuffled(ArrayProvider({"index": (DT.INT32, big)}), batch_size)
        with make_iterator(data_input, iterator={"output_type": output_type}, **arguments) as iterator:
            held = [batch["index"] for batch in iterator] + [batch["index"] for batch in iterator]
        del iterator
        for number, array in enumerate(held):
            first = number % (16 // batch_size) * batch_size
            assert np.asarray(array)[:, 5, 7].tolist() == [*range(first, first + batch_size)]
            assert len(np.unique(np.asarray(array))) == batch_size

    @pytest.mark.parametrize("output_type", ARRAY_TYPES)
    @pytest.mark.parametrize("steps", [[], [Doubler("index")]], ids=["packed", "of a step"])
    def test_the_arrays_are_dali_s_memory(self, steps: list[Any], output_type: str) -> None:
        pipeline = pipeline_of(NumberProvider(8), *steps)
        buffers: list[np.ndarray] = []
        run_graph = pipeline.run_graph

        def recording_run() -> Any:
            outputs = run_graph()
            buffers.append(np.asarray(outputs[len(steps)].as_tensor()))
            return outputs

        pipeline.run_graph = recording_run
        with DALIStructuredOutputIterator(None, pipeline, output_type=output_type) as iterator:
            batches = [*iterator]
        assert len(batches) == 2
        for batch, buffer in zip(batches, buffers, strict=False):
            found = [batch["index"]] if steps else [batch["index"], batch["pair"], batch["cameras"][0]["label"]]
            assert all(np.shares_memory(np.asarray(array), buffer) for array in found)


class CurrentDevice:
    """Stands for ``torch.cuda.device``."""

    current: int | None = None

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        CurrentDevice.current = self.number

    def __exit__(self, *exception: object) -> None:
        CurrentDevice.current = None


@pytest.mark.parametrize(
    ("steps", "output_type", "expected"),
    [([], "torch", ["stream of 1"] * 2), ([], "numpy", [None] * 2), ([Doubler("index")], "torch", [None] * 2)],
)
def test_with_tensors_of_pytorch_its_current_stream_waits_for_the_gpu_and_not_the_host(
    steps: list[Any], output_type: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device", CurrentDevice)
    streams = []
    outputs = Pipeline.outputs

    def recorded(pipeline: Pipeline, cuda_stream: Any = None) -> Any:
        assert CurrentDevice.current == (1 if output_type == "torch" else None)
        streams.append(cuda_stream)
        return outputs(pipeline)

    monkeypatch.setattr(Pipeline, "outputs", recorded)
    pipeline = pipeline_of(IndexProvider(8), *steps)
    pipeline.build()
    pipeline._device_id = 1  # it has no outputs on a GPU
    pipeline.may_bind_outputs = not steps
    with DALIStructuredOutputIterator(None, pipeline, output_type=output_type) as iterator:
        assert len(indices(iterator)) == 2
    assert streams[:2] == expected


RAGGED_FIELDS = {
    "index": (DT.INT64, [0, 1, 2, 3]),
    "lidar": {"points": (DT.FLOAT, [np.ones((3, 2)), np.ones((5, 2)), np.ones((5, 2)), np.ones((5, 2))])},
}
RAGGED_CAMERAS = {"cameras": {0: (DT.FLOAT, [np.ones(2), np.ones(3)]), 1: (DT.FLOAT, [np.ones(1)] * 2)}}
FILES = [np.ones(3), np.ones(5), np.ones(4), np.ones(4)]


class TestRagged:
    def test_is_an_error_that_names_field_and_shapes(self) -> None:
        message = (
            "lidar.points: all samples of a batch must have the same shape to form one array, got the shapes "
            "(3, 2), (5, 2). Resize or pad the field in a step (ImageResizer, PaddingToUniform), or pass "
            "ragged={'points': 'list'} to the loader or iterator."
        )
        error = assert_refused(lambda: batches_of(RAGGED_FIELDS, 4), "", OutputError)
        assert str(error) == message
        assert isinstance(error, RuntimeError)
        words = "cameras[0]: ... pass ragged={'cameras': 'list'} to"
        assert_refused(lambda: batches_of(RAGGED_CAMERAS), words, OutputError)

    @pytest.mark.parametrize(
        ("field", "is_told"),
        [
            ((DT.UINT8, FILES), True),
            ((DT.FLOAT, FILES), False),
            ((DT.UINT8, [each[None] for each in FILES]), False),
        ],
    )
    def test_what_may_be_encoded_images_is_to_be_decoded(self, field: Any, is_told: bool) -> None:
        error = assert_refused(lambda: batches_of({"image": field}), "", OutputError)
        assert ("(5,). If these are encoded images, decode them" in str(error)) == is_told

    @each_value(output_type=ARRAY_TYPES, exec_dynamic=[True, False])
    def test_is_a_list_of_arrays_on_request(self, output_type: str, exec_dynamic: bool) -> None:
        arguments = {"iterator": {"ragged": "list", "output_type": output_type}, "exec_dynamic": exec_dynamic}
        shapes = (3, 2), (0, 2), (5, 2), (5, 2), (4, 2), (6, 2)
        points = [np.full(shape, number, np.float32) for number, shape in enumerate(shapes)]
        fields = {"index": (DT.INT64, [*range(6)]), "lidar": {"points": (DT.FLOAT, points)}}
        batches = batches_of({**fields, "town": (DT.STRING, ["Ulm"] * 6)}, **arguments)
        assert [batch["town"] for batch in batches] == [["Ulm"] * 2] * 3
        for name, batch in (("points", [each["lidar"] for each in batches]), ("index", batches)):
            assert [len(each[name]) for each in batch] == [2] * 3  # always a list
            found = [array for each in batch for array in each[name]]
            assert {type(array) for array in found} == {ARRAY_TYPES[output_type]}
            for array, expected in zip(found, points if name == "points" else range(6), strict=True):
                np.testing.assert_array_equal(np.asarray(array), expected)
                assert array.shape == np.shape(expected)

    @pytest.mark.parametrize(
        "policies",
        [
            *({key: "list"} for key in ("points", "lidar", ("lidar",), ("lidar", "points"))),
            {(): "list", "index": "raise"},  # a later policy takes precedence
        ],
        ids=str,
    )
    def test_is_a_list_for_the_fields_that_are_named(self, policies: Any) -> None:
        for batch in batches_of(RAGGED_FIELDS, iterator={"ragged": policies}):
            assert isinstance(batch["lidar"]["points"], list)
            assert isinstance(batch["index"], np.ndarray)


@each_value(output_type=ARRAY_TYPES, exec_dynamic=[True, False])
def test_cameras_of_different_sizes_are_arrays_of_their_own(output_type: str, exec_dynamic: bool) -> None:
    images = [[gradient(16, 24 + 8 * camera, 10 * sample) for camera in range(3)] for sample in range(6)]
    files = [[encoded_image(image, "PNG") for image in row] for row in images]
    cameras = {camera: {"image": (DT.UINT8, [row[camera] for row in files])} for camera in range(3)}
    arguments = {"iterator": {"output_type": output_type}, "exec_dynamic": exec_dynamic, "in_graph": True}
    batches = batches_of({"cameras": cameras}, 3, steps=[ImageDecoder("image", False)], **arguments)
    for batch, rows in zip(batches, (images[:3], images[3:]), strict=True):
        for camera in range(3):
            found = batch["cameras"][camera]["image"]
            assert type(found) is ARRAY_TYPES[output_type]
            np.testing.assert_array_equal(np.asarray(found), np.stack([row[camera] for row in rows]))


RAGGED_RULE = "`ragged` must be 'raise' or 'list', or a dict of these by field, got {!r}"
NO_SUCH_FIELD = "`ragged` names {!r}, but the output has no such field. Its fields are index."


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            *(({"ragged": each}, RAGGED_RULE.format(each)) for each in ("pad", {"index": "pad"})),
            *(({"ragged": {key: "list"}}, NO_SUCH_FIELD.format(key)) for key in ("indx", ("index", 0), 3)),
            ({"ragged": {"indx": "list"}}, "Did you mean 'index'?"),
            ({"pipeline": None}, "`pipeline` must be given"),
            (
                {"sample_data_structure_blueprint": group_of(a=DT.INT64, b=DT.INT64)},
                "The pipeline has 1 outputs, but the blueprint has 2 data fields. Use the blueprint of",
            ),
            (
                {"dali_generic_iterator_class": DALIGenericIterator, "stack_arrays": True},
                "`stack_arrays` does not go with `dali_generic_iterator_class`",
            ),
            *(
                ({"dali_generic_iterator_class": DALIGenericIterator, name: "pad"}, f"`{name}` must be")
                for name in ("output_type", "ragged")
            ),
        ],
    )
    def test_wrong_ones_are_refused(self, arguments: dict[str, Any], words: str) -> None:
        how = {"pipeline": pipeline_of(IndexProvider()), "output_type": "numpy", **arguments}
        assert_refused(lambda: DALIStructuredOutputIterator(**how), words)

    def test_a_pipeline_in_the_first_place_is_refused(self) -> None:
        words = "The first argument is `num_batches_in_epoch`, got a pipeline"
        assert_refused(lambda: DALIStructuredOutputIterator(pipeline_of(IndexProvider())), words)

    def test_pytorch_is_needed_for_its_tensors_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails
        with make_iterator(shuffled(IndexProvider(8)), **IN_PROCESS) as iterator:
            assert indices(iterator) == EIGHT
        words = "The output as PyTorch tensors needs PyTorch, which is not installed. ... output_type='numpy'."
        assert_refused(lambda: DALIStructuredOutputIterator(None, pipeline_of(IndexProvider())), words)

    def test_a_given_blueprint_is_not_filled_and_that_of_the_iterator_is_a_copy(self) -> None:
        blueprint = IndexProvider().sample_data_structure
        pipeline = pipeline_of(IndexProvider(8))
        with DALIStructuredOutputIterator(3, pipeline, blueprint) as iterator:
            assert len(iterator) == 3
            assert indices(iterator) == EIGHT
            assert blueprint.get_data() == (None,)
            assert iterator.internal_iterator is pipeline
            given = iterator.sample_data_structure_blueprint
            assert (given.field_names_flat, given.get_data()) == (("index",), (None,))
            given.remove_field("index")
            assert iterator.sample_data_structure_blueprint.field_names_flat == ("index",)

    @pytest.mark.parametrize("dataset", [None, []])  # empty, and still the data set
    def test_the_data_set_is_the_given_one_or_the_iterator(self, dataset: Any) -> None:
        with make_iterator(shuffled(IndexProvider()), iterator={"contained_dataset": dataset}) as iterator:
            assert iterator.dataset is (iterator if dataset is None else dataset)


class TestForeignIterators:
    def test_dali_s_own_for_pytorch(self) -> None:
        arguments = {"dali_generic_iterator_class": DALIGenericIterator}
        with make_iterator(shuffled(NumberProvider(12)), iterator=arguments, **IN_PROCESS) as iterator:
            assert type(iterator.internal_iterator) is DALIGenericIterator
            batches = [*iterator]
        assert [batch["index"].tolist() for batch in batches] == [*EIGHT, [8, 9, 10, 11]]
        assert batches[0]["name"] == ["", "x", "xx", ""]
        assert batches[0]["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]
        assert isinstance(batches[0]["index"], torch.Tensor)

    @each_value(parallel=[True, False], num_before_break=[1, 5])
    def test_a_break_ends_the_epoch(self, num_before_break: int, parallel: bool) -> None:
        data_input = shuffled(IndexProvider(20), shuffle=True)
        arguments = {"dali_generic_iterator_class": DALIGenericIterator}
        definition = {"use_parallel_external_source": parallel}
        epochs = [np.random.default_rng(21 + epoch).permutation(20) for epoch in range(3)]
        expected = [order.reshape(5, 4).tolist() for order in epochs]
        with make_iterator(data_input, iterator=arguments, definition=definition) as iterator:
            assert indices(iterator, num_before_break) == expected[0][:num_before_break]
            assert indices(iterator) == expected[1]
            assert indices(iterator) == expected[2]

    class DictIterator:
        """Delivers a plain dict, as DALI's iterator for JAX does."""

        def __init__(self, pipeline: Any, output_map: list[str]) -> None:
            assert type(output_map) is list
            self.pipeline = pipeline
            self.output_map = output_map
            pipeline.build()

        def __iter__(self) -> Iterator[dict[str, Any]]:
            return self

        def __next__(self) -> dict[str, Any]:
            outputs = [np.asarray(output.as_tensor()) for output in self.pipeline.run()]
            return dict(zip(self.output_map, outputs, strict=True))

        def reset(self) -> None:
            self.pipeline.reset()

    def test_one_that_delivers_dicts(self) -> None:
        arguments = {"dali_generic_iterator_class": self.DictIterator}
        gains = {0: {"gain": (DT.FLOAT, [0.5, 1.5, 2.5, 3.5])}}
        fields = {"index": (DT.INT64, [0, 1, 2, 3]), "camera": gains, "text": (DT.STRING, ["", "ab", "", ""])}
        with make_iterator(shuffled(ArrayProvider(fields), 2), iterator=arguments, **IN_PROCESS) as iterator:
            assert iterator.internal_iterator.output_map == ["index", "camera.[0].gain", "text"]
            for _ in range(2):
                batches = [*iterator]
                assert [batch["index"].tolist() for batch in batches] == [[0, 1], [2, 3]]
                assert [batch["camera"][0]["gain"].tolist() for batch in batches] == [[0.5, 1.5], [2.5, 3.5]]
                assert [batch["text"] for batch in batches] == [["", "ab"], ["", ""]]


@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def plain_pipeline() -> tuple[Any, Any]:
    counter = fn.external_source(source=CountingSource(), batch=False, dtype=DT.INT64)
    return counter, counter * 10


class CountingSource:
    def __call__(self, info: Any) -> np.ndarray:
        if info.idx_in_epoch >= 4:
            raise StopIteration
        return np.array(info.idx_in_epoch + 100 * info.epoch_idx)


class TestPlainDaliPipelines:
    def test_are_iterated_with_a_blueprint(self) -> None:
        blueprint = group_of(number=DT.INT64, tenfold=DT.INT64)
        with DALIStructuredOutputIterator(2, plain_pipeline(), blueprint, output_type="numpy") as iterator:
            for epoch in (0, 100):
                first, second = iterator
                assert first["number"].tolist() == [epoch, epoch + 1]
                assert second["number"].tolist() == [epoch + 2, epoch + 3]
                assert second["tenfold"].tolist() == [10 * epoch + 20, 10 * epoch + 30]

    def test_need_one_that_fits_and_have_no_length_of_their_own(self) -> None:
        words = "`sample_data_structure_blueprint` must be given for a pipeline"
        assert_refused(lambda: DALIStructuredOutputIterator(2, plain_pipeline()), words)
        iterator = DALIStructuredOutputIterator(None, plain_pipeline(), group_of(number=DT.INT64))
        words = "pipeline has 2 outputs, but the blueprint has 1 data fields. Use the blueprint"
        assert_refused(lambda: next(iter(iterator)), words, ValueError)
        assert_refused(lambda: len(iterator), "Pass `num_batches_in_epoch`", TypeError)
