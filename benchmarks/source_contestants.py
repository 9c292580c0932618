# SPDX-License-Identifier: Apache-2.0
"""The contestants of `bench_sources`: each is a function that gets the next batch and returns its size."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from races import START_METHOD, GetBatch, endless

from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, PipelineStepBase
from accvlab.dali_pipeline_framework.providers import FileDataProvider, FrameDataProvider, Windows
from accvlab.dali_pipeline_framework.sampling import RandomAccessSampler, ShuffledSampler, StreamingSequenceSampler
from accvlab.dali_pipeline_framework.sources import FileReader, ReaderInput, SequenceReader
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos

NUM_THREADS = 2
SEQUENCE_LENGTH = 8


def contestant(loader: Any, units_per_batch: int) -> GetBatch:
    batches = endless(loader)

    def get_batch() -> int:
        next(batches)
        return units_per_batch

    return get_batch


def of_framework(
    resources: ExitStack,
    data_input: Any,
    steps: Sequence[PipelineStepBase],
    batch_size: int,
    units_per_batch: int,
    *,
    num_workers: int,
) -> GetBatch:
    """A loader of the framework over a provider, or an iterator over a native reader."""
    definition = PipelineDefinition(data_input, steps)
    output = definition.check_and_get_output_data_structure()
    ragged: Any = {name: "list" for name in ("data", "frames") if output.find_all_occurrences(name)}
    loader: Any
    if isinstance(data_input, ReaderInput):
        pipeline = definition.get_dali_pipeline(batch_size=batch_size, num_threads=NUM_THREADS)
        loader = DALIStructuredOutputIterator(pipeline=pipeline, ragged=ragged)
    else:
        loader = DataLoader(
            data_input,
            batch_size,
            steps=steps,
            run="graph",
            num_workers=num_workers,
            num_threads=NUM_THREADS,
            start_method=START_METHOD,
            ragged=ragged,
        )
    return contestant(resources.enter_context(loader), units_per_batch)


def sampled(provider: DataProvider, sampler: RandomAccessSampler | None = None) -> SamplerInputCallable:
    """The input of a provider; by default in the order of the data set."""
    if sampler is None:
        sampler = ShuffledSampler(provider.get_number_of_samples(), shuffle=False)
    return SamplerInputCallable(provider, sampler)


def files(
    paths: Sequence[Path], batch_size: int, decoded: bool, num_workers: int, resources: ExitStack
) -> dict[str, GetBatch]:
    """Files in a random order, their bytes or (H, W, 3) images, with a label each.

    They are listed many times over, so that no epoch ends.
    """
    names = [str(path) for path in paths] * (1 + 40_000 // len(paths))
    steps = [ImageDecoder("data", use_device_mixed=True)] if decoded else []
    provider = FileDataProvider(files=names, path_name=None, index_name=None)
    sampler = ShuffledSampler(len(names), seed=1)
    native = FileReader(files=names, shuffle_after_epoch=True)
    racing = {
        name: of_framework(resources, data_input, steps, batch_size, batch_size, num_workers=workers)
        for name, data_input, workers in (
            ("provider", sampled(provider, sampler), num_workers),
            ("provider, in this process", sampled(provider, sampler), 0),
            ("native", native, 0),
        )
    }
    if decoded:
        from source_torch import Images, decode_by_opencv, decode_by_pillow, torch_loader

        decoders = {"PyTorch, Pillow": decode_by_pillow}
        if find_spec("cv2") is not None:
            decoders["PyTorch, OpenCV"] = decode_by_opencv
        for name, decode in decoders.items():
            loader = torch_loader(Images(names, decode), batch_size, num_workers=num_workers, shuffle=True)
            racing[name] = contestant(loader, batch_size)
    return racing


def sequences(
    root: Path, batch_size: int, step: int, num_workers: int, resources: ExitStack
) -> dict[str, GetBatch]:
    """Sequences of eight frames, (8, H, W, 3), one after the other."""
    from source_torch import ImageSequences, decode_by_pillow, torch_loader

    frames_per_batch = batch_size * SEQUENCE_LENGTH
    frames = FrameDataProvider(root, image_name="frames")
    provider = Windows(frames, {"frames": range(SEQUENCE_LENGTH)}, unit="frames", step=step)
    native = SequenceReader(file_root=str(root), sequence_length=SEQUENCE_LENGTH, step=step)
    listed = [
        window
        for folder in sorted(root.iterdir())
        for window in _windows(sorted(str(path) for path in folder.iterdir()), step)
    ]
    torch_sequences = ImageSequences(listed, decode_by_pillow)
    steps = [ImageDecoder("frames")]
    ours = of_framework(resources, sampled(provider), steps, batch_size, frames_per_batch, num_workers=num_workers)
    racing = {"provider": ours}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # DALI says that this reader is to go
        racing["native"] = of_framework(resources, native, [], batch_size, frames_per_batch, num_workers=0)
    racing["PyTorch, Pillow"] = contestant(
        torch_loader(torch_sequences, batch_size, num_workers=num_workers, shuffle=False), frames_per_batch
    )
    return racing


def _windows(paths: list[str], step: int) -> Iterator[list[str]]:
    for first in itertools.count(0, step):
        if first + SEQUENCE_LENGTH > len(paths):
            return
        yield paths[first : first + SEQUENCE_LENGTH]


def videos(
    paths: Sequence[Path],
    frames_per_second: int,
    batch_size: int,
    num_workers: int,
    resources: ExitStack,
) -> dict[str, GetBatch]:
    """Clips of eight frames, (8, H, W, 3), apart from each other.

    A single worker decodes two slots at once.
    """
    from source_torch import VideoClips, torch_loader

    names = [str(path) for path in paths]
    frames_per_batch = batch_size * SEQUENCE_LENGTH
    provider = video_provider(paths, num_batch_threads=2)
    shuffled = ShuffledSampler(provider.get_number_of_samples(), seed=1)
    racing = {}
    for name, sampler, workers in (
        ("provider, streamed, 1 worker", streamed(provider), min(num_workers, 1)),
        ("provider, shuffled, 1 worker", shuffled, min(num_workers, 1)),
        ("provider, shuffled", shuffled, num_workers),
    ):
        racing[name] = of_framework(
            resources, sampled(provider, sampler), [], batch_size, frames_per_batch, num_workers=workers
        )
    clips = [
        (name, first)
        for name, count in zip(names, provider.sequence_lengths.tolist(), strict=True)
        for first in range(0, count * SEQUENCE_LENGTH, SEQUENCE_LENGTH)
    ]
    dataset = VideoClips(clips, SEQUENCE_LENGTH, frames_per_second)
    racing["PyTorch, PyAV, shuffled"] = contestant(
        torch_loader(dataset, batch_size, num_workers=num_workers, shuffle=True), frames_per_batch
    )
    return racing


def video_provider(paths: Sequence[Path], **settings: Any) -> Windows:
    """Clips of eight frames."""
    frames = VideoFrameDataProvider(Videos(paths, **settings), image_name="frames")
    return Windows(frames, {"frames": range(SEQUENCE_LENGTH)}, unit="frames", step=SEQUENCE_LENGTH)


def streamed(provider: Windows) -> RandomAccessSampler:
    return StreamingSequenceSampler(provider.sequence_lengths, seed=1, cut_sequences=True)


def decoded_per_delivered(paths: Sequence[Path], batch_size: int) -> dict[str, float]:
    """Frames decoded for each frame delivered in an epoch, counted by the readers in this process."""
    counts = {}
    for name in ("streamed", "shuffled"):
        provider = video_provider(paths)
        num_clips = provider.get_number_of_samples()
        sampler = streamed(provider) if name == "streamed" else ShuffledSampler(num_clips, seed=1)
        num_delivered = 0
        with DataLoader(provider, batch_size, sampler=sampler, num_workers=0) as loader:
            for batch in loader:
                num_delivered += len(batch["frames"]) * SEQUENCE_LENGTH
            counts[name] = round(provider.statistics.num_decoded / num_delivered, 4)
        provider.close()
    return counts
