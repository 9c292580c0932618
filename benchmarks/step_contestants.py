# SPDX-License-Identifier: Apache-2.0
"""The contestants of `bench_steps`, and of a chain in `bench`: each gets the next batch and returns its size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import step_by_hand
import step_data
import step_settings as settings
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType, DALIImageType
from races import START_METHOD, GetBatch, endless
from step_data import NUM_CATEGORIES, DetectionProvider, DrivingSamples, MultiCameraProvider

from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable, ShuffledSampler
from accvlab.dali_pipeline_framework.pipeline import DataLoader, PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxFormatConverter,
    CoordinateCropper,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageBrightnessContrastJitter,
    ImageColorSpaceConverter,
    ImageDecoder,
    ImageGaussianBlurrer,
    ImageJpegDistorter,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsInRangeCheck,
    RandomEraser,
    TensorSizeAdder,
)

NUM_THREADS = 2
STEPS, BY_HAND, TORCH = "steps", "DALI by hand", "PyTorch, OpenCV"
PINNED = "steps, a core for each thread"
DISTORTED_LAST = "steps, distorted last"
NOT_FOLDED = "steps, fold_arrays=False"


# --- single steps ------------------------------------------------------------------------------------------


@attrs.frozen
class StepCase:
    """A step, and who does the same.

    Attributes:
        name: The class of the step, and what its settings make it do.
        step: The step, for a field ``image``.
        work: Name of the function that does the same in `step_by_hand` and in `step_torch`.
        is_encoded: Whether the step gets the bytes of a JPEG.
    """

    name: str
    step: PipelineStepBase
    work: str
    is_encoded: bool = False


def distorter(**probabilities: float) -> PhotoMetricDistorter:
    always = {f"prob_{part}_aug": 1.0 for part in ("brightness", "hue", "contrast", "saturation")}
    return PhotoMetricDistorter(
        "image",
        settings.BRIGHTNESS,
        settings.HUE_DEGREES,
        settings.CONTRAST,
        settings.SATURATION,
        **{**always, "prob_swap_channels": 0.0, **probabilities},
    )


def zoomer(output_hw: tuple[int, int], **fields: Any) -> AffineTransformer:
    steps = [
        AffineTransformer.UniformScaling(1.0, *settings.ZOOM),
        AffineTransformer.NonUniformScaling(settings.FLIP_PROB, [-1, 1]),
    ]
    return AffineTransformer(
        output_hw,
        AffineTransformer.ResizingMode.CROP,
        AffineTransformer.ResizingAnchor.CENTER,
        "image",
        transformation_steps=steps,
        **fields,
    )


def resizer_cropper(**fields: Any) -> ImageResizeCropFlipper:
    return ImageResizeCropFlipper(
        "image",
        output_hw=settings.OUTPUT_HW,
        scale_range=settings.SCALE,
        flip_prob=settings.FLIP_PROB,
        is_kept_inside=True,
        **fields,
    )


def normalizer(dtype: DALIDataType = DALIDataType.FLOAT, layout: str = "") -> ImageMeanStdDevNormalizer:
    return ImageMeanStdDevNormalizer("image", settings.MEAN, settings.STD_DEV, dtype, output_layout=layout)


def step_cases() -> list[StepCase]:
    rotation = AffineTransformer(
        settings.OUTPUT_HW,
        AffineTransformer.ResizingMode.STRETCH,
        None,
        "image",
        transformation_steps=[AffineTransformer.Rotation(1.0, *settings.ROTATION_DEGREES)],
    )
    eraser = RandomEraser(
        "image",
        prob=1.0,
        scale_range=settings.ERASED_AREA,
        ratio_range=(0.5, 2.0),
        fill_value=settings.ERASED_VALUE,
    )
    rgb, bgr, ycbcr = DALIImageType.RGB, DALIImageType.BGR, DALIImageType.YCbCr
    size = f"to {settings.OUTPUT_HW[1]} x {settings.OUTPUT_HW[0]}"
    return [
        StepCase("ImageDecoder, JPEG", ImageDecoder("image", False), "decode", True),
        StepCase(
            f"ImageResizer, {size}, crop",
            ImageResizer("image", output_hw=settings.OUTPUT_HW, mode="crop"),
            "resize",
        ),
        StepCase(f"ImageResizeCropFlipper, {size}", resizer_cropper(), "resize_crop_flip"),
        StepCase(
            f"ImageResizeCropFlipper, JPEG {size}",
            resizer_cropper(is_encoded=True),
            "decode_resize_crop_flip",
            True,
        ),
        StepCase(f"AffineTransformer, {size}, scaling and mirroring", zoomer(settings.OUTPUT_HW), "zoom"),
        StepCase(f"AffineTransformer, {size}, rotation", rotation, "rotate"),
        StepCase("HorizontalFlipper", HorizontalFlipper("image", prob=settings.FLIP_PROB), "flip"),
        StepCase("ImageRange01Normalizer", ImageRange01Normalizer("image"), "to_range_01"),
        StepCase("ImageMeanStdDevNormalizer", normalizer(), "normalize"),
        StepCase("ImageMeanStdDevNormalizer, CHW", normalizer(layout="CHW"), "normalize_to_chw"),
        StepCase("ImageMeanStdDevNormalizer, FLOAT16", normalizer(DALIDataType.FLOAT16), "normalize_to_half"),
        StepCase("ImageToTileSizePadder", ImageToTileSizePadder("image", settings.TILE), "pad"),
        StepCase(
            "PhotoMetricDistorter, brightness and contrast",
            distorter(prob_hue_aug=0.0, prob_saturation_aug=0.0),
            "brighten",
        ),
        StepCase("PhotoMetricDistorter, with hue and saturation", distorter(), "distort"),
        StepCase(
            "ImageBrightnessContrastJitter",
            ImageBrightnessContrastJitter(
                "image", brightness_range=settings.JITTER, contrast_range=settings.JITTER
            ),
            "jitter",
        ),
        StepCase(
            "ImageColorSpaceConverter, RGB to BGR",
            ImageColorSpaceConverter("image", from_image_type=rgb, to_image_type=bgr),
            "to_bgr",
        ),
        StepCase(
            "ImageColorSpaceConverter, RGB to YCbCr",
            ImageColorSpaceConverter("image", from_image_type=rgb, to_image_type=ycbcr),
            "to_ycbcr",
        ),
        StepCase(
            "ImageGaussianBlurrer, 7 x 7",
            ImageGaussianBlurrer("image", sigma_range=settings.BLUR_SIGMA, prob=1.0),
            "blur",
        ),
        StepCase(
            "ImageJpegDistorter",
            ImageJpegDistorter("image", quality_range=(settings.JPEG_QUALITY[0], settings.JPEG_QUALITY[1] - 1)),
            "compress",
        ),
        StepCase("RandomEraser", eraser, "erase"),
        StepCase(
            "GridMasker",
            GridMasker("image", prob=1.0, tile_range=(settings.GRID_TILE[0], settings.GRID_TILE[1] - 1)),
            "mask_grid",
        ),
    ]


def single_step(case: StepCase, image: np.ndarray, batch_size: int, num_workers: int) -> dict[str, GetBatch]:
    """One image again and again, through one step: nothing is loaded."""
    import step_torch

    def by_step(node: Any) -> Any:
        data = SampleDataGroup()
        data.add_data_field("image", DALIDataType.UINT8)
        data["image"] = node
        return case.step(data)["image"]

    change = getattr(step_torch, case.work)
    loader = step_torch.torch_loader(step_torch.ChangedImages(change, image), batch_size, num_workers)
    return {
        STEPS: of_graph(by_step, image, batch_size),
        BY_HAND: of_graph(getattr(step_by_hand, case.work), image, batch_size),
        TORCH: of_loader(loader, batch_size),
    }


def of_graph(define: Callable[[Any], Any], image: np.ndarray, batch_size: int) -> GetBatch:
    """A bare pipeline of DALI."""
    batch = [image] * batch_size
    with Pipeline(batch_size, NUM_THREADS, device_id=None, prefetch_queue_depth=2) as pipeline:
        layout = "HWC" if image.ndim == 3 else None
        node = fn.external_source(lambda: batch, batch=True, no_copy=True, layout=layout)
        pipeline.set_outputs(define(node))
    pipeline.build()

    def get_batch() -> int:
        pipeline.run()
        return batch_size

    return get_batch


def of_loader(loader: Any, batch_size: int) -> GetBatch:
    batches = endless(loader)

    def get_batch() -> int:
        next(batches)
        return batch_size

    return get_batch


# --- chains ------------------------------------------------------------------------------------------------


def bev_transformer() -> BEVBBoxesTransformer3D:
    names = ("centers", "velocities", "sizes", "yaws", "image_from_ego", "ego_to_world", None)
    return BEVBBoxesTransformer3D(*names, settings.BEV_ANGLE_RAD, 2, settings.BEV_SCALE, None)


def multi_camera_steps() -> list[PipelineStepBase]:
    cropper = resizer_cropper(is_encoded=True, projection_names=["intrinsics", "image_from_ego"])
    return [cropper, normalizer(layout="CHW"), bev_transformer()]


def detection_steps(is_distorted_last: bool = False) -> list[PipelineStepBase]:
    on_image = [distorter(), zoomer(settings.DETECTION_HW, box_names="boxes")]
    return [
        ImageDecoder("image", False),
        *(reversed(on_image) if is_distorted_last else on_image),
        normalizer(),
        ImageToTileSizePadder("image", settings.TILE),
        BoundingBoxToHeatmapConverter(
            "annotation",
            "boxes",
            "heatmaps",
            settings.HEATMAP_HW,
            image_field_name="image",
            categories_in_name="categories",
            num_categories=NUM_CATEGORIES,
        ),
    ]


def of_framework(
    provider: DataProvider,
    steps: list[PipelineStepBase],
    batch_size: int,
    num_workers: int,
    resources: ExitStack,
    fold_arrays: bool = True,
    **pipeline_arguments: Any,
) -> GetBatch:
    sampler = ShuffledSampler(provider.get_number_of_samples(), shuffle=False)
    definition = PipelineDefinition(SamplerInputCallable(provider, sampler), steps, fold_arrays=fold_arrays)
    output = definition.check_and_get_output_data_structure()
    loader = DataLoader(
        definition,
        batch_size,
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
        ragged={name: "list" for name in ("objects", "annotation") if output.find_all_occurrences(name)},
        pipeline_arguments=pipeline_arguments,
    )
    return of_loader(resources.enter_context(loader), batch_size)


def of_pipeline(pipeline: Pipeline, batch_size: int) -> GetBatch:
    """A pipeline written by hand, read into tensors of PyTorch, or lists of them where shapes differ."""
    import torch

    pipeline.build()

    def get_batch() -> int:
        for output in pipeline.run():
            if output.is_dense_tensor():
                torch.from_numpy(np.asarray(output.as_tensor()))
            else:
                [torch.from_numpy(np.asarray(sample)) for sample in output]
        return batch_size

    return get_batch


def chain(
    name: str, samples: DrivingSamples, batch_size: int, num_workers: int, resources: ExitStack
) -> dict[str, GetBatch]:
    """A whole chain: one worker loads for DALI, which has two threads; PyTorch has as many workers as threads."""
    import step_torch

    provider: DataProvider
    workers = min(num_workers, 1)

    def of_steps(steps: list[PipelineStepBase], **options: Any) -> GetBatch:
        return of_framework(provider, steps, batch_size, workers, resources, **options)

    if name == "multi-camera":
        provider, dataset = MultiCameraProvider(samples), step_torch.MultiCameraSamples(samples)
        of_library = {
            STEPS: of_steps(multi_camera_steps()),
            NOT_FOLDED: of_steps(multi_camera_steps(), fold_arrays=False),
        }
        define = step_by_hand.multi_camera
    else:
        provider, dataset = DetectionProvider(samples), step_torch.DetectionSamples(samples)
        of_library = {
            STEPS: of_steps(detection_steps()),
            DISTORTED_LAST: of_steps(detection_steps(True)),
            PINNED: of_steps(detection_steps(), set_affinity=True),
        }
        define = step_by_hand.detection
    by_hand = define(
        samples,
        bool(workers),
        batch_size=batch_size,
        num_threads=NUM_THREADS,
        device_id=None,
        **({"py_num_workers": workers, "py_start_method": START_METHOD} if workers else {}),
    )
    loader = step_torch.torch_loader(dataset, batch_size, num_workers, step_torch.lists_where_ragged)
    return {**of_library, BY_HAND: of_pipeline(by_hand, batch_size), TORCH: of_loader(loader, batch_size)}


# --- building ----------------------------------------------------------------------------------------------


def twenty_steps() -> list[PipelineStepBase]:
    """Steps for an `AnnotatedCamerasProvider`; each works on all six cameras, or on what belongs to them."""
    in_pixels = {"projection_names": ["intrinsics", "image_from_ego"], "box_names": "boxes"}
    rgb, bgr = DALIImageType.RGB, DALIImageType.BGR
    kinds = AffineTransformer
    options = [kinds.UniformScaling(1.0, *settings.ZOOM), kinds.Rotation(1.0, *settings.ROTATION_DEGREES)]
    changes = [
        kinds.Selection(0.5, [0.5, 0.5], options),
        kinds.Shearing(0.5, [-2, -2], [2, 2]),
        kinds.NonUniformScaling(0.5, [-1, 1]),
    ]
    affine = AffineTransformer(
        step_data.IMAGE_HW,
        kinds.ResizingMode.STRETCH,
        None,
        "image",
        projection_matrix_field_names=in_pixels["projection_names"],
        box_names=in_pixels["box_names"],
        transformation_steps=changes,
    )
    limits = [-50.0, -50.0, -5.0], [50.0, 50.0, 5.0]
    heatmaps = detection_steps()[-1]
    return [
        ImageDecoder("image", False),
        ImageJpegDistorter("image", quality_range=settings.JPEG_QUALITY),
        distorter(),
        affine,
        ImageResizer("image", output_hw=settings.DETECTION_HW, mode="pad", **in_pixels),
        resizer_cropper(**in_pixels),
        HorizontalFlipper("image", **in_pixels),
        ImageGaussianBlurrer("image", sigma_range=settings.BLUR_SIGMA),
        ImageBrightnessContrastJitter("image", brightness_range=settings.JITTER, contrast_range=settings.JITTER),
        ImageColorSpaceConverter("image", from_image_type=rgb, to_image_type=bgr),
        normalizer(),
        ImageToTileSizePadder("image", settings.TILE),
        TensorSizeAdder("image", "_size"),
        DataGroupArrayWithNameElementsAppliedStep(heatmaps, "cameras"),
        CoordinateCropper("boxes", [0.0, 0.0, 0.0, 0.0], [704.0, 256.0, 704.0, 256.0]),
        BoxFormatConverter("boxes", from_format="xyxy", to_format="cxcywh"),
        bev_transformer(),
        PointsInRangeCheck("centers", "is_inside", *limits),
        PaddingToUniform(["centers", "sizes", "yaws", "velocities"]),
        AxesLayoutSetter("image", "HWC"),
    ]


def define_twenty_steps(batch_size: int) -> Pipeline:
    """A graph of twenty steps over six cameras. It loads nothing before it runs."""
    provider = step_data.AnnotatedCamerasProvider(DrivingSamples([], []))
    sampler = ShuffledSampler(provider.get_number_of_samples(), batch_size, shuffle=False)
    definition = PipelineDefinition(SamplerInputCallable(provider, sampler), twenty_steps())
    return definition.get_dali_pipeline(num_threads=NUM_THREADS, py_num_workers=0)
