# SPDX-License-Identifier: Apache-2.0
"""The contestants of chains in `bench_steps` and `bench`: each gets the next batch and returns its size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
import numpy as np
import step_by_hand
import step_data
import step_settings as settings
from nvidia.dali.pipeline import Pipeline
from races import START_METHOD, GetBatch
from step_contestants import (
    BY_HAND,
    GRAPH,
    NUM_THREADS,
    TORCH,
    WORKERS,
    distorter,
    normalizer,
    of_loader,
    resizer_cropper,
    zoomer,
)
from step_data import NUM_CATEGORIES, DetectionProvider, DrivingSamples, MultiCameraProvider

from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    CoordinateCropper,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PipelineStepBase,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    UnneededFieldRemover,
    for_each,
)
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

AUTO = "auto"
DISTORTED_LAST = "auto, colors distorted last"
STEPS, NOT_FOLDED, BY_DEFAULT = "steps", "steps, fold_arrays=False", "steps, by default"
_RUN: dict[str, RunWhere] = {WORKERS: "workers", GRAPH: "graph", AUTO: "auto"}

# --- chains ------------------------------------------------------------------------------------------------


def bev_transformer() -> BEVBBoxesTransformer3D:
    names = ("centers", "velocities", "sizes", "yaws", "image_from_ego", "ego_to_world", None)
    return BEVBBoxesTransformer3D(*names, settings.BEV_ANGLE_RAD, 2, settings.BEV_SCALE, None)


def multi_camera_steps(reduced_decoding: bool = False) -> list[PipelineStepBase]:
    matrices = ["intrinsics", "image_from_ego"]
    cropper = resizer_cropper(is_encoded=True, projection_names=matrices, reduced_decoding=reduced_decoding)
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
    *,
    run: RunWhere,
    fold_arrays: bool = True,
) -> GetBatch:
    sampler = ShuffledSampler(provider.get_number_of_samples(), shuffle=False)
    definition = PipelineDefinition(SamplerInputCallable(provider, sampler), steps)
    output = definition.check_and_get_output_data_structure()
    loader = DataLoader(
        provider,
        batch_size,
        steps=steps,
        sampler=sampler,
        run=run,
        fold_arrays=fold_arrays,
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
        ragged={name: "list" for name in ("objects", "annotation") if output.find_all_occurrences(name)},
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


@attrs.frozen
class Chain:
    """A chain of steps, and who does the same.

    Attributes:
        name: What it is.
        provider: Of its samples.
        steps: Makes its steps.
        dataset: Name of a class in `step_torch`.
        by_hand: Defines the same in DALI; None where DALI has no operators for it.
        num_images: Of a sample.
        distorted_last: Makes the steps in an order that is quicker, if there is one.
    """

    name: str
    provider: Callable[[DrivingSamples], DataProvider]
    steps: Callable[[], list[PipelineStepBase]]
    dataset: str
    by_hand: Callable[..., Pipeline] | None
    num_images: int = 1
    distorted_last: Callable[[], list[PipelineStepBase]] | None = None

    def race(
        self, samples: DrivingSamples, batch_size: int, num_workers: int, resources: ExitStack
    ) -> dict[str, GetBatch]:
        """All contestants have as many workers; DALI has two threads besides."""
        import step_torch

        provider = self.provider(samples)

        def of_steps(steps: list[PipelineStepBase], name: str) -> GetBatch:
            return of_framework(provider, steps, batch_size, num_workers, resources, run=_RUN[name])

        racing = {name: of_steps(self.steps(), name) for name in self.forms}
        if self.distorted_last is not None:
            racing[DISTORTED_LAST] = of_steps(self.distorted_last(), AUTO)
        if self.by_hand is not None:
            racing[BY_HAND] = of_hand(self.by_hand, samples, batch_size, num_workers)
        dataset = getattr(step_torch, self.dataset)(samples)
        loader = step_torch.torch_loader(dataset, batch_size, num_workers, step_torch.lists_where_ragged)
        return {**racing, TORCH: of_loader(loader, batch_size)}

    @property
    def forms(self) -> list[str]:
        """Where the steps can run."""
        has_graph_form = all(step.has_graph_form for step in self.steps())
        return [WORKERS, *([GRAPH] if has_graph_form else []), AUTO]


SIX_CAMERAS = Chain(
    "six cameras", MultiCameraProvider, multi_camera_steps, "MultiCameraSamples", step_by_hand.multi_camera, 6
)
REDUCED = Chain(
    "six cameras, reduced decoding",
    MultiCameraProvider,
    partial(multi_camera_steps, True),
    "ReducedMultiCameraSamples",
    None,
    6,
)
DETECTION = Chain(
    "detection",
    DetectionProvider,
    detection_steps,
    "DetectionSamples",
    step_by_hand.detection,
    distorted_last=partial(detection_steps, True),
)
CHAINS = (SIX_CAMERAS, REDUCED, DETECTION)


def of_hand(
    define: Callable[..., Pipeline], samples: DrivingSamples, batch_size: int, num_workers: int
) -> GetBatch:
    parallel = {"py_num_workers": num_workers, "py_start_method": START_METHOD} if num_workers else {}
    arguments = {"batch_size": batch_size, "num_threads": NUM_THREADS, "device_id": None, **parallel}
    return of_pipeline(define(samples, bool(num_workers), **arguments), batch_size)


def folded_chain(
    samples: DrivingSamples, batch_size: int, num_workers: int, resources: ExitStack
) -> dict[str, GetBatch]:
    """Six cameras in the graph: one worker loads for DALI; PyTorch has as many workers as DALI has threads.

    By default, images are resized in the workers, of which there are as many as for PyTorch.
    """
    import step_torch

    workers = min(num_workers, 1)
    provider = MultiCameraProvider(samples)

    def of_steps(num_workers: int = workers, **settings: Any) -> GetBatch:
        return of_framework(provider, multi_camera_steps(), batch_size, num_workers, resources, **settings)

    dataset = step_torch.MultiCameraSamples(samples)
    loader = step_torch.torch_loader(dataset, batch_size, num_workers, step_torch.lists_where_ragged)
    return {
        STEPS: of_steps(run="graph"),
        NOT_FOLDED: of_steps(run="graph", fold_arrays=False),
        BY_DEFAULT: of_steps(num_workers, run="auto"),
        BY_HAND: of_hand(step_by_hand.multi_camera, samples, batch_size, workers),
        TORCH: of_loader(loader, batch_size),
    }


# --- building ----------------------------------------------------------------------------------------------


def twenty_steps() -> list[PipelineStepBase]:
    """Steps for an `AnnotatedCamerasProvider`; each works on all six cameras, or on what belongs to them."""
    in_pixels = {"projection_names": ["intrinsics", "image_from_ego"], "box_names": "boxes"}
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
        GridMasker("image"),
        distorter(),
        affine,
        ImageResizer("image", output_hw=settings.DETECTION_HW, mode="pad", **in_pixels),
        resizer_cropper(**in_pixels),
        HorizontalFlipper("image", **in_pixels),
        UnneededFieldRemover(["comment"]),
        BoxAreaFilter("boxes"),
        distorter(prob_swap_channels=1.0),
        normalizer(),
        ImageToTileSizePadder("image", settings.TILE),
        TensorSizeAdder("image", "_size"),
        for_each("cameras", heatmaps),
        CoordinateCropper("boxes", [0.0, 0.0, 0.0, 0.0], [704.0, 256.0, 704.0, 256.0]),
        PointsPadder("boxes", num_points=32),
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
