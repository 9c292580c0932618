"""Videos in a loader with workers: shuffled, streamed, continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.loaders import make_loader
from support.videos import B_FRAMES, OPEN_GOP, damage, make_video, read_numbers
from support.windows import video_clips
from video_counting import CountingProvider

from accvlab.dali_pipeline_framework.errors import FileError, SourceError, VideoError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler
from accvlab.dali_pipeline_framework.video import (
    DecodingStatistics,
    VideoFrameDataProvider,
    Videos,
)

NUM_VIDEOS, NUM_FRAMES = 6, 30
UNRELATED: dict[str, Any] = {"num_workers": 2, "start_method": "forkserver"}


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


def numbers_of(batch: Any, name: str = "frames") -> list[list[int]]:
    return [read_numbers(np.asarray(frames)) for frames in batch[name]]


def expected_clip(sample: int, length: int, step: int) -> list[int]:
    per_video = (NUM_FRAMES - length) // step + 1
    video, clip = divmod(sample, per_video)
    return [100 * video + clip * step + k for k in range(length)]


def test_shuffled(files: list[Path], tmp_path: Path) -> None:
    provider = video_clips(Videos(files, labels=range(NUM_VIDEOS), index_cache=tmp_path), 5)
    source = ShuffledShardedInputCallable(provider, 4, shuffle=True, seed=3)
    order = np.random.default_rng(3).permutation(36)
    with make_loader(source, **UNRELATED) as loader:
        seen = [clip for batch in loader for clip in numbers_of(batch)]
    assert seen == [expected_clip(int(sample), 5, 5) for sample in order]


class TestStreaming:
    """A pass decodes each frame once."""

    def counts_of_stream(
        self, provider: Windows, batch_size: int, num_workers: int, meeting: Path | None = None
    ) -> list[list[int]]:
        sampler = StreamingSequenceSampler(provider.sequence_lengths, batch_size, seed=1)
        source = SamplerInputCallable(CountingProvider(provider, meeting, num_workers), sampler)
        with make_loader(source, num_workers=num_workers, start_method="forkserver") as loader:
            rows = [row for batch in loader for row in np.asarray(batch["counts"]).tolist()]
        last = {row[0]: row[1:] for row in rows}  # of each process
        return list(last.values())

    def test_one_worker(self, files: list[Path]) -> None:
        provider = video_clips(files, 5)
        ((num_delivered, num_decoded, num_seeks),) = self.counts_of_stream(provider, 3, num_workers=1)
        assert (num_delivered, num_decoded, num_seeks) == (NUM_VIDEOS * NUM_FRAMES, NUM_VIDEOS * NUM_FRAMES, 0)

    def test_overlapping_sequences(self, files: list[Path]) -> None:
        provider = video_clips(files, 8, step=2)
        ((num_delivered, num_decoded, num_seeks),) = self.counts_of_stream(provider, 2, num_workers=1)
        assert num_delivered == NUM_VIDEOS * 12 * 8
        assert (num_decoded, num_seeks) == (NUM_VIDEOS * NUM_FRAMES, 0)

    @pytest.mark.parametrize("step", [1, 3, 4, 5, 9])
    def test_slots_that_are_padded_decode_nothing(self, files: list[Path], tmp_path: Path, step: int) -> None:
        short = make_video(tmp_path / "short.mp4", 15, "libx264", options=B_FRAMES["libx264"])
        provider = video_clips([files[0], short], 3, stride=2, step=step)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 2, shuffle=False)
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            assert sum(1 for _ in loader) == provider.sequence_lengths.max() > provider.sequence_lengths.min()
        last_frames = [(count - 1) * step + 4 for count in provider.sequence_lengths.tolist()]
        assert provider.statistics.num_decoded == sum(last_frames) + 2
        assert provider.statistics.num_opened == 2

    def test_several_workers_decode_what_the_others_got(self, files: list[Path], tmp_path: Path) -> None:
        provider = video_clips(files, 5)
        counts = np.array(self.counts_of_stream(provider, 3, num_workers=2, meeting=tmp_path))
        assert len(counts) == 2
        assert counts[:, 0].sum() == NUM_VIDEOS * NUM_FRAMES
        assert counts[:, 1].sum() > NUM_VIDEOS * NUM_FRAMES

    def test_slots_in_the_same_video(self, files: list[Path]) -> None:
        provider = video_clips(files[0], 3)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 2, cut_sequences=True, shuffle=False)
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            batches = [numbers_of(batch) for batch in loader]
        assert batches == [[[n, n + 1, n + 2], [15 + n, 16 + n, 17 + n]] for n in range(0, 15, 3)]
        # The second slot starts at 15, three frames behind a key frame; the first one passes that.
        assert provider.statistics == DecodingStatistics(30, 33, 1, 2)

    def test_frame_by_frame(self, files: list[Path]) -> None:
        provider = VideoFrameDataProvider(files)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 3, seed=1)
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            seen = [read_numbers(np.asarray(batch["image"])) for batch in loader]
        assert sorted(np.concatenate(seen).tolist()) == [100 * v + n for v in range(6) for n in range(NUM_FRAMES)]
        assert provider.statistics == DecodingStatistics(180, 180, 0, 6)

    def test_slots_in_threads(self, files: list[Path]) -> None:
        provider = video_clips(Videos(files, num_batch_threads=3), 5)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 3, seed=1)
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            seen = [clip for batch in loader for clip in numbers_of(batch)]
        assert sorted(seen) == [expected_clip(n, 5, 5) for n in range(36)]
        assert provider.statistics == DecodingStatistics(180, 180, 0, 6)

    def test_cameras(self, files: list[Path]) -> None:
        provider = video_clips(Videos(cameras={"front": files[:3], "left": files[3:]}, tolerance_s=0.01), 5)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 3, seed=1)
        with make_loader(SamplerInputCallable(provider, sampler), num_workers=0) as loader:
            for batch in loader:
                front, left = numbers_of(batch["front"]), numbers_of(batch["left"])
                assert left == [[300 + n for n in clip] for clip in front]
        assert provider.statistics == DecodingStatistics(180, 180, 0, 6)


def test_clips_of_frames(files: list[Path]) -> None:
    provider = VideoFrameDataProvider(files, num_kept_frames=4)
    clips = Windows(provider, {"image": range(4)}, unit="frames", step=3, edges="repeat")
    sampler = StreamingSequenceSampler(clips.sequence_lengths, 2, shuffle=False)
    with make_loader(SamplerInputCallable(clips, sampler), num_workers=0) as loader:
        seen = [clip for batch in loader for clip in numbers_of(batch, "image")]
    assert {tuple(clip) for clip in seen} == {
        tuple(100 * v + min(start + k, 29) for k in range(4)) for v in range(6) for start in range(0, 30, 3)
    }
    assert provider.statistics.num_decoded == 180


def test_failure_names_video_and_frame(tmp_path: Path) -> None:
    path = damage(make_video(tmp_path / "bad.mp4", 30, "libx264", size=(192, 128)), 15)
    provider = video_clips(path, 3)
    source = SamplerInputCallable(provider, StreamingSequenceSampler(provider.sequence_lengths, 1, shuffle=False))
    with make_loader(source, num_workers=1, start_method="forkserver") as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        with pytest.raises(
            SourceError, match=r"(?s)Frame 15 of the video '.*bad.mp4', at 0.600 s, cannot be dec"
        ) as e:
            next(batches)
    assert e.value.sample_index == 5
    assert e.value.original_type == "VideoError"


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_video_that_was_replaced_is_refused_by_workers(tmp_path: Path, is_cached: bool) -> None:
    path = make_video(tmp_path / "a.avi", 10, "mjpeg")
    videos = Videos(path, index_cache=tmp_path / "cache" if is_cached else None)
    source = ShuffledShardedInputCallable(video_clips(videos, 2), 2, shuffle=False)
    with make_loader(source, num_workers=1, start_method="forkserver") as loader:
        make_video(path, 10, "mjpeg", first_number=100)
        video_clips(videos, 2)  # another run, which makes the index anew
        message = "index of the video '.*/a.avi' .* was made anew" if is_cached else "'.*/a.avi' was changed after"
        with pytest.raises(SourceError, match=message) as caught:
            next(iter(loader))
    assert isinstance(caught.value, FileError if is_cached else VideoError)
    assert "importable" not in str(caught.value)
