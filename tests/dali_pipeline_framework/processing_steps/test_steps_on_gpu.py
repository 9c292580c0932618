"""Steps in a pipeline with a GPU: the same output as on the CPU, from one definition.

Where there is no GPU, it is tested that the graphs have operators that exist there.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali.pipeline import Pipeline, pipeline_def
from support import gpu_cases
from support.array_samples import sample_of
from support.arrays import DT, gradient
from support.gpu_definitions import checked_by_dali
from support.laws import spread
from support.public_steps import PUBLIC_STEPS, STEPS_ON_IMAGES, StepCase

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    BoundingBoxToHeatmapConverter,
    ImageMeanStdDevNormalizer,
    PhotoMetricDistorter,
    PipelineStepBase,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.testing import run_step, sample_differences

Path = tuple[str | int, ...]


def scene(number: int) -> SampleDataGroup:
    """An image, and boxes in it with what belongs to them."""
    generator, n = np.random.default_rng(number), (4, 0, 7)[number]
    corners = generator.uniform(-5, 65, (n, 2, 2)).astype(np.float32)
    annotation = {
        "boxes": np.sort(corners, axis=1).reshape(n, 4),
        "categories": generator.integers(-1, 3, n).astype(np.int32),
        "depths": generator.uniform(1, 30, n).astype(np.float32),
    }
    return sample_of({"image": generator.integers(0, 256, (40, 60, 3), np.uint8), "annotation": annotation})


OF_SCENES = {
    "heatmap of an image": BoundingBoxToHeatmapConverter(
        *("annotation", "boxes", "heatmap", (20, 30), "image"), categories_in_name="categories", num_categories=3
    ),
    "visible in an image": VisibleBboxSelector(
        "boxes", ("annotation", "is_visible"), "image", depths_field_name="depths", minimum_bbox_size=3
    ),
}
OTHERS = ("ImageDecoder", "MapStep", "VideoDecoder")  # of files, or on arrays only
CASES = {
    **{name: case for name, case in PUBLIC_STEPS.items() if name not in OTHERS},
    **{name: StepCase(step, [scene(number) for number in range(3)]) for name, step in OF_SCENES.items()},
}


def placements(case: StepCase) -> dict[str, tuple[Path, ...]]:
    """Fields that are on the GPU, by what a message about them says."""
    paths = case.samples[0].format.flat_paths
    return {"none": (), **{str(path): (path,) for path in paths}, "all": paths}


def defined_with(case: StepCase, on_gpu: tuple[Path, ...]) -> Pipeline:
    """Define a pipeline of a step for a GPU, whether there is one or not."""
    data = case.samples[0].get_empty_like_self()

    @pipeline_def(batch_size=len(case.samples), num_threads=1, device_id=0)
    def bare() -> Any:
        sources = ((path, fn.external_source(name=str(path))) for path in data.format.flat_paths)
        data.set_data([node.gpu() if path in on_gpu else node for path, node in sources])
        return tuple(case.step(data).get_data())

    return bare()


@spread("name", CASES, 14)
def test_dali_accepts_the_graph_for_a_gpu(name: str) -> None:
    refused = {}
    for what, on_gpu in placements(CASES[name]).items():
        try:
            counts = checked_by_dali(defined_with(CASES[name], on_gpu))
        except Exception as error:
            refused[what] = f"{type(error).__name__}: {error}"
            continue
        assert counts.num_decoders == 0
    assert refused == {}


# Of other steps on images, pixels differ by roundings: `test_loaders_on_gpu.py` compares loaders with them.
ROUNDED = STEPS_ON_IMAGES - {"AxesLayoutSetter", "HorizontalFlipper", "TensorSizeAdder"}


def test_rounded_steps_are_compared_in_a_loader() -> None:
    assert {name for name in ROUNDED if f"{name}(" not in inspect.getsource(gpu_cases)} == set()


@pytest.mark.gpu
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in ROUNDED])
def test_with_a_gpu_as_without(name: str, where: str) -> None:
    case = CASES[name]
    on_gpu = placements(case)["all"] if where == "gpu" else ()
    found = run_step(case.step, case.samples, device_id=0, on_gpu=on_gpu)
    expected = run_step(case.step, case.samples)
    tolerance = 1e-5 if name == "BEVBBoxesTransformer3D" else 0.0
    for one, other in zip(found, expected, strict=True):
        assert one.layouts == other.layouts
        assert sample_differences(other.output, one.output, tolerance=tolerance) == []


# What `test_loaders_on_gpu.py` has not: a step, the type of the images, and by how much the results may differ.
ON_IMAGES: dict[str, tuple[PipelineStepBase, DT, float]] = {
    "pasted": (
        A(
            [24, 30],
            A.ResizingMode.CROP,
            A.ResizingAnchor.CENTER,
            "image",
            transformation_steps=[A.UniformScaling(1, 0.7), A.NonUniformScaling(1, [-1, 1])],
        ),
        DT.UINT8,
        2,
    ),
    "mean, FLOAT64": (ImageMeanStdDevNormalizer("image", [124, 116, 104], 57, DT.FLOAT64), DT.UINT8, 2e-3),
    "colors of reals": (PhotoMetricDistorter("image", [0, 0], [-18, 18], [0.5, 1.5], [0.5, 1.75]), DT.FLOAT, 1e-5),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_IMAGES)
def test_images_are_on_a_gpu_what_they_are_without(name: str) -> None:
    step, dtype, tolerance = ON_IMAGES[name]
    images = [gradient(40, 50, phase) for phase in range(3)]
    samples = [sample_of({"image": image if dtype == DT.UINT8 else image / np.float32(255)}) for image in images]
    expected = run_step(step, samples)
    found = run_step(step, samples, draws=[run.draws for run in expected], device_id=0, on_gpu=["image"])
    inner = slice(2, -2) if tolerance == 2 else slice(None)
    for run, reference in zip(found, expected, strict=True):
        one, other = run.output["image"], reference.output["image"]
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.abs(one.astype(float) - other)[inner, inner].max() <= tolerance
