"""Which samples and fields are blamed for a batch that fails in the graph, by how many pipelines; or none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline, do_not_convert
from support.arrays import DT, encoded_image, gradient
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.engine import failure_diagnosis
from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus
from accvlab.dali_pipeline_framework.engine.dali.texts import device_error
from accvlab.dali_pipeline_framework.errors import DeviceError, GraphError
from accvlab.dali_pipeline_framework.faults import FaultPolicy
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup, pipeline_making
from accvlab.dali_pipeline_framework.processing_steps import (
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    PipelineStepBase,
)

_IMAGES = [encoded_image(gradient(16, 24, phase)) for phase in range(4)]
_STEPS = [ImageDecoder("image", False), ImageMeanStdDevNormalizer("image", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])]


class Rig(IndexProvider):
    """Images of six cameras with 9 other fields each, 61 fields in all; some images are cut off."""

    def __init__(self, damaged: Iterable[tuple[int, int]], kept: float = 0.8) -> None:
        super().__init__(16)
        self.damaged, self.kept = {*damaged}, kept

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8)
        for number in range(9):
            camera.add_data_field(f"matrix_{number}", DT.FLOAT)
        blueprint = super().sample_data_structure
        blueprint.add_data_group_field_array("cameras", camera, 6)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        for number, camera in sample["cameras"].items():
            image = _IMAGES[(sample_index + number) % 4]
            is_damaged = (sample_index, number) in self.damaged
            camera["image"] = image[: int(len(image) * self.kept)] if is_damaged else image
            for index in range(9):
                camera[f"matrix_{index}"] = np.eye(3, dtype=np.float32)
        return sample


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch sizes of the pipelines that a diagnosis makes."""
    sizes = []
    define = pipeline_making.define_pipeline_of_given

    def counted(in_graph: Any, arguments: Any, flats: Any, *others: Any) -> Any:
        sizes.append(len(flats))
        return define(in_graph, arguments, flats, *others)

    monkeypatch.setattr(pipeline_making, "define_pipeline_of_given", counted)
    return sizes


def blamed(error: BaseException) -> list[tuple[str, str]]:
    return re.findall(r"\n  - (sample \d+), field (.*?): ", str(error))


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({}, 14),
        ({"stack_arrays": True}, 15),
        ({"fold_arrays": False}, 2),
    ],
    ids=["by element", "by sample", "not folded"],
)
def test_what_dali_names_is_tried_first(settings: dict[str, Any], number: int, made: list[int]) -> None:
    with make_loader(shuffled(Rig([(6, 3)])), steps=_STEPS, **settings) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(GraphError, match=rf"\nFailed to decode sample #{number} ") as caught:
            next(batches)
    assert blamed(caught.value) == [("sample 6", "cameras[3].image")]
    assert caught.value.sample_indices == (6,)
    # The sample; the others together; the camera; the others; all but the last step.
    expected = [1, 3, 1, 1, 1]
    assert made == (expected if "fold_arrays" not in settings else [1, 3, 1, 1, 1, 1, 1])


def test_what_the_cpu_cannot_decode_is_tried_first(made: list[int]) -> None:
    with make_loader(shuffled(Rig([(1, 3), (3, 0)])), steps=_STEPS) as loader, pytest.raises(GraphError) as caught:
        next(iter(loader))
    assert blamed(caught.value) == [("sample 1", "cameras[3].image"), ("sample 3", "cameras[0].image")]
    assert made[:4] == [2, 1, 1, 2]  # both together, each of them, the others


def test_without_a_name_halves_are_tried(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_diagnosis, "claimed_size", lambda file: (1, 1))
    monkeypatch.setattr(failure_diagnosis, "jpeg_damage", lambda file: "")
    with make_loader(shuffled(Rig([(6, 3)], kept=0.02)), steps=_STEPS) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(GraphError, match="nvImageCodec failure: '#") as caught:
            next(batches)
    assert blamed(caught.value) == [("sample 6", "cameras[3].image")]
    assert made == [2, 2, 1, 1, 1, 1, 1, 1, 1]


def test_each_of_several_is_found(made: list[int]) -> None:
    with (
        make_loader(shuffled(Rig([(0, 5), (2, 1), (2, 2)])), steps=_STEPS) as loader,
        pytest.raises(GraphError) as caught,
    ):
        next(iter(loader))
    assert blamed(caught.value) == [
        ("sample 0", "cameras[5].image"),
        ("sample 2", "cameras[1].image, cameras[2].image"),
    ]


def test_a_pipeline_that_loads_in_this_process_names_the_sample(made: list[int]) -> None:
    with make_iterator(shuffled(Rig([(6, 3)])), _STEPS, py_num_workers=0) as iterator:
        batches = iter(iterator)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        with pytest.raises(GraphError, match="\n  - sample 6, field ") as caught:
            next(batches)
        assert caught.value.sample_indices == (6,)


def test_a_pipeline_with_workers_of_dali_names_the_samples_of_the_batch(made: list[int]) -> None:
    with make_iterator(shuffled(Rig([(6, 3)])), _STEPS, py_num_workers=1) as iterator:
        batches = iter(iterator)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        with pytest.raises(GraphError) as caught:
            next(batches)
    first, reason, advice, *_ = str(caught.value).splitlines()
    assert first == "Batch 1 of epoch 0 failed in the graph. It holds the samples 4, 5, 6, 7."
    assert reason.startswith("The reason: Failed to decode sample #14")
    assert reason.endswith("(what was to be decoded is no image of a known format, or it is damaged)")
    assert advice == "A DataLoader finds out which of its samples is to blame."
    assert made == []


# --- the device -------------------------------------------------------------------------------------------


