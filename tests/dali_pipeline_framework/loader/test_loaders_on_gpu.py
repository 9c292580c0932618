"""Loaders with a GPU: what their graphs consist of, also where there is none; and that they deliver the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from nvidia.dali.pipeline import Pipeline
from support.arrays import DT, ArrayProvider
from support.gpu_cases import CASES, Difference, as_array, decoder, leaves, photo
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.laws import spread
from support.loaders import pipeline_of
from support.public_steps import PUBLIC_STEPS
from support.reader_data import frame_folders
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DALIStructuredOutputIterator,
    DataLoader,
    ImageDecoder,
    PipelineDefinition,
)
from accvlab.dali_pipeline_framework.errors import GraphError
from accvlab.dali_pipeline_framework.sources import FileReader, SequenceReader
from accvlab.dali_pipeline_framework.testing.step_runs import GivenSamples
from accvlab.dali_pipeline_framework.video import VideoStreamInput
from accvlab.dali_pipeline_framework.video.video_stream_input import SequenceDecoder

DEVICES = [None, pytest.param(0, marks=pytest.mark.gpu)]
Counts = tuple[int, int, int, int, str]


def counts_of(source: DataLoader | Pipeline) -> Counts:
    """Operators that compute on the CPU; on the GPU; on both ("mixed"); image decoders; devices of the outputs."""
    counts = checked_by_dali(source if isinstance(source, Pipeline) else pipeline_of(source))
    return *counts.num_by_device, counts.num_decoders, " ".join(counts.outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


# --- graphs, without a GPU -------------------------------------------------------------------------------------

COUNTS: dict[str, Counts] = {
    "decode": (0, 0, 1, 1, "cpu gpu"),
    "decode BGR": (0, 0, 1, 1, "cpu gpu"),
    "decode, resize, normalize": (5, 2, 1, 1, "cpu gpu"),
    "region, resize, normalize": (5, 2, 1, 1, "cpu gpu"),
    "decode, resize, crop, flip": (0, 2, 1, 1, "cpu gpu"),
    "region, resize, crop, flip": (5, 3, 1, 1, "cpu gpu"),
    "warp": (0, 1, 1, 1, "cpu gpu"),
    "flip": (0, 1, 1, 1, "cpu gpu"),
    "colors": (1, 3, 1, 1, "cpu gpu"),
    "grid": (1, 5, 1, 1, "cpu gpu"),
    "tiles": (0, 2, 1, 1, "cpu gpu"),
    "pad different sizes": (2, 5, 1, 1, "cpu gpu gpu gpu"),
    "different sizes": (0, 0, 1, 1, "cpu gpu"),
    "frame sequences": (3, 5, 1, 1, "gpu"),
    **{f"encoded videos, {codec}": (0, 1, 1, 1, "gpu") for codec in ("H.264", "HEVC", "VP9", "AV1")},
    "encoded videos, AV1 with hidden frames": (0, 1, 0, 0, "gpu"),
    "encoded videos, BT.709": (0, 2, 1, 1, "gpu"),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs_are_as_noted(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    assert counts_of(CASES[name].loader(folder, 0)) == COUNTS[name]


INPUTS: dict[str, tuple[Callable[[Path], Any], list[Any], Counts]] = {
    "files": (lambda root: FileReader(file_root=root), [ImageDecoder("data", True)], (1, 0, 1, 1, "gpu cpu")),
    "sequences": (lambda root: SequenceReader(file_root=root, sequence_length=2), [], (1, 0, 0, 0, "cpu")),
    "stream": (lambda _: VideoStreamInput(4), [], (0, 1, 0, 0, "gpu")),
}  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_a_gpu_decodes_what_other_inputs_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    make, steps, expected = INPUTS[name]
    definition = PipelineDefinition(make(frame_folders(tmp_path / "frames", {"a": 4})), steps)
    assert counts_of(definition.get_dali_pipeline(batch_size=2, num_threads=1, device_id=0)) == expected


def test_dali_takes_the_graph_that_decodes_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av")
    from support.videos import make_video

    from accvlab.dali_pipeline_framework.video import index_video

    counts: list[Any] = []
    monkeypatch.setattr(Pipeline, "build", lambda pipeline: counts.append(checked_by_dali(pipeline)))
    untagged = index_video(make_video(tmp_path / "a.mp4", 4, "libx264", size=(192, 128)))
    for matrix, num_corrections in ((untagged.color_matrix, 0), (1, 1)):  # BT.709, which DALI takes for BT.601
        index = attrs.evolve(untagged, color_matrix=matrix)
        for policy in ("partial", "pad"):
            stream = VideoStreamInput(4, last_sequence_policy=policy)  # type: ignore[arg-type]
            pipeline: Any = SequenceDecoder(stream._settings, 2, 0)._operator_pipeline(index)
            assert [node.device for node in pipeline._graph_outputs] == ["gpu", "cpu"]
            assert counts[-1].names["gpu", "CoordTransform"] == num_corrections


# They move images from the CPU to the GPU; the others leave each field where it is.
MOVING_IMAGES = {
    "AffineTransformer",
    "DataGroupArrayInPathElementsAppliedStep",
    "DataGroupArrayWithNameElementsAppliedStep",
    "DataGroupInPathAppliedStep",
    "HorizontalFlipper",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "PhotoMetricDistorter",
    "VideoDecoder",
}


@spread("name", PUBLIC_STEPS, 13)
def test_dali_takes_each_public_step_in_a_pipeline_for_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    case = PUBLIC_STEPS[name]
    definition = PipelineDefinition(GivenSamples(case.samples), [case.step], run="graph")
    pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0, device_id=0)
    assert ("gpu" in checked_by_dali(pipeline).outputs) == (name in MOVING_IMAGES)


# --- with a GPU ------------------------------------------------------------------------------------------------


def difference(name: str, folder: Path, device_id: int | None = 0, **arguments: Any) -> tuple[Difference, int]:
    """Compare the batches of a case with those of the CPU."""
    case = CASES[name]
    with case.reference(folder) as reference, case.loader(folder, device_id, **arguments) as loader:
        expected, found = [*reference], [*loader]
        assert len(found) == len(expected) > 0
        return Difference.of(found, expected, case.pixels, case.levels), len(found)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_makes_the_pixels_of_the_cpu(name: str, folder: Path) -> None:
    found, _ = difference(name, folder)
    assert found.is_within(CASES[name]), found
    assert found.devices == (["cuda:0"] if "gpu" in COUNTS[name][-1] else ["cpu"])


@pytest.mark.parametrize("device_id", DEVICES)
@pytest.mark.parametrize("run", ["auto", "workers"])
def test_workers_load_what_the_pipeline_decodes(run: str, device_id: int | None, folder: Path) -> None:
    name, start_method = "region, resize, normalize", "fork" if device_id is None else "forkserver"
    found, num_batches = difference(name, folder, device_id, num_workers=2, start_method=start_method, run=run)
    assert num_batches == 2
    assert found.is_within(CASES[name]), found
    assert found.devices == ["cpu" if device_id is None or run == "workers" else "cuda:0"]


@pytest.mark.parametrize("device_id", DEVICES)
def test_a_rig_is_one_tensor_on_the_gpu_beside_small_fields_on_the_cpu(
    device_id: int | None, folder: Path
) -> None:
    with CASES["decode, resize, normalize"].loader(folder, device_id) as loader:
        batch = next(iter(loader))
    where = {path: str(value.device) for path, value in leaves(batch)}
    expected = {"index": "cpu", "cameras.gain": "cpu", "cameras.intrinsics": "cpu", "cameras.image": "cuda:0"}
    assert where == {path: device if device_id == 0 else "cpu" for path, device in expected.items()}
    assert batch["cameras"]["image"].is_contiguous()
    assert batch["cameras"]["image"].shape == (2, 3, 3, 48, 96)


@pytest.mark.parametrize("device_id", DEVICES)
@pytest.mark.parametrize("executor", [{}, {"exec_dynamic": False}])
def test_batches_stay_as_they_are_however_far_the_loop_is_ahead(
    executor: dict[str, Any], device_id: int | None, folder: Path
) -> None:
    """A loop that lets go of each batch before kernels have read it, and one that keeps all batches."""
    images = [photo(number) for number in range(16)]
    fields = {"image": (DT.UINT8, images), "index": (DT.INT64, [*range(16)])}
    arguments: dict[str, Any] = {"steps": [decoder()], "num_workers": 0, "pipeline_arguments": executor}
    with DataLoader(ArrayProvider(fields), 2, **arguments) as loader:
        expected = [int(image.sum()) for batch in loader for image in batch["image"]]
    with DataLoader(ArrayProvider(fields), 2, device_id=device_id, **arguments) as loader:
        at_once = [int(image.sum()) for batch in loader for image in batch["image"]]
        later = [total for batch in loader for total in _sums(batch["image"], device_id)]
        held = [batch["image"] for batch in loader]
    assert [int(total) for total in later] == at_once
    assert [int(image.sum()) for batch in held for image in batch] == at_once
    assert at_once == pytest.approx(expected, rel=0.01)


def _sums(images: Any, device_id: int | None) -> Any:
    if device_id is not None:
        import torch

        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
    return images.sum(dim=(1, 2, 3))


@pytest.mark.gpu
def test_a_damaged_image_is_named_and_left_out() -> None:
    images = [photo(number) for number in range(6)]
    images[3] = images[3][:200]
    fields = {"image": (DT.UINT8, images), "index": (DT.INT64, [*range(6)])}
    arguments: dict[str, Any] = {"steps": [decoder()], "num_workers": 0, "device_id": 0}
    with DataLoader(ArrayProvider(fields), 2, **arguments) as loader:
        assert_refused(lambda: list(loader), "To blame:\n  - sample 3, field image: ", GraphError)
    with DataLoader(ArrayProvider(fields), 2, faults="skip", **arguments) as loader:
        delivered = [number for batch in loader for number in batch["index"].tolist()]
        assert [failed.sample_index for failed in loader.failed_samples] == [3]
    assert delivered == [0, 1, 2, 4, 5]


@pytest.mark.gpu
def test_a_stream_of_videos(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from support.videos import make_video, read_numbers

    stream = VideoStreamInput(5)
    pipeline = PipelineDefinition(stream).get_dali_pipeline(batch_size=2, device_id=0)
    with DALIStructuredOutputIterator(pipeline=pipeline) as iterator:
        stream.feed(make_video(tmp_path / "numbers.mp4", 10, "libx264", size=(192, 128)))
        stream.close()
        [batch] = iterator
    assert str(batch["frames"].device) == "cuda:0"
    assert [read_numbers(as_array(frames)) for frames in batch["frames"]] == [[*range(5)], [*range(5, 10)]]
