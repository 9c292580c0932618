"""Steps in a pipeline with a GPU: the same output as on the CPU, from one definition.

Where there is no GPU, it is tested that the graphs have operators that exist there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
import pytest
from nvidia.dali.pipeline import Pipeline, pipeline_def
from step_runs import run_steps
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.laws import spread
from support.pipelines import shuffled

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    ConditionalElementRemover,
    CoordinateCropper,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    VisibleBboxSelector,
)

NUM_OBJECTS = (4, 0, 7)  # of the samples of the batch
NUM_POINTS = (50, 3, 0)
IMAGE_HW = (40, 60)


def sample(number: int) -> dict[str, Any]:
    """One sample, by name: type and value."""
    generator = np.random.default_rng(number)
    n, num_points = NUM_OBJECTS[number], NUM_POINTS[number]
    corners = generator.uniform(-5, 65, (n, 2, 2)).astype(np.float32)
    boxes = np.sort(corners, axis=1).reshape(n, 4)
    pose = np.eye(4, dtype=np.float32)
    pose[:3, 3] = generator.normal(size=3)
    return {
        "image": (DT.UINT8, generator.integers(0, 256, (*IMAGE_HW, 3), dtype=np.uint8)),
        "hw": (DT.INT32, np.array(IMAGE_HW, np.int32)),
        "time": (DT.INT64, np.int64(1_700_000_000_000_000_000 + number)),
        "point_times": (DT.INT64, 1_700_000_000_000_000_000 - generator.integers(0, 10**9, num_points)),
        "points": (DT.FLOAT, generator.uniform(-9, 9, (num_points, 4)).astype(np.float32)),
        "e2w": (DT.FLOAT, pose),
        "w2e": (DT.FLOAT, np.linalg.inv(pose)),
        "lidar2img": (DT.FLOAT, generator.normal(size=(3, 4)).astype(np.float32)),
        "annotation.boxes": (DT.FLOAT, boxes),
        "annotation.transposed_boxes": (DT.FLOAT, boxes.T),
        "annotation.categories": (DT.INT32, generator.integers(-1, 3, n).astype(np.int32)),
        "annotation.depths": (DT.FLOAT, generator.uniform(1, 30, n).astype(np.float32)),
        "annotation.is_kept": (DT.BOOL, generator.random(n) < 0.5),
        "annotation.centers": (DT.FLOAT, generator.normal(size=(n, 3)).astype(np.float32) * 20),
        "annotation.velocities": (DT.FLOAT, generator.normal(size=(n, 3)).astype(np.float32)),
        "annotation.sizes": (DT.FLOAT, generator.uniform(1, 5, (n, 3)).astype(np.float32)),
        "annotation.pixels": (DT.FLOAT, corners.mean(axis=1)),
        "annotation.yaws": (DT.FLOAT, generator.uniform(-4, 4, n).astype(np.float32)),
    }


def fields() -> dict[str, Any]:
    samples = [sample(number) for number in range(len(NUM_OBJECTS))]
    tree: dict[str, Any] = {"annotation": {}}
    for name, (dtype, _) in samples[0].items():
        parent = tree["annotation"] if name.startswith("annotation.") else tree
        parent[name.removeprefix("annotation.")] = (dtype, [each[name][1] for each in samples])
    return tree


@attrs.frozen
class Case:
    """A step.

    Attributes:
        make: Makes it.
        on_gpu: Fields that may be on the GPU when it gets them.
        tolerance: By how much float32 numbers may differ, absolute and relative; 0 for bit by bit.
    """

    make: Callable[[], PipelineStepBase]
    on_gpu: tuple[str, ...] = ()
    tolerance: float = 0.0


BOXES = "annotation.boxes"
CASES = {
    "condition": Case(
        lambda: AnnotationElementConditionEval(
            "annotation", "is_near = depths < 12.5 and not categories == -1 or -depths > -3", False
        ),
        ("annotation.depths", "annotation.categories"),
    ),
    "layout": Case(lambda: AxesLayoutSetter("image", "HWC"), ("image",)),
    "3D boxes": Case(
        lambda: BEVBBoxesTransformer3D(
            *("centers", "velocities", "sizes", "yaws", "lidar2img", "e2w", "w2e"),
            *([-3, 3], 2, [0.5, 2], [4, 4, 4]),
            flip_prob_x=0.5,
            flip_prob_y=0.5,
        ),
        (
            *(f"annotation.{name}" for name in ("centers", "velocities", "sizes", "yaws")),
            *("lidar2img", "e2w", "w2e"),
        ),
        tolerance=1e-6,
    ),
    "heatmap": Case(
        lambda: BoundingBoxToHeatmapConverter(
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
        ("image", BOXES, "annotation.categories", "annotation.is_kept"),
    ),
    "heatmap of sizes and centers": Case(
        lambda: BoundingBoxToHeatmapConverter(
            *("annotation", "boxes", "heatmap", (20, 30)),
            image_hw_field_name="hw",
            use_per_category_heatmap=False,
            center_opt_in_name="pixels",
        ),
        ("hw", BOXES, "annotation.pixels"),
    ),
    "sizes": Case(lambda: ImageResizer(None, output_hw=[20, 30], hw_names="hw"), ("hw",)),
    "sizes of images": Case(
        lambda: HorizontalFlipper("image", hw_names="hw", projection_names=()), ("image", "hw")
    ),
    "area": Case(
        lambda: BoxAreaFilter("boxes", area_range=(100, 1000), further_names=["categories", "is_kept"]),
        (BOXES, "annotation.categories", "annotation.is_kept"),
    ),
    "removal": Case(
        lambda: ConditionalElementRemover(
            "annotation", "is_kept", ["boxes", "categories", "is_kept"], [0, 0, 0], [2, 1, 1], False
        ),
        (BOXES, "annotation.categories", "annotation.is_kept"),
    ),
    "removal along another axis": Case(
        lambda: ConditionalElementRemover("annotation", "is_kept", ["transposed_boxes"], [1], [2], True),
        ("annotation.transposed_boxes",),
    ),
    "cropping": Case(lambda: CoordinateCropper("boxes", [0, 0, 0, 0], [60, 40, 60, 40]), (BOXES,)),
    "padding": Case(lambda: PaddingToUniform(None, -1), ("image", "points", BOXES, "annotation.categories")),
    "range of a point cloud": Case(
        lambda: PointCloudRangeFilter(
            "points", point_range=([-5, -5, -2], [5, 5, 2]), further_names="point_times"
        ),
        ("points", "point_times"),
    ),
    "points in a range": Case(
        lambda: PointsInRangeCheck("centers", "is_inside", [-20, -20, -np.inf], [20, 20, np.inf]),
        ("annotation.centers",),
    ),
    "number of points": Case(
        lambda: PointsPadder("points", num_points=20, mask_name="is_point", fill_value=-1), ("points",)
    ),
    "number of flags": Case(
        lambda: PointsPadder("is_kept", num_points=5, mask_name="is_flag"), ("annotation.is_kept",)
    ),
    "size": Case(lambda: TensorSizeAdder("image", "_hw"), ("image",)),
    "visible": Case(
        lambda: VisibleBboxSelector(
            "boxes", ("annotation", "is_visible"), "image", depths_field_name="depths", minimum_bbox_size=3
        ),
        ("image", BOXES, "annotation.depths"),
    ),
    "function": Case(
        lambda: LambdaStep(
            lambda points: dali_math.floor(points * 2), input_names=["points"], output_types={"points": DT.FLOAT}
        ),
        ("points",),
    ),
}


IMAGE_STEPS: dict[str, Callable[[], PipelineStepBase]] = {
    "padding to tiles": lambda: ImageToTileSizePadder("image", 32),
    "range 01": lambda: ImageRange01Normalizer("image"),
    "mean": lambda: ImageMeanStdDevNormalizer("image", [1, 2, 3], [4, 5, 6]),
    "photo": lambda: PhotoMetricDistorter("image", [-9, 9], [-9, 9], [0.5, 2], [0.5, 2]),
    "resizing": lambda: ImageResizer("image", output_hw=[20, 30], projection_names=()),
    "cropping of images": lambda: ImageResizeCropFlipper(
        output_hw=[20, 30], scale_range=(0.9, 1.1), projection_names=()
    ),
    "flipping": lambda: HorizontalFlipper("image", projection_names=()),
    "grid": lambda: GridMasker("image"),
}


def placements(case: Case) -> dict[str, tuple[str, ...]]:
    """Fields that are on the GPU, by what a message about them says."""
    alone = {field: (field,) for field in case.on_gpu}
    return {"none": (), **alone, **({"all": case.on_gpu} if len(case.on_gpu) > 1 else {})}


def defined_with(case: Case, on_gpu: tuple[str, ...], conditionals: bool) -> Pipeline:
    """Define a pipeline of a step for a GPU, whether there is one or not."""
    data = ArrayProvider(fields()).sample_data_structure

    @pipeline_def(batch_size=3, num_threads=1, device_id=0, enable_conditionals=conditionals)
    def bare() -> Any:
        sources = ((field, fn.external_source(name=field)) for field in data.field_names_flat)
        data.set_data([node.gpu() if field in on_gpu else node for field, node in sources])
        return tuple(case.make()(data).get_data())

    return bare()


@pytest.mark.parametrize("conditionals", [False, pytest.param(True, marks=pytest.mark.wide)])
@spread("name", [*CASES, *IMAGE_STEPS], 10)
def test_dali_accepts_the_graph_for_a_gpu(name: str, conditionals: bool) -> None:
    case = CASES.get(name) or Case(IMAGE_STEPS[name], ("image",))
    refused = {}
    for what, on_gpu in placements(case).items():
        try:
            counts = checked_by_dali(defined_with(case, on_gpu, conditionals))
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


@pytest.mark.gpu
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("conditionals", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_with_a_gpu_as_without(name: str, where: str, conditionals: bool) -> None:
    case, data = CASES[name], fields()
    expected = run_steps(case.make(), data, conditionals=conditionals)
    found = run_steps(
        case.make(), data, device_id=0, gpu_fields=case.on_gpu if where == "gpu" else (), conditionals=conditionals
    )
    assert list(found.values) == list(expected.values)
    assert found.layouts == expected.layouts
    for field, arrays in expected.values.items():
        for one, other in zip(found[field], arrays, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), field
            if case.tolerance and one.dtype == np.float32:
                np.testing.assert_allclose(one, other, rtol=case.tolerance, atol=case.tolerance, err_msg=field)
            else:
                np.testing.assert_array_equal(one, other, err_msg=field)
