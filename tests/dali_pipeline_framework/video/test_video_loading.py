"""Videos in a loader with workers: shuffled, streamed, continued."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.loaders import make_loader
from support.refusals import assert_refused
from support.videos import B_FRAMES, OPEN_GOP, damage, make_video, read_numbers
from support.windows import video_clips

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler
from accvlab.dali_pipeline_framework.video import DecodingStatistics, Videos

NUM_VIDEOS, NUM_FRAMES = 6, 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Frame ``n`` of video ``v`` shows ``100 v + n``."""
    folder = tmp_path_factory.mktemp("drives")
    kinds: list[tuple[str, str, Any]] = [
        ("mp4", "libx264", B_FRAMES["libx264"]),
        ("webm", "libvpx-vp9", None),
        ("mkv", "libx265", OPEN_GOP["libx265"]),
    ]
    made = []
    for number in range(NUM_VIDEOS):
        ending, codec, options = kinds[number % 3]
        path = folder / f"{number}.{ending}"
        made.append(make_video(path, NUM_FRAMES, codec, first_number=100 * number, options=options))
    return made


def numbers_of(batch: Any) -> list[list[int]]:
    return [read_numbers(np.asarray(frames)) for frames in batch["frames"]]


def expected_clip(sample: int, length: int, step: int) -> list[int]:
    per_video = (NUM_FRAMES - length) // step + 1
    video, clip = divmod(sample, per_video)
    return [100 * video + clip * step + k for k in range(length)]


def test_shuffled_by_workers(files: list[Path], tmp_path: Path) -> None:
    provider = video_clips(Videos(files, index_cache=tmp_path), 5)
    source = ShuffledShardedInputCallable(provider, 4, shuffle=True, seed=3)
    order = np.random.default_rng(3).permutation(36)
    with make_loader(source, num_workers=2, start_method="fork") as loader:
        seen = [clip for batch in loader for clip in numbers_of(batch)]
    assert seen == [expected_clip(int(sample), 5, 5) for sample in order]


class TestStreaming:
    """A pass decodes each frame once."""

    def stream(self, provider: Any, batch_size: int, **settings: Any) -> list[Any]:
        sampler = StreamingSequenceSampler(provider.sequence_lengths, batch_size, **{"seed": 1, **settings})
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            return list(loader)

    @pytest.mark.parametrize(
        ("length", "step", "batch_size", "num_threads"), [(5, 5, 3, 1), (5, 5, 3, 3), (8, 2, 2, 1), (1, 1, 3, 1)]
    )
    def test_clips(self, files: list[Path], length: int, step: int, batch_size: int, num_threads: int) -> None:
        provider = video_clips(Videos(files, num_batch_threads=num_threads), length, step=step)
        clips = [clip for batch in self.stream(provider, batch_size) for clip in numbers_of(batch)]
        expected = [expected_clip(sample, length, step) for sample in range(len(provider))]
        assert sorted(map(tuple, clips)) == sorted({*map(tuple, clips)}) == [*map(tuple, expected)]
        num_delivered = len(expected) * length
        assert provider.statistics == DecodingStatistics(num_delivered, NUM_VIDEOS * NUM_FRAMES, 0, NUM_VIDEOS)

    @pytest.mark.parametrize("step", [1, 3, 4, 5, 9])
    def test_slots_that_are_padded_decode_nothing(self, files: list[Path], tmp_path: Path, step: int) -> None:
        short = make_video(tmp_path / "short.mp4", 15, "libx264", options=B_FRAMES["libx264"])
        provider = video_clips([files[0], short], 3, stride=2, step=step)
        lengths = provider.sequence_lengths.tolist()
        assert len(self.stream(provider, 2, shuffle=False)) == max(lengths) > min(lengths)
        assert provider.statistics.num_decoded == sum((count - 1) * step + 4 for count in lengths) + 2
        assert provider.statistics.num_opened == 2


def test_failure_names_video_and_frame(tmp_path: Path) -> None:
    path = damage(make_video(tmp_path / "bad.mp4", 30, "libx264", size=(192, 128)), 15)
    source = ShuffledShardedInputCallable(video_clips(path, 3), 1, shuffle=False)
    with make_loader(source, num_workers=1, start_method="forkserver") as loader:
        batches = iter(loader)
        assert len([*itertools.islice(batches, 5)]) == 5
        words = "Frame 15 of the video '...bad.mp4', at 0.600 s, cannot be dec"
        error = assert_refused(lambda: next(batches), words, SourceError)
    assert isinstance(error, SourceError)
    assert (error.sample_index, error.original_type) == (5, "VideoError")
