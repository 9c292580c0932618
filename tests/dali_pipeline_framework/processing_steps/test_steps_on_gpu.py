"""Steps in a pipeline with a GPU: the same output as on the CPU, from one definition.

Where there is no GPU, it is tested that the graphs have operators that exist there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from affine_reference import constant_draws
from nvidia.dali.pipeline import Pipeline, pipeline_def
from step_runs import run_steps
from support.array_samples import sample_of
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.laws import spread
from support.pipelines import shuffled
from support.public_steps import PUBLIC_STEPS, StepCase

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    BoundingBoxToHeatmapConverter,
    ConditionalElementRemover,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsPadder,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.testing import run_step, sample_differences

Path = tuple[str | int, ...]
NUM_OBJECTS = (4, 0, 7)  # of the samples of the batch
IMAGE_HW = (40, 60)


def scene(number: int) -> SampleDataGroup:
    """An image with its size, and boxes in it with what belongs to them."""
    generator, n = np.random.default_rng(number), NUM_OBJECTS[number]
    corners = generator.uniform(-5, 65, (n, 2, 2)).astype(np.float32)
    boxes = np.sort(corners, axis=1).reshape(n, 4)
    return sample_of(
        {
            "image": generator.integers(0, 256, (*IMAGE_HW, 3), dtype=np.uint8),
            "hw": np.array(IMAGE_HW, np.int32),
            "annotation": {
                "boxes": boxes,
                "transposed_boxes": boxes.T,
                "categories": generator.integers(-1, 3, n).astype(np.int32),
                "depths": generator.uniform(1, 30, n).astype(np.float32),
                "is_kept": generator.random(n) < 0.5,
                "pixels": corners.mean(axis=1),
            },
        }
    )


OF_SCENES = {
    "heatmap of an image": BoundingBoxToHeatmapConverter(
        *("annotation", "boxes", "heatmap", (20, 30), "image"),
        categories_in_name="categories",
        num_categories=3,
        per_category_min_object_sizes=[[1, 1], [2, 3], [0, 0]],
        is_valid_opt_in_name="is_kept",
        is_active_opt_out_name="is_active",
        center_opt_out_name="pixel",
        center_offset_opt_out_name="offset",
        height_width_bboxes_heatmap_opt_out_name="hw",
        bboxes_heatmap_opt_out_name="boxes_on_map",
    ),
    "heatmap of sizes and centers": BoundingBoxToHeatmapConverter(
        *("annotation", "boxes", "heatmap", (20, 30)),
        image_hw_field_name="hw",
        use_per_category_heatmap=False,
        center_opt_in_name="pixels",
    ),
    "sizes": ImageResizer(None, output_hw=[20, 30], hw_names="hw"),
    "sizes of images": HorizontalFlipper("image", hw_names="hw", projection_names=()),
    "a mask among the fields": ConditionalElementRemover(
        "annotation", "is_kept", ["boxes", "categories", "is_kept"], [0, 0, 0], [2, 1, 1], False
    ),
    "removal along another axis": ConditionalElementRemover(
        "annotation", "is_kept", ["transposed_boxes"], [1], [2], True
    ),
    "padding": PaddingToUniform(None, -1),
    "number of flags": PointsPadder("is_kept", num_points=5, mask_name="is_flag"),
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


def defined_with(case: StepCase, on_gpu: tuple[Path, ...], conditionals: bool) -> Pipeline:
    """Define a pipeline of a step for a GPU, whether there is one or not."""
    data = case.samples[0].get_empty_like_self()

    @pipeline_def(batch_size=len(case.samples), num_threads=1, device_id=0, enable_conditionals=conditionals)
    def bare() -> Any:
        sources = ((path, fn.external_source(name=str(path))) for path in data.format.flat_paths)
        data.set_data([node.gpu() if path in on_gpu else node for path, node in sources])
        return tuple(case.step(data).get_data())

    return bare()


@pytest.mark.parametrize("conditionals", [False, pytest.param(True, marks=pytest.mark.wide)])
@spread("name", CASES, 14)
def test_dali_accepts_the_graph_for_a_gpu(name: str, conditionals: bool) -> None:
    refused = {}
    for what, on_gpu in placements(CASES[name]).items():
        try:
            counts = checked_by_dali(defined_with(CASES[name], on_gpu, conditionals))
        except Exception as error:
            refused[what] = f"{type(error).__name__}: {error}"
            continue
        assert counts.num_decoders == 0
    assert refused == {}


def test_no_pass_over_pixels_for_a_layout_that_the_format_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    provider = ArrayProvider({"image": (DT.UINT8, [encoded_image(gradient(16, 24))])})
    steps = [
        ImageDecoder("image", True),
        PhotoMetricDistorter("image", [-9, 9], [-9, 9], [0.5, 2], [0.5, 2]),
        GridMasker("image"),
    ]
    definition = PipelineDefinition(shuffled(provider, 1), steps)
    counts = checked_by_dali(definition.get_dali_pipeline(num_threads=1, py_num_workers=0, device_id=0))
    pixels = {name: count for (device, name), count in counts.names.items() if device in ("gpu", "mixed")}
    assert pixels.pop("Reshape") == 2  # the layout; and the size
    assert {name: count for name, count in pixels.items() if not name.startswith("_")} == {
        **dict.fromkeys(("decoders__Image", "BrightnessContrast", "CoordTransform"), 1),
        **{"GridMask": 1, "Slice": 1, "Constant": 1},
    }


def test_operators_that_do_not_exist_on_the_gpu_are_found() -> None:
    with Pipeline(batch_size=3, num_threads=1, device_id=0) as pipeline:
        pipeline.set_outputs(fn.ones(shape=[3], device="gpu") * 2)
    with pytest.raises(AssertionError, match="Ones"):
        checked_by_dali(pipeline)


def test_inputs_on_the_wrong_device_are_found() -> None:
    with Pipeline(batch_size=3, num_threads=1, device_id=0):
        field = fn.external_source(name="field")
        with pytest.raises(RuntimeError, match="is stored on"):
            fn.stack(field, field.gpu(), device="gpu")


# Of these, pixels differ by roundings: see below.
OF_PIXELS = {
    "AffineTransformer",
    "GridMasker",
    "ImageMeanStdDevNormalizer",
    "ImageRange01Normalizer",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "ImageToTileSizePadder",
    "PhotoMetricDistorter",
}


@pytest.mark.gpu
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("conditionals", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_PIXELS])
def test_with_a_gpu_as_without(name: str, where: str, conditionals: bool) -> None:
    case = CASES[name]
    on_gpu = placements(case)["all"] if where == "gpu" else ()
    found = run_step(case.step, case.samples, device_id=0, on_gpu=on_gpu, enable_conditionals=conditionals)
    expected = run_step(case.step, case.samples, enable_conditionals=conditionals)
    tolerance = 1e-5 if name == "BEVBBoxesTransformer3D" else 0.0
    for one, other in zip(found, expected, strict=True):
        assert one.layouts == other.layouts
        assert sample_differences(other.output, one.output, tolerance=tolerance) == []


CENTERED = A.ResizingMode.CROP, A.ResizingAnchor.CENTER
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
# A step, the type of the images, and by how much the results may differ; by 2 levels also along the borders.
ON_IMAGES: dict[str, tuple[PipelineStepBase, DT, float]] = {
    **{
        name: (A([24, 30], *CENTERED, "image", transformation_steps=steps), DT.UINT8, 2)
        for name, steps in {
            "region": [A.UniformScaling(1, 1.2)],
            "pasted": [A.UniformScaling(1, 0.7), A.NonUniformScaling(1, [-1, 1])],
            "warp": [A.Rotation(1, 5), A.UniformScaling(1, 0.7)],
        }.items()
    },
    "flip": (HorizontalFlipper("image", prob=1), DT.UINT8, 2),
    "crop": (
        ImageResizeCropFlipper(
            "image", output_hw=[18, 24], scale_range=(0.6, 0.6), flip_prob=1, is_kept_inside=True
        ),
        DT.UINT8,
        2,
    ),
    "pad": (ImageResizer("image", output_hw=[18, 24], mode="pad"), DT.UINT8, 2),
    **{
        f"mean, {dtype.name}": (ImageMeanStdDevNormalizer("image", MEAN, STD, dtype), DT.UINT8, 2e-3)
        for dtype in (DT.FLOAT, DT.FLOAT16, DT.FLOAT64)
    },
    "range 01": (ImageRange01Normalizer("image"), DT.UINT8, 1e-6),
    "tiles": (ImageToTileSizePadder("image", 16), DT.UINT8, 0),
    "colors": (PhotoMetricDistorter("image", [0, 0], [-18, 18], [0.5, 1.5], [0.5, 1.75]), DT.UINT8, 1),
    "colors of reals": (PhotoMetricDistorter("image", [0, 0], [-18, 18], [0.5, 1.5], [0.5, 1.75]), DT.FLOAT, 1e-5),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_IMAGES)
def test_images_are_on_a_gpu_what_they_are_without(name: str) -> None:
    step, dtype, tolerance = ON_IMAGES[name]
    images = [gradient(40, 50, phase) for phase in range(3)]
    fields = {"image": (dtype, [image / np.float32(255) if dtype == DT.FLOAT else image for image in images])}
    with constant_draws(0.3):
        expected = run_steps(step, fields)["image"]
    with constant_draws(0.3):
        found = run_steps(step, fields, device_id=0, gpu_fields=["image"])["image"]
    inner = slice(2, -2) if tolerance == 2 else slice(None)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.abs(one.astype(float) - other)[inner, inner].max() <= tolerance
