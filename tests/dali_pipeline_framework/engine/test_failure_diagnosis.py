"""Which samples and fields are blamed for a batch that fails in the graph, by how many pipelines; or none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from support.array_samples import group_of, sample_of
from support.arrays import DT, encoded_image, gradient
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.engine import failure_diagnosis
from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus
from accvlab.dali_pipeline_framework.engine.dali.texts import device_error
from accvlab.dali_pipeline_framework.errors import DeviceError, GraphError
from accvlab.dali_pipeline_framework.faults import FaultPolicy
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup, pipeline_making
from accvlab.dali_pipeline_framework.processing_steps import (
    CoordinateCropper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    LambdaStep,
)
from accvlab.dali_pipeline_framework.testing import run_step

_IMAGES = [encoded_image(gradient(16, 24, phase)) for phase in range(4)]
_STEPS = [ImageDecoder("image", False), ImageMeanStdDevNormalizer("image", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])]


class Rig(IndexProvider):
    """Images of six cameras with 9 other fields each, 61 fields in all; some images are cut off."""

    def __init__(self, damaged: Iterable[tuple[int, int]], kept: float = 0.8) -> None:
        super().__init__(16)
        self.damaged, self.kept = {*damaged}, kept

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        matrices = {f"matrix_{number}": DT.FLOAT for number in range(9)}
        return group_of(index=DT.INT64, cameras=(group_of(image=DT.UINT8, **matrices), 6))

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


def error_of(rig: Rig, message: str | None = None, **settings: Any) -> GraphError:
    """The error of the first batch that has a damaged image."""
    with (
        make_loader(shuffled(rig), steps=_STEPS, **settings) as loader,
        pytest.raises(GraphError, match=message) as caught,
    ):
        list(loader)
    return caught.value


def blamed(error: BaseException) -> list[tuple[str, str]]:
    return re.findall(r"\n  - (sample \d+), field (.*?): ", str(error))


@pytest.mark.parametrize(
    ("settings", "number"), [({}, 14), ({"stack_arrays": True}, 15), ({"fold_arrays": False}, 2)]
)
def test_what_dali_names_is_tried_first(settings: dict[str, Any], number: int, made: list[int]) -> None:
    error = error_of(Rig([(6, 3)]), rf"\nFailed to decode sample #{number} ", **settings)
    assert blamed(error) == [("sample 6", "cameras[3].image")]
    assert error.sample_indices == (6,)
    rule = (
        r"\(what was to be decoded is no image of a known format, or it is damaged\) \[in step 0: ImageDecoder\]"
    )
    assert re.search(rf"\n  - sample 6, field [^\n]+ {rule}\n", str(error))
    # The sample; the others together; the camera; the others; all but the last step.
    expected = [1, 3, 1, 1, 1]
    assert made == (expected if "fold_arrays" not in settings else [1, 3, 1, 1, 1, 1, 1])


def test_what_the_cpu_cannot_decode_is_tried_first(made: list[int]) -> None:
    error = error_of(Rig([(1, 3), (3, 0)]))
    assert blamed(error) == [("sample 1", "cameras[3].image"), ("sample 3", "cameras[0].image")]
    assert made[:4] == [2, 1, 1, 2]  # both together, each of them, the others


def test_without_a_name_halves_are_tried(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_diagnosis, "claimed_size", lambda file: (1, 1))
    monkeypatch.setattr(failure_diagnosis, "jpeg_damage", lambda file: "")
    error = error_of(Rig([(6, 3)], kept=0.02), "nvImageCodec failure: '#")
    assert blamed(error) == [("sample 6", "cameras[3].image")]
    assert made == [2, 2, 1, 1, 1, 1, 1, 1, 1]


def test_each_of_several_is_found(made: list[int]) -> None:
    assert blamed(error_of(Rig([(0, 5), (2, 1), (2, 2)]))) == [
        ("sample 0", "cameras[5].image"),
        ("sample 2", "cameras[1].image, cameras[2].image"),
    ]


def test_the_rule_that_was_broken_is_named_also_with_conditionals() -> None:
    sample = sample_of({"rows": np.zeros((3, 5), np.float32)})
    words = "field rows: Points must have one number for each limit...[in step 0: CoordinateCropper]"
    step = CoordinateCropper("rows", [0], [1])
    assert_refused(lambda: run_step(step, sample, enable_conditionals=True), words, GraphError)


@pytest.mark.parametrize("py_num_workers", [0, 1])
def test_a_pipeline_names_the_sample_where_it_has_loaded_it_itself(py_num_workers: int, made: list[int]) -> None:
    with make_iterator(shuffled(Rig([(6, 3)])), _STEPS, py_num_workers=py_num_workers) as iterator:
        batches = iter(iterator)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        error: Any = assert_refused(lambda: next(batches), "", GraphError)
    if py_num_workers == 0:
        assert "\n  - sample 6, field " in str(error)
        assert error.sample_indices == (6,)
        return
    first, reason, advice, *_ = str(error).splitlines()
    assert first == "Batch 1 of epoch 0 failed in the graph. It holds the samples 4, 5, 6, 7."
    assert reason.startswith("The reason: Failed to decode sample #14")
    assert reason.endswith("(what was to be decoded is no image of a known format, or it is damaged)")
    assert advice == "A DataLoader finds out which of its samples is to blame."
    assert made == []


# --- the device -------------------------------------------------------------------------------------------


def failing(*texts: str, first: int = 0, batch_size: int = 4, **settings: Any) -> DataLoader:
    """Has a step that fails for samples from a number on: with the first text, later with the last."""
    left = [*texts]

    def compute(index: Any) -> Any:
        if index >= first:
            raise RuntimeError(left.pop(0) if len(left) > 1 else left[0])
        return index

    def in_graph(index: Any) -> Any:
        return fn.python_function(index, function=compute)

    step = LambdaStep(in_graph, input_names="index", output_types={"index": DT.INT64})
    return make_loader(IndexProvider(8), batch_size, steps=[step], **settings)


OUT_OF_MEMORY = "CUDA runtime API error cudaErrorMemoryAllocation (2):\nout of memory"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (OUT_OF_MEMORY, "raise"),
        ("CUDA driver API error CUDA_ERROR_ILLEGAL_ADDRESS (700)", "skip"),
        ("CUDA allocation failed", "replace"),
        ("Can't allocate 1048576 bytes on device 0.", "skip"),
        ("nvImageCodec failure: '#5'", "raise"),
        ("nvImageCodec failure: '#21'", "skip"),
    ],
)
def test_a_failure_of_the_gpu_is_no_fault_of_samples(
    text: str, policy: Any, tmp_path: Path, made: list[int]
) -> None:
    list_of_failed = tmp_path / "failed.jsonl"
    faults = FaultPolicy(samples=policy, quarantine=str(list_of_failed))
    with failing(text, first=4, faults=faults) as loader:
        batches = iter(loader)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        words = f"Batch 1 of epoch 0 failed because of the GPU, and not of samples: ...{text.splitlines()[0]}"
        for _ in range(2):  # the same batch again: it was not left out
            assert_refused(lambda: next(batches), words, DeviceError)
            assert loader.failed_samples == ()
        assert made == []
    assert list_of_failed.read_text() == ""


def test_a_gpu_that_fails_only_in_the_diagnosis_blames_nobody(made: list[int]) -> None:
    with failing("an odd shape", OUT_OF_MEMORY, faults="skip") as loader:
        words = "A sample of the batch failed because of the GPU"
        assert_refused(lambda: next(iter(loader)), words, DeviceError)
    assert made == [2]


@pytest.mark.parametrize(
    ("restarts", "text", "expected"),
    [(0, OUT_OF_MEMORY, 0), (1, OUT_OF_MEMORY, 1), (1, "CUDA runtime API error cudaErrorAssert (710)", 0)],
)
def test_a_restart_may_help_a_gpu_that_is_not_lost(
    restarts: int, text: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    with failing(text, faults=FaultPolicy(restarts=restarts)) as loader:
        assert_refused(lambda: next(iter(loader)), text.splitlines()[-1], DeviceError)
    assert sum("Restart 1 of at most 1" in message for message in caplog.messages) == expected


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
    words = "Building the pipeline failed because of the GPU, ...: CUDA runtime API"
    assert_refused(lambda: make_iterator(shuffled(IndexProvider(8)), py_num_workers=0), words, DeviceError)


@pytest.mark.parametrize("operator", ["decoders.image", "decoders.video"])
def test_what_helps_where_memory_ran_out(operator: str) -> None:
    error = RuntimeError(f"Error in mixed operator `nvidia.dali.fn.{operator}`\n\nencountered:\n{OUT_OF_MEMORY}")
    advice = str(device_error("Batch 1 of epoch 0", error)).splitlines()[-1]
    assert advice.startswith("Where memory ran out: take a smaller `batch_size`, a queue depth of 1 or fewer ")
    of_videos = "VideoDecoder(device='cpu'): a GPU holds 8 frames of each clip while it decodes a batch."
    assert (of_videos in advice) == (operator == "decoders.video")
    assert advice.endswith(" After another error of CUDA: start a new process.")


@pytest.mark.parametrize("name", ["SYMBOL_NOT_FOUND (302)", "INIT_FAILED (303)"])
def test_a_missing_library_for_videos_is_named_with_what_to_set(name: str) -> None:
    error = device_error(
        "Batch 1 of epoch 0", RuntimeError(f"CUDA driver API error CUDA_ERROR_SHARED_OBJECT_{name}")
    )
    first, advice = str(error).splitlines()
    assert first.startswith("Batch 1 of epoch 0 failed, since no video can be decoded on the GPU: CUDA driver API")
    assert advice.endswith(" in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video.")


# --- all samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_where_all_fail_alike_none_is_blamed(policy: Any) -> None:
    with failing("an odd state", faults=policy) as loader:
        words = "No sample is to blame...an odd state"
        error: Any = assert_refused(lambda: next(iter(loader)), words, GraphError)
        assert (error.sample_indices, loader.failed_samples) == ((), ())


@pytest.mark.parametrize(
    ("first", "batch_size", "expected"),
    [(4, 4, (4, 5, 6, 7)), (0, 1, (0,))],  # where those of another batch pass, and where there are no others
)
def test_otherwise_all_are_blamed(first: int, batch_size: int, expected: tuple[int, ...]) -> None:
    with failing("an odd state", first=first, batch_size=batch_size) as loader:
        words = f"To blame...\n  - sample {expected[0]}, field index: "
        error: Any = assert_refused(lambda: list(loader), words, GraphError)
    assert error.sample_indices == expected