class FailingStep(PipelineStepBase):
    """Fails in the graph with a text, for samples from a number on."""

    def __init__(self, text: str, first: int = 0) -> None:
        self.text, self.first = text, first

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        def compute(index: Any) -> Any:
            if index >= self.first:
                raise RuntimeError(self.text)
            return index

        data["index"] = fn.python_function(data["index"], function=compute)
        return data


OUT_OF_MEMORY = "CUDA runtime API error cudaErrorMemoryAllocation (2):\nout of memory"


@pytest.mark.parametrize(
    "text",
    [
        OUT_OF_MEMORY,
        "CUDA driver API error CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "CUDA allocation failed",
        "Can't allocate 1048576 bytes on device 0.",
        "nvImageCodec failure: '#5'",
        "nvImageCodec failure: '#21'",
    ],
)
@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_failure_of_the_gpu_is_no_fault_of_samples(
    text: str, policy: Any, tmp_path: Path, made: list[int]
) -> None:
    list_of_failed = tmp_path / "failed.jsonl"
    faults = FaultPolicy(samples=policy, quarantine=str(list_of_failed))
    arguments = {"steps": [FailingStep(text, 4)], "num_workers": 0, "faults": faults, "last_batch": "partial"}
    with DataLoader(IndexProvider(8), 4, output_type="numpy", **arguments) as loader:
        batches = iter(loader)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        message = r"^Batch 1 of epoch 0 failed because of the GPU, and not of samples: .*" + re.escape(
            text.partition("\n")[0]
        )
        with pytest.raises(DeviceError, match=message):
            next(batches)
        assert loader.failed_samples == ()
        with pytest.raises(DeviceError, match=message):  # the same batch again: it was not left out
            next(batches)
        assert made == []
    assert list_of_failed.read_text() == ""


def test_a_gpu_that_fails_only_in_the_diagnosis_blames_nobody(made: list[int]) -> None:
    class FailingLater(FailingStep):
        num_calls = 0

        @do_not_convert
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            type(self).num_calls += 1
            self.text = "an odd shape" if self.num_calls == 1 else OUT_OF_MEMORY
            return super()._process(data)

    with (
        DataLoader(IndexProvider(8), 4, steps=[FailingLater("")], num_workers=0, faults="skip") as loader,
        pytest.raises(DeviceError, match=r"^A sample of the batch failed because of the GPU"),
    ):
        next(iter(loader))
    assert made == [2]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_restart_may_help_a_gpu(restarts: int, caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultPolicy(restarts=restarts)
    with (
        DataLoader(
            IndexProvider(8), 4, steps=[FailingStep(OUT_OF_MEMORY)], num_workers=0, faults=faults
        ) as loader,
        pytest.raises(DeviceError),
    ):
        next(iter(loader))
    assert sum("Restart 1 of at most 1" in message for message in caplog.messages) == restarts


@pytest.mark.skipif(num_usable_gpus() > 0, reason="is about a machine without a GPU")
def test_what_dali_says_without_a_driver_is_about_the_gpu() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(num_threads=1, py_num_workers=0)
    message = r"^Batch 0 of epoch 0 failed because of the GPU, and not of samples: CUDA \w+ API error"
    with pytest.raises(DeviceError, match=message):
        pipeline.run_graph(cuda_stream=2)  # the default stream of a thread
    pipeline.close()


def test_a_gpu_that_fails_while_a_pipeline_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(pipeline: Pipeline) -> None:
        raise RuntimeError(OUT_OF_MEMORY)

    monkeypatch.setattr(Pipeline, "build", build)
    with pytest.raises(
        DeviceError, match=r"^Building the pipeline failed because of the GPU, .*: CUDA runtime API"
    ):
        make_iterator(shuffled(IndexProvider(8)), py_num_workers=0)


@pytest.mark.parametrize("operator", ["decoders.image", "decoders.video"])
def test_what_helps_where_memory_ran_out(operator: str) -> None:
    error = RuntimeError(f"Error in mixed operator `nvidia.dali.fn.{operator}`\n\nencountered:\n{OUT_OF_MEMORY}")
    advice = str(device_error("Batch 1 of epoch 0", error)).splitlines()[-1]
    assert advice.startswith("Where memory ran out: take a smaller `batch_size`, a queue depth of 1 or fewer ")
    of_videos = "VideoDecoder(device='cpu'): a GPU holds 8 frames of each clip while it decodes a batch."
    assert (of_videos in advice) == (operator == "decoders.video")
    assert advice.endswith(" After another error of CUDA: start a new process.")


# --- all samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("num_samples", [4, 8])
def test_where_all_fail_alike_none_is_blamed(num_samples: int, policy: Any) -> None:
    arguments = {
        "steps": [FailingStep("an odd state")],
        "num_workers": 0,
        "faults": policy,
        "last_batch": "partial",
    }
    with DataLoader(IndexProvider(num_samples), 4, output_type="numpy", **arguments) as loader:
        with pytest.raises(GraphError, match=r"No sample is to blame.*\n.*an odd state") as caught:
            next(iter(loader))
        assert caught.value.sample_indices == ()
        assert loader.failed_samples == ()


def test_where_those_of_another_batch_pass_all_are_blamed() -> None:
    with DataLoader(IndexProvider(8), 4, steps=[FailingStep("an odd state", 4)], num_workers=0) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(GraphError, match="To blame") as caught:
            next(batches)
        assert caught.value.sample_indices == (4, 5, 6, 7)


def test_a_batch_of_one_is_blamed() -> None:
    with (
        DataLoader(IndexProvider(2), 1, steps=[FailingStep("an odd state")], num_workers=0) as loader,
        pytest.raises(GraphError, match="To blame:\n  - sample 0, field index: ") as caught,
    ):
        next(iter(loader))
    assert caught.value.sample_indices == (0,)
