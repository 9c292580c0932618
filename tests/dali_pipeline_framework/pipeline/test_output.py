"""What comes out: arrays of the right kind, without copies, and errors for what cannot come out."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from support.array_samples import group_of
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.child_processes import run_process
from support.laws import each_value
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.scripts import messages
from support.steps import Doubler

from accvlab.dali_pipeline_framework.errors import OutputError, SettingError
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder

TORCH = {"iterator": {"output_type": "torch"}}
IN_PROCESS = {"py_num_workers": 0}

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


class TestArrays:
    @pytest.mark.parametrize("output_type", ["torch", "numpy"])
    @pytest.mark.parametrize("dali_type", NUMPY_OF_DALI, ids=lambda dali_type: dali_type.name)
    def test_each_type_keeps_its_type_values_and_shape(self, dali_type: DT, output_type: str) -> None:
        numpy_type = NUMPY_OF_DALI[dali_type]
        top = 1 if dali_type == DT.BOOL else np.iinfo(numpy_type).max if dali_type.name[0] in "IU" else 1.5
        fields = {
            "scalar": (dali_type, [0, top]),
            "vector": (dali_type, [[0, top, 1], [top, 1, 0]]),
            "matrix": (dali_type, [[[top], [1]], [[0], [top]]]),
            "empty": (dali_type, [np.zeros((0, 4)), np.zeros((0, 4))]),
        }
        [batch] = batches_of(fields, iterator={"output_type": output_type})
        for name, (_, values) in fields.items():
            array = batch[name]
            assert isinstance(array, torch.Tensor if output_type == "torch" else np.ndarray)
            assert np.asarray(array).dtype == numpy_type
            assert np.asarray(array).tolist() == np.array(values, numpy_type).tolist()
        assert [tuple(batch[name].shape) for name in fields] == [(2,), (2, 3), (2, 2, 1), (2, 0, 4)]

    def test_torch_types(self) -> None:
        fields = {
            "bool": (DT.BOOL, [True]),
            "half": (DT.FLOAT16, [0.5]),
            "uint16": (DT.UINT16, [65535]),
            "uint32": (DT.UINT32, [2**32 - 1]),
            "uint64": (DT.UINT64, [2**64 - 1]),
        }
        [batch] = batches_of(fields, 1, **TORCH)
        assert {name: tensor.dtype for name, tensor in batch.items()} == {
            "bool": torch.bool,
            "half": torch.float16,
            "uint16": torch.uint16,
            "uint32": torch.uint32,
            "uint64": torch.uint64,
        }
        assert batch["uint64"].tolist() == [2**64 - 1]

    def test_torch_is_the_default(self) -> None:
        pipeline = PipelineDefinition(shuffled(IndexProvider(4))).get_dali_pipeline(num_threads=1)
        with DALIStructuredOutputIterator(None, pipeline) as iterator:
            [batch] = iterator
        assert type(batch["index"]) is torch.Tensor
        assert batch["index"].device == torch.device("cpu")
        assert batch["index"].tolist() == [0, 1, 2, 3]

    def test_groups_are_nested_dicts_with_the_keys_of_the_sample(self) -> None:
        with make_iterator(shuffled(NumberProvider(4)), **TORCH) as iterator:
            [batch] = iterator
        assert [*batch] == ["index", "pair", "name", "cameras"]
        assert [*batch["cameras"]] == [0, 1]
        assert batch["pair"].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
        assert batch["name"] == ["", "x", "xx", ""]
        assert batch["cameras"][0]["label"].tolist() == [1, 1, 1, 1]
        assert batch["cameras"][1]["label"].tolist() == [-1, -1, -1, -1]
        assert batch["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]

    def test_empty_groups_stay(self) -> None:
        fields = {"index": (DT.INT64, [3]), "meta": {}}
        assert batches_of(fields, 1) == [{"index": np.array([3]), "meta": {}}]

    def test_without_conversion_to_dicts(self) -> None:
        arguments = {"convert_sample_data_group_to_dict": False, "output_type": "torch"}
        with make_iterator(shuffled(NumberProvider(4)), iterator=arguments) as iterator:
            [batch] = iterator
            assert isinstance(batch, SampleDataGroup)
            assert batch.type_matches(iterator.sample_data_structure_blueprint)
        assert batch["name"] == ["", "x", "xx", ""]
        assert batch["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]
        assert isinstance(batch.get_item_in_path(("cameras", 1, "gain")), torch.Tensor)

    @pytest.mark.parametrize("convert", [True, False])
    def test_the_result_of_the_post_processing_is_delivered(self, convert: bool) -> None:
        def post_process(batch: Any) -> tuple[type, list[int]]:
            return type(batch), batch["index"].tolist()

        arguments = {"post_process_func": post_process, "convert_sample_data_group_to_dict": convert}
        with make_iterator(shuffled(IndexProvider(8)), iterator=arguments, **IN_PROCESS) as iterator:
            kind = dict if convert else SampleDataGroup
            assert [*iterator] == [(kind, [0, 1, 2, 3]), (kind, [4, 5, 6, 7])]

    def test_an_error_of_the_post_processing_is_not_disguised(self) -> None:
        def post_process(batch: Any) -> Any:
            return batch["imdex"]

        arguments = {"post_process_func": post_process}
        with (
            make_iterator(shuffled(IndexProvider(8)), iterator=arguments, **IN_PROCESS) as iterator,
            pytest.raises(KeyError, match=r"^'imdex'$"),
        ):
            next(iter(iterator))


class TestTexts:
    @pytest.mark.parametrize("output_type", ["torch", "numpy"])
    @pytest.mark.parametrize(
        "texts",
        [["", ""], ["a", ""], ["", "long text"], ["Straße", "東京"], ["a b\n", "c"]],
        ids=["all_empty", "last_empty", "first_empty", "unicode", "blanks"],
    )
    def test_are_lists_of_str(self, texts: list[str], output_type: str) -> None:
        [batch] = batches_of({"text": (DT.STRING, texts)}, iterator={"output_type": output_type})
        assert batch == {"text": texts}

    def test_a_batch_of_empty_ones_before_and_after_others(self) -> None:
        batches = batches_of({"text": (DT.STRING, ["", "", "a", "bc", "", ""])})
        assert [batch["text"] for batch in batches] == [["", ""], ["a", "bc"], ["", ""]]


class TestNoCopy:
    """Batches that are held keep their values; nothing is copied for that."""

    @pytest.mark.parametrize("output_type", ["torch", "numpy"])
    @pytest.mark.parametrize("batch_size", [1, 4])
    @pytest.mark.parametrize("arguments", [IN_PROCESS, {"py_num_workers": 2}], ids=["here", "workers"])
    def test_held_batches_stay_as_they_are(self, arguments: dict, batch_size: int, output_type: str) -> None:
        big = [np.full((64, 64), index) for index in range(16)]
        data_input = shuffled(ArrayProvider({"index": (DT.INT32, big)}), batch_size)
        with make_iterator(data_input, iterator={"output_type": output_type}, **arguments) as iterator:
            held = [batch["index"] for batch in iterator] + [batch["index"] for batch in iterator]
        del iterator
        pointers = [np.asarray(array).__array_interface__["data"][0] for array in held]
        assert len(set(pointers)) == len(held)
        for number, array in enumerate(held):
            first = number % (16 // batch_size) * batch_size
            assert np.asarray(array)[:, 5, 7].tolist() == [*range(first, first + batch_size)]
            assert len(np.unique(np.asarray(array))) == batch_size

    @pytest.mark.parametrize("output_type", ["torch", "numpy"])
    @pytest.mark.parametrize("steps", [[], [Doubler("index")]], ids=["packed", "of a step"])
    def test_the_arrays_are_dali_s_memory(self, steps: list[Any], output_type: str) -> None:
        pipeline = PipelineDefinition(shuffled(NumberProvider(8)), steps).get_dali_pipeline(num_threads=1)
        buffers: list[np.ndarray] = []
        run_graph = pipeline.run_graph

        def recording_run() -> Any:
            outputs = run_graph()
            buffers.append(np.asarray(outputs[len(steps)].as_tensor()))
            return outputs

        pipeline.run_graph = recording_run
        with DALIStructuredOutputIterator(None, pipeline, output_type=output_type) as iterator:
            batches = [*iterator]
        assert batches
        for batch, buffer in zip(batches, buffers, strict=False):
            found = [batch["index"]] if steps else [batch["index"], batch["pair"], batch["cameras"][0]["label"]]
            assert all(np.shares_memory(np.asarray(array), buffer) for array in found)

    def test_the_buffers_are_copied_where_dali_recycles_them(self) -> None:
        big = [np.full((64, 64), index) for index in range(8)]
        data_input = shuffled(ArrayProvider({"index": (DT.INT32, big)}), 1)
        for output_type in ("torch", "numpy"):
            arguments = {"exec_dynamic": False, "iterator": {"output_type": output_type}}
            with make_iterator(data_input, **arguments) as iterator:
                held = [batch["index"] for batch in iterator]
            assert [np.unique(np.asarray(array)).tolist() for array in held] == [[i] for i in range(8)]

    def test_the_arrays_can_be_written_to(self) -> None:
        with make_iterator(shuffled(IndexProvider(8)), **TORCH, **IN_PROCESS) as iterator:
            batches = [batch["index"].add_(10) for batch in iterator]
        assert [batch.tolist() for batch in batches] == [[10, 11, 12, 13], [14, 15, 16, 17]]


class CurrentDevice:
    """Stands for ``torch.cuda.device``."""

    current: int | None = None

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        CurrentDevice.current = self.number

    def __exit__(self, *exception: object) -> None:
        CurrentDevice.current = None


class TestStreams:
    """With tensors of PyTorch, its current stream waits for the GPU, and not the host."""

    @pytest.mark.parametrize(
        ("steps", "output_type", "expected"),
        [([], "torch", ["stream of 1"] * 2), ([], "numpy", [None] * 2), ([Doubler("index")], "torch", [None] * 2)],
    )
    def test_the_stream_is_that_of_the_moment(
        self, steps: list[Any], output_type: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
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
        pipeline = PipelineDefinition(shuffled(IndexProvider(8)), steps).get_dali_pipeline(py_num_workers=0)
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


class TestRagged:
    def test_is_an_error_that_names_field_and_shapes(self) -> None:
        message = (
            r"^lidar\.points: all samples of a batch must have the same shape to form one array, got the shapes "
            r"\(3, 2\), \(5, 2\)\. Resize or pad the field in a step \(ImageResizer, "
            r"PaddingToUniform\), or pass ragged=\{'points': 'list'\} to the loader or iterator\.$"
        )
        with pytest.raises(OutputError, match=message) as caught:
            batches_of(RAGGED_FIELDS)
        assert isinstance(caught.value, RuntimeError)

    def test_what_may_be_encoded_images_is_to_be_decoded(self) -> None:
        files = [np.ones(3), np.ones(5), np.ones(4), np.ones(4)]
        with pytest.raises(OutputError, match=r"\(5,\)\. If these are encoded images, decode them"):
            batches_of({"image": (DT.UINT8, files)})
        for dtype, arrays in ((DT.FLOAT, files), (DT.UINT8, [each[None] for each in files])):
            with pytest.raises(OutputError) as caught:
                batches_of({"image": (dtype, arrays)})
            assert "encoded" not in str(caught.value)

    def test_each_shape_is_named_once(self) -> None:
        with pytest.raises(OutputError, match=r"the shapes \(3, 2\), \(5, 2\)\."):
            batches_of(RAGGED_FIELDS, 4)

    @pytest.mark.parametrize("output_type", ["torch", "numpy"])
    def test_is_a_list_of_arrays_on_request(self, output_type: str) -> None:
        first, second = batches_of(RAGGED_FIELDS, iterator={"ragged": "list", "output_type": output_type})
        points = first["lidar"]["points"]
        assert isinstance(points, list)
        array_type = torch.Tensor if output_type == "torch" else np.ndarray
        assert [type(array) for array in points] == [array_type] * 2
        assert [tuple(array.shape) for array in points] == [(3, 2), (5, 2)]
        assert all(np.asarray(array).tolist() == np.ones(array.shape).tolist() for array in points)
        assert [tuple(array.shape) for array in second["lidar"]["points"]] == [(5, 2)] * 2  # always a list
        assert [type(number) for number in second["index"]] == [array_type] * 2
        assert [(number.ndim, int(number)) for number in second["index"]] == [(0, 2), (0, 3)]

    @pytest.mark.parametrize(
        "key", ["points", "lidar", ("lidar",), ("lidar", "points"), ["lidar", "points"]], ids=str
    )
    def test_is_a_list_for_the_fields_that_are_named(self, key: Any) -> None:
        policies = {key if isinstance(key, str) else tuple(key): "list"}
        for batch in batches_of(RAGGED_FIELDS, iterator={"ragged": policies}):
            assert isinstance(batch["lidar"]["points"], list)
            assert isinstance(batch["index"], np.ndarray)

    def test_a_later_policy_takes_precedence(self) -> None:
        policies = {(): "list", "index": "raise"}
        [first, _] = batches_of(RAGGED_FIELDS, iterator={"ragged": policies})
        assert isinstance(first["lidar"]["points"], list)
        assert isinstance(first["index"], np.ndarray)

    def test_elements_of_arrays_and_texts(self) -> None:
        fields = {
            "cameras": {0: (DT.FLOAT, [np.ones(2), np.ones(3)]), 1: (DT.FLOAT, [np.ones(1), np.ones(1)])},
            "town": (DT.STRING, ["Ulm", "Aachen"]),
        }
        [batch] = batches_of(fields, iterator={"ragged": "list"})
        assert [[array.shape for array in batch["cameras"][camera]] for camera in (0, 1)] == [
            [(2,), (3,)],
            [(1,), (1,)],
        ]
        assert batch["town"] == ["Ulm", "Aachen"]
        with pytest.raises(OutputError, match=r"^cameras\[0\]: .* pass ragged=\{'cameras': 'list'\} to"):
            batches_of(fields)

    def test_the_arrays_of_a_list_stay_as_they_are(self) -> None:
        values = [np.full(size, size) for size in (3, 5, 4, 6, 7, 2)]
        for exec_dynamic in (True, False):
            batches = batches_of({"n": (DT.INT32, values)}, iterator={"ragged": "list"}, exec_dynamic=exec_dynamic)
            found = [array.tolist() for batch in batches for array in batch["n"]]
            assert found == [value.tolist() for value in values]

    def test_with_an_empty_sample(self) -> None:
        [batch] = batches_of({"n": (DT.INT32, [np.zeros((0, 2)), [[1, 2]]])}, iterator={"ragged": "list"})
        assert [array.tolist() for array in batch["n"]] == [[], [[1, 2]]]
        assert [array.shape for array in batch["n"]] == [(0, 2), (1, 2)]


@pytest.mark.parametrize("output_type", ["torch", "numpy"])
@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_cameras_of_different_sizes_are_arrays_of_their_own(output_type: str, exec_dynamic: bool) -> None:
    images = [[gradient(16, 24 + 8 * camera, 10 * sample) for camera in range(3)] for sample in range(6)]
    files = [[encoded_image(image, "PNG") for image in row] for row in images]
    cameras = {camera: {"image": (DT.UINT8, [row[camera] for row in files])} for camera in range(3)}
    arguments = {"iterator": {"output_type": output_type}, "exec_dynamic": exec_dynamic, "in_graph": True}
    batches = batches_of({"cameras": cameras}, 3, steps=[ImageDecoder("image", False)], **arguments)
    array_type = torch.Tensor if output_type == "torch" else np.ndarray
    for batch, rows in zip(batches, (images[:3], images[3:]), strict=True):
        for camera in range(3):
            found = batch["cameras"][camera]["image"]
            assert type(found) is array_type
            np.testing.assert_array_equal(np.asarray(found), np.stack([row[camera] for row in rows]))


class TestSettings:
    def test_an_unknown_ragged_policy_is_refused(self) -> None:
        for ragged in ("pad", {"index": "pad"}):
            message = re.escape(f"`ragged` must be 'raise' or 'list', or a dict of these by field, got {ragged!r}")
            with pytest.raises(SettingError, match=message):
                make_iterator(shuffled(IndexProvider()), iterator={"ragged": ragged})

    @pytest.mark.parametrize("key", ["indx", ("index", 0), 3])
    def test_a_ragged_policy_for_a_field_that_is_not_there_is_refused(self, key: Any) -> None:
        message = re.escape(f"`ragged` names {key!r}, but the output has no such field. Its fields are index.")
        with pytest.raises(SettingError, match=message):
            make_iterator(shuffled(IndexProvider()), iterator={"ragged": {key: "list"}})

    def test_swapped_arguments_are_refused(self) -> None:
        pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(num_threads=1)
        with pytest.raises(SettingError, match="The first argument is `num_batches_in_epoch`, got a pipeline"):
            DALIStructuredOutputIterator(pipeline)
        with pytest.raises(SettingError, match="`pipeline` must be given"):
            DALIStructuredOutputIterator(5)

    def test_the_published_positional_and_keyword_forms(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)))
        blueprint = definition.check_and_get_output_data_structure()
        positional = definition.get_dali_pipeline(num_threads=1)
        with DALIStructuredOutputIterator(2, positional, blueprint) as iterator:
            assert len(iterator) == 2
            assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        by_name = definition.get_dali_pipeline(num_threads=1)
        with DALIStructuredOutputIterator(
            num_batches_in_epoch=3, pipeline=by_name, sample_data_structure_blueprint=blueprint
        ) as iterator:
            assert len(iterator) == 3
            assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7]]


class TestProperties:
    def test_dataset(self) -> None:
        with make_iterator(shuffled(IndexProvider())) as iterator:
            assert iterator.dataset is iterator
        dataset: list[int] = []  # which is empty, and still the data set
        with make_iterator(shuffled(IndexProvider()), iterator={"contained_dataset": dataset}) as iterator:
            assert iterator.dataset is dataset

    def test_the_blueprint_is_an_empty_copy(self) -> None:
        with make_iterator(shuffled(NumberProvider())) as iterator:
            blueprint = iterator.sample_data_structure_blueprint
            assert blueprint.field_names_flat == NumberProvider().sample_data_structure.field_names_flat
            assert set(blueprint.get_data()) == {None}
            blueprint.remove_field("index")
            assert "index" in iterator.sample_data_structure_blueprint.field_names_flat

    def test_a_blueprint_that_is_given_is_not_filled(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(4)))
        blueprint = definition.check_and_get_output_data_structure()
        pipeline = definition.get_dali_pipeline(num_threads=1)
        with DALIStructuredOutputIterator(None, pipeline, blueprint, output_type="numpy") as iterator:
            assert indices(iterator) == [[0, 1, 2, 3]]
        assert blueprint.get_data() == (None,)

    def test_internal_iterator(self) -> None:
        pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(num_threads=1)
        with DALIStructuredOutputIterator(None, pipeline) as iterator:
            assert iterator.internal_iterator is pipeline

    def test_checkpoints_by_the_internal_iterator(self) -> None:
        made = PipelineDefinition(shuffled(IndexProvider(), 2)).get_dali_pipeline(enable_checkpointing=True)
        with DALIStructuredOutputIterator(None, made) as iterator:
            next(iter(iterator))
            (checkpoint,) = iterator.internal_iterator.checkpoints()
        again = PipelineDefinition(shuffled(IndexProvider(), 2)).get_dali_pipeline(
            enable_checkpointing=True, checkpoint=checkpoint
        )
        with DALIStructuredOutputIterator(None, again) as iterator:
            assert next(iter(iterator))["index"].tolist() == [2, 3]


class TestForeignIterators:
    def test_dali_s_own_for_pytorch(self) -> None:
        arguments = {"dali_generic_iterator_class": DALIGenericIterator}
        with make_iterator(shuffled(NumberProvider(12)), iterator=arguments) as iterator:
            assert type(iterator.internal_iterator) is DALIGenericIterator
            batches = [*iterator]
            assert [batch["index"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
            assert batches[0]["name"] == ["", "x", "xx", ""]
            assert batches[0]["cameras"][1]["gain"].tolist() == [0.5, 1.5, 2.5, 3.5]
            assert isinstance(batches[0]["index"], torch.Tensor)

    @each_value(
        parallel=[True, False],
        num_before_break=[1, 5, *(pytest.param(number, marks=pytest.mark.wide) for number in (2, 3, 4))],
    )
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
            self.num_resets = 0
            pipeline.build()

        def __iter__(self) -> Iterator[dict[str, Any]]:
            return self

        def __next__(self) -> dict[str, Any]:
            outputs = self.pipeline.run()
            return {
                name: np.asarray(output.as_tensor()) + 100
                for name, output in zip(self.output_map, outputs, strict=True)
            }

        def reset(self) -> None:
            self.num_resets += 1
            self.pipeline.reset()

    def test_one_that_delivers_dicts(self) -> None:
        arguments = {"dali_generic_iterator_class": self.DictIterator}
        fields = {"index": (DT.INT64, [0, 1, 2, 3]), "camera": {0: {"gain": (DT.FLOAT, [0.5, 1.5, 2.5, 3.5])}}}
        data_input = shuffled(ArrayProvider(fields), 2)
        with make_iterator(data_input, iterator=arguments) as iterator:
            assert iterator.internal_iterator.output_map == ["index", "camera.[0].gain"]
            for _ in range(2):
                batches = [*iterator]
                assert [batch["index"].tolist() for batch in batches] == [[100, 101], [102, 103]]
                gains = [batch["camera"][0]["gain"].tolist() for batch in batches]
                assert gains == [[100.5, 101.5], [102.5, 103.5]]

    def test_texts_of_one_that_delivers_dicts(self) -> None:
        class TextIterator(self.DictIterator):
            def __next__(self) -> dict[str, Any]:
                return {"text": np.asarray(self.pipeline.run()[0].as_tensor())}

        arguments = {"dali_generic_iterator_class": TextIterator}
        data_input = shuffled(ArrayProvider({"text": (DT.STRING, ["", "ab", "", ""])}), 2)
        with make_iterator(data_input, iterator=arguments) as iterator:
            assert [*iterator] == [{"text": ["", "ab"]}, {"text": ["", ""]}]


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
        pipeline = plain_pipeline()
        blueprint = group_of(number=DT.INT64, tenfold=DT.INT64)
        with DALIStructuredOutputIterator(2, pipeline, blueprint, output_type="numpy") as iterator:
            for epoch in range(2):
                batches = [*iterator]
                assert [batch["number"].tolist() for batch in batches] == [
                    [100 * epoch, 100 * epoch + 1],
                    [100 * epoch + 2, 100 * epoch + 3],
                ]
                assert batches[1]["tenfold"].tolist() == [1000 * epoch + 20, 1000 * epoch + 30]

    def test_need_one(self) -> None:
        with pytest.raises(SettingError, match="`sample_data_structure_blueprint` must be given for a pipeline"):
            DALIStructuredOutputIterator(2, plain_pipeline())

    def test_have_no_length_of_their_own(self) -> None:
        iterator = DALIStructuredOutputIterator(None, plain_pipeline(), group_of(a=DT.INT64, b=DT.INT64))
        with pytest.raises(TypeError, match="Pass `num_batches_in_epoch`"):
            len(iterator)

    @pytest.mark.parametrize("names", [("number",), ("number", "tenfold", "more")])
    def test_that_do_not_fit_the_blueprint_are_refused(self, names: tuple[str, ...]) -> None:
        blueprint = group_of(**dict.fromkeys(names, DT.INT64))
        message = rf"pipeline has 2 outputs, but the blueprint has {len(names)} data fields\. Use the blueprint"
        with pytest.raises(ValueError, match=message):
            next(iter(DALIStructuredOutputIterator(2, plain_pipeline(), blueprint)))


def test_a_blueprint_that_does_not_fit_a_pipeline_of_ours_is_refused() -> None:
    pipeline = PipelineDefinition(shuffled(NumberProvider())).get_dali_pipeline(num_threads=1)
    blueprint = IndexProvider().sample_data_structure
    with pytest.raises(SettingError, match="The pipeline has 7 outputs, but the blueprint has 1 data fields"):
        DALIStructuredOutputIterator(None, pipeline, blueprint, output_type="numpy")
    pipeline.close()


@pytest.mark.wide
def test_nothing_but_numpy_is_needed_for_numpy_output(tmp_path: Path) -> None:
    script = tmp_path / "without_optional_packages.py"
    script.write_text(
        textwrap.dedent(f"""
            import sys

            for name in ("torch", "jax", "cupy", "numba", "matplotlib", "PIL"):
                sys.modules[name] = None  # an import of it fails
            sys.path.insert(0, {str(Path(__file__).parents[2])!r})

            from support.pipelines import indices, make_iterator, shuffled
            from support.providers import NumberProvider

            from accvlab.dali_pipeline_framework.errors import SettingError


            def main():
                with make_iterator(shuffled(NumberProvider(8)), py_start_method="spawn") as iterator:
                    print(indices(iterator))
                    print(next(iter(iterator))["name"])
                try:
                    make_iterator(shuffled(NumberProvider(8)), iterator={{"output_type": "torch"}})
                except SettingError as error:
                    print(error)


            if __name__ == "__main__":
                main()
        """)
    )
    result = run_process([sys.executable, str(script)], timeout=100)
    assert messages(result.stderr) == []
    assert result.stdout.splitlines() == [
        "[[0, 1, 2, 3], [4, 5, 6, 7]]",
        "['', 'x', 'xx', '']",
        "The output as PyTorch tensors needs PyTorch, which is not installed. Install it (pip install torch), or "
        "pass output_type='numpy'.",
    ]
