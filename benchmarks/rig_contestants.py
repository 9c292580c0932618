# SPDX-License-Identifier: Apache-2.0
"""The contestants that load the samples of `rig_data`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import numpy as np
import step_by_hand
import step_settings as settings
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from races import START_METHOD, Contestant, endless
from rig_data import EachField, EachImage, EachImageWithFields, RigProvider, RigSamples
from step_contestants import NUM_THREADS, normalizer

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, ImageResizer, PipelineStepBase

Work = Callable[[Any], Any]

# --- the work ----------------------------------------------------------------------------------------------


class FirstFieldsDoubled(PipelineStepBase):
    """Doubles the first small fields of a sample: a step that touches some of them."""

    def __init__(self, num_touched: int) -> None:
        super().__init__()
        self._num_touched = num_touched

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for number in range(self._num_touched):
            data[f"field_{number}"] = data[f"field_{number}"] * 2.0
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


def decoding_steps() -> list[PipelineStepBase]:
    return [ImageDecoder("image", False)]


def resizing_steps() -> list[PipelineStepBase]:
    """The region that fills the output, in the middle of the image, is decoded, resized and normalized."""
    resizer = ImageResizer("image", output_hw=settings.OUTPUT_HW, mode="crop", is_encoded=True)
    return [resizer, normalizer(layout="CHW")]


def decode_and_resize(jpeg: Any) -> Any:
    """The same by hand."""
    size = np.array([step_by_hand.HEIGHT, step_by_hand.WIDTH], np.float32)
    half = np.array(settings.OUTPUT_HW, np.float32) / np.max(settings.OUTPUT_HW / size) / 2
    start, end = size / 2 - half, size / 2 + half
    corner, far = np.maximum(np.floor(start) - 1, 0), np.minimum(np.ceil(end) + 1, size)
    whole = [int(each) for each in corner], [int(each) for each in far - corner]
    image = fn.decoders.image_slice(jpeg, start=whole[0], shape=whole[1], axis_names="HW")
    region = [each.tolist() for each in (start - corner, end - corner)]
    return step_by_hand.normalize_to_chw(step_by_hand.region_resized(image, *region, settings.OUTPUT_HW))


WORKS: dict[str, tuple[Callable[[], list[PipelineStepBase]], Work]] = {
    "decode": (decoding_steps, step_by_hand.decode),
    "decode region, resize, normalize": (resizing_steps, decode_and_resize),
}


# --- this library ------------------------------------------------------------------------------------------


def of_library(
    samples: RigSamples,
    steps: Sequence[PipelineStepBase],
    batch_size: int,
    num_workers: int,
    resources: ExitStack,
    *,
    fold_arrays: bool = True,
) -> Contestant:
    provider = RigProvider(samples)
    loader = DataLoader(
        provider,
        batch_size,
        steps=steps,
        last_batch="drop",
        run="graph",
        fold_arrays=fold_arrays,
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
    )
    resources.enter_context(loader)
    batches = iter(loader)

    def sample(batch: Any, place: int) -> dict[str, Any]:
        small = itertools.count()
        fields = {}
        groups = [batch["cameras"][camera] for camera in range(samples.num_cameras)]
        for camera, group in enumerate(groups):
            fields[f"image_{camera}"] = group["image"][place]
            for number in range(samples.num_per_camera):
                fields[f"field_{next(small)}"] = group[f"field_{number}"][place]
        for number in range(samples.num_others):
            fields[f"field_{next(small)}"] = batch[f"field_{number}"][place]
        return fields

    return Contestant(lambda: next(batches), batch_size, sample)


# --- DALI by hand ------------------------------------------------------------------------------------------


def _source_arguments(num_workers: int) -> dict[str, Any]:
    parallel = {"parallel": True, "prefetch_queue_depth": 2} if num_workers else {}
    return {"batch": False, **parallel}


def _pipeline_arguments(batch_size: int, num_workers: int) -> dict[str, Any]:
    workers = {"py_num_workers": num_workers, "py_start_method": START_METHOD} if num_workers else {}
    return {"batch_size": batch_size, "num_threads": NUM_THREADS, "device_id": None, **workers}


def of_fields_by_hand(samples: RigSamples, num_touched: int, batch_size: int, num_workers: int) -> Contestant:
    """An output for each field, a decoder for each camera, samples one by one, DALI's iterator: as in its docs."""
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    names = samples.names
    images = {f"image_{camera}" for camera in range(samples.num_cameras)}

    @pipeline_def(**_pipeline_arguments(batch_size, num_workers))
    def define() -> tuple[Any, ...]:
        outputs = fn.external_source(
            source=EachField(samples),
            num_outputs=len(names),
            dtype=[types.UINT8 if name in images else types.FLOAT for name in names],
            ndim=[1] * len(names),
            **_source_arguments(num_workers),
        )
        fields = dict(zip(names, outputs, strict=True))
        for name in images:
            fields[name] = step_by_hand.decode(fields[name])
        for name in samples.small_names[:num_touched]:
            fields[name] = fields[name] * 2.0
        return tuple(fields.values())

    batches = iter(DALIGenericIterator(define(), names))
    return Contestant(
        lambda: next(batches)[0], batch_size, lambda batch, place: {name: batch[name][place] for name in names}
    )


