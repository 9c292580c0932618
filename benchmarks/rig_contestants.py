# SPDX-License-Identifier: Apache-2.0
"""The contestants that load the samples of `rig_data`."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import numpy as np
import step_by_hand
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from races import START_METHOD, Contestant, endless
from rig_data import EachField, EachImageWithFields, RigProvider, RigSamples
from step_contestants import NUM_THREADS

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder


def of_library(samples: RigSamples, batch_size: int, num_workers: int, resources: ExitStack) -> Contestant:
    loader = DataLoader(
        RigProvider(samples),
        batch_size,
        steps=[ImageDecoder("image", False)],
        last_batch="drop",
        run="graph",
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
    )
    batches = iter(resources.enter_context(loader))

    def sample(batch: Any, place: int) -> dict[str, Any]:
        small = itertools.count()
        fields = {}
        for camera in range(samples.num_cameras):
            group = batch["cameras"][camera]
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


def of_fields_by_hand(samples: RigSamples, batch_size: int, num_workers: int) -> Contestant:
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


# --- PyTorch -----------------------------------------------------------------------------------------------


def of_torch(samples: RigSamples, batch_size: int, num_workers: int, decoder: str) -> Contestant:
    from rig_torch import RigDataset
    from step_torch import torch_loader

    batches = endless(torch_loader(RigDataset(samples, decoder), batch_size, num_workers))
    return Contestant(
        lambda: next(batches),
        batch_size,
        lambda batch, place: {name: values[place] for name, values in batch.items()},
    )


def why_not(module: str) -> str:
    """Why a module cannot be used here; empty if it can."""
    try:
        import_module(module)
    except Exception as error:  # a library that does not fit to another one may raise anything
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