def of_fields_folded_by_hand(samples: RigSamples, batch_size: int, num_workers: int) -> Contestant:
    """Images are the samples of the pipeline; with each comes its share of the small fields, in one array."""
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    num_cameras = samples.num_cameras

    @pipeline_def(**_pipeline_arguments(batch_size * num_cameras, num_workers))
    def define() -> tuple[Any, ...]:
        jpeg, small = fn.external_source(
            EachImageWithFields(samples), num_outputs=2, **_source_arguments(num_workers)
        )
        return step_by_hand.decode(jpeg), small

    batches = iter(DALIGenericIterator(define(), ["images", "small"]))

    def deliver() -> Any:
        batch = next(batches)[0]
        return {name: values.reshape(batch_size, num_cameras, *values.shape[1:]) for name, values in batch.items()}

    def sample(batch: Any, place: int) -> dict[str, Any]:
        small = batch["small"][place].reshape(samples.num_small, -1)
        images = {f"image_{camera}": image for camera, image in enumerate(batch["images"][place])}
        return {**images, **dict(zip(samples.small_names, small, strict=True))}

    return Contestant(deliver, batch_size, sample)


def as_tensors(output: Any) -> Any:
    import torch

    return torch.from_numpy(np.asarray(output.as_tensor()))


def of_operator_per_camera(samples: RigSamples, work: Work, batch_size: int, num_workers: int) -> Contestant:
    @pipeline_def(**_pipeline_arguments(batch_size, num_workers))
    def define() -> tuple[Any, ...]:
        num_cameras = samples.num_cameras
        jpegs = fn.external_source(EachField(samples), num_outputs=num_cameras, **_source_arguments(num_workers))
        return tuple([work(jpeg) for jpeg in jpegs])

    pipeline = define()
    pipeline.build()
    return Contestant(
        lambda: [as_tensors(output) for output in pipeline.run()],
        batch_size,
        lambda batch, place: {f"image_{camera}": images[place] for camera, images in enumerate(batch)},
    )


def of_folded_by_hand(samples: RigSamples, work: Work, batch_size: int, num_workers: int) -> Contestant:
    """Images are the samples of the pipeline; the result is shaped to ``(samples, cameras, ...)``."""
    num_cameras = samples.num_cameras

    @pipeline_def(**_pipeline_arguments(batch_size * num_cameras, num_workers))
    def define() -> Any:
        return work(fn.external_source(EachImage(samples), **_source_arguments(num_workers)))

    pipeline = define()
    pipeline.build()

    def deliver() -> Any:
        images = as_tensors(pipeline.run()[0])
        return images.reshape(batch_size, num_cameras, *images.shape[1:])

    return Contestant(
        deliver,
        batch_size,
        lambda batch, place: {f"image_{camera}": image for camera, image in enumerate(batch[place])},
    )


def of_decoder_alone(samples: RigSamples, batch_size: int) -> Contestant:
    """DALI's decoder on files that are in memory, in batches of all images; nothing is done with the result."""
    num_cameras = samples.num_cameras
    images = [np.fromfile(path, np.uint8) for path in samples.images]
    indices = itertools.count()

    def next_batch() -> list[Any]:
        return [images[next(indices) % len(images)] for _ in range(batch_size * num_cameras)]

    @pipeline_def(**_pipeline_arguments(batch_size * num_cameras, 0))
    def define() -> Any:
        return fn.decoders.image(fn.external_source(next_batch, batch=True, no_copy=True))

    pipeline = define()
    pipeline.build()

    def sample(batch: Any, place: int) -> dict[str, Any]:
        decoded = batch[0]
        return {f"image_{camera}": decoded[place * num_cameras + camera] for camera in range(num_cameras)}

    return Contestant(pipeline.run, batch_size, sample)


# --- others ------------------------------------------------------------------------------------------------


def of_torch(samples: RigSamples, num_touched: int, batch_size: int, num_workers: int, decoder: str) -> Contestant:
    from rig_torch import RigDataset
    from step_torch import torch_loader

    batches = endless(torch_loader(RigDataset(samples, num_touched, decoder), batch_size, num_workers))
    return _of_dicts(lambda: next(batches), batch_size)


def _of_dicts(deliver: Callable[[], Any], batch_size: int) -> Contestant:
    return Contestant(
        deliver, batch_size, lambda batch, place: {name: values[place] for name, values in batch.items()}
    )


def of_torchdata(samples: RigSamples, batch_size: int, num_workers: int, resources: ExitStack) -> Contestant:
    from rig_torch import RigDataset
    from torch.utils.data import SequentialSampler, default_collate
    from torchdata import nodes

    dataset = RigDataset(samples)
    loaded = nodes.ParallelMapper(
        nodes.SamplerWrapper(SequentialSampler(dataset)),
        dataset.__getitem__,
        num_workers=num_workers,
        method="thread",  # OpenCV decodes without the interpreter's lock
    )
    batched = nodes.Batcher(loaded, batch_size, drop_last=True)
    batches = iter(nodes.Loader(nodes.Prefetcher(nodes.Mapper(batched, default_collate), 2)))
    return _of_dicts(lambda: next(batches), batch_size)


def of_spdl(samples: RigSamples, batch_size: int, num_workers: int, resources: ExitStack) -> Contestant:
    from rig_torch import RigDataset
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import default_collate

    pipeline = (
        PipelineBuilder()
        .add_source(itertools.count())
        .pipe(RigDataset(samples).__getitem__, concurrency=num_workers, output_order="input")
        .aggregate(batch_size)
        .pipe(default_collate)
        .add_sink(2)
        .build(num_threads=num_workers)
    )
    resources.enter_context(pipeline.auto_stop())
    return _of_dicts(pipeline.get_item, batch_size)


def of_grain(samples: RigSamples, batch_size: int, num_workers: int, resources: ExitStack) -> Contestant:
    import grain
    from rig_torch import RigDataset
    from torch.utils.data import default_collate

    dataset = grain.MapDataset.source(RigDataset(samples)).to_iter_dataset(
        grain.ReadOptions(num_threads=num_workers, prefetch_buffer_size=2 * batch_size)
    )
    batches = iter(dataset.batch(batch_size, drop_remainder=True, batch_fn=default_collate))
    return _of_dicts(lambda: next(batches), batch_size)


OTHERS: dict[str, tuple[str, Callable[..., Contestant]]] = {
    "torchdata, OpenCV": ("torchdata.nodes", of_torchdata),
    "SPDL, OpenCV": ("spdl.pipeline", of_spdl),
    "Grain, OpenCV": ("grain", of_grain),
}


def why_not(module: str) -> str:
    """Why a module cannot be used here; empty if it can."""
    try:
        import_module(module)
    except Exception as error:  # a library that does not fit to another one may raise anything
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
