# SPDX-License-Identifier: Apache-2.0
"""Providers of sequences and single frames of videos, and which sequences there are."""

from __future__ import annotations

import functools
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, SupportsIndex, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import choice, index_in, one_of, whole_number
from ..errors import SettingError
from ..providers.data_provider import EncodedClipValue, FieldColumn, FieldColumns, WantedFields
from ..providers.files.storage import as_utf8
from ..providers.frames import camera_rigs as rigs
from ..sample_data import FieldPath, ImageContent, SampleDataGroup
from ..sample_data.conversion import encoded
from ..sample_data.formats import DECODED_CLIP, DECODED_IMAGE, numbers_name
from ..sample_data.names import Name
from ..unknown_arguments import explains_unknown_arguments
from .encoded_clips import FileOfClip
from .frame_converter import FrameConverter
from .frame_reader import DecodingStatistics, FrameReaderPool, IndexedVideos, KeptFrames, SharedFrames
from .video_decoding import UInt8Array
from .video_index import Int64Array, VideoIndex
from .videos import VideoPaths, Videos, as_videos, checked_labels, expanded, frame_range, listed_videos


@attrs.frozen
class VideoTracks:
    """Tracks, contiguous frames, in the order of the data set.

    Attributes:
        indexed: The videos.
        starts: ``(S,)`` int64, first position of each track.
        ends: ``(S,)`` int64, the position behind the last one.
        videos: ``(S, C)`` int64, number of each camera's video in the `IndexedVideos`.
        all_videos: ``(V, C)`` int64, the same for each recording.
        numbers: ``(S,)`` int64, number of the recording: a video as listed, or one video of each camera.
        labels: ``(S,)`` int32, or None.
        rows: For each track ``(T, C)`` int64, the frame of each camera at each position; None where positions are
            the frames themselves.
        camera_names: Names of the cameras; none for a single one without a name.
        offsets_s: ``(S, C)`` float64, what is added to the times of each camera's frames.
        missing: Frames that cameras lack.
        reference: Number of the reference camera.
    """

    indexed: IndexedVideos
    starts: Int64Array
    ends: Int64Array
    videos: Int64Array
    all_videos: Int64Array
    numbers: Int64Array
    labels: npt.NDArray[np.int32] | None
    rows: tuple[Int64Array, ...] | None = None
    camera_names: tuple[str, ...] = ()
    offsets_s: npt.NDArray[np.float64] | None = None
    missing: tuple[rigs.MissingFrame, ...] = ()
    reference: int = 0

    def describe(self) -> str:
        """Say how many there are: ``"2 videos"``, or ``"2 recordings of 3 cameras in 6 files"``."""
        if not self.camera_names:
            return f"{len(self.all_videos)} videos"
        files = {self.indexed.paths[number] for number in self.all_videos.ravel().tolist()}
        num_recordings, num_cameras = self.all_videos.shape
        return f"{num_recordings} recordings of {num_cameras} cameras in {len(files)} files"

    def video_of(self, recording: SupportsIndex, camera: str | None) -> int:
        """Get the number in the `IndexedVideos` of a camera's video of a recording."""
        names = self.camera_names or (None,)
        place = names.index(choice(camera, "camera", names))
        return int(self.all_videos[index_in(recording, "recording", len(self.all_videos)), place])

    def frames(self, track: int, camera: int, positions: Int64Array) -> Int64Array:
        """Get the frames of a camera at ``(n,)`` positions of a track; -1 stays -1."""
        return positions if self.rows is None else np.where(positions < 0, -1, self.rows[track][positions, camera])

    def times_s(self, track: int, camera: int, frames: Int64Array) -> npt.NDArray[np.float64]:
        """Get the ``(n,)`` times of frames in seconds, -1 for frame -1.

        Of a single camera: since the first frame of the video, as DALI has it. Of several: as they are aligned.
        """
        index = self.indexed.indices[int(self.videos[track, camera])]
        times_s = index.times_s if self.offsets_s is None else _times_s(index, self.offsets_s[track, camera])
        return np.where(frames < 0, -1.0, times_s[frames])

    def all_times_s(self, camera: int) -> npt.NDArray[np.float64]:
        """Get the times of all positions of all tracks, ``(N,)``, of a camera."""
        parts = []
        for track, (start, end) in enumerate(zip(self.starts.tolist(), self.ends.tolist(), strict=True)):
            frames = self.frames(track, camera, np.arange(start, end))
            parts.append(self.times_s(track, camera, frames))
        return np.concatenate(parts)


def tracks_of(videos: Videos, kept: KeptFrames) -> VideoTracks:
    """Index videos, each file once, and find their contiguous frames."""
    return _of_list(videos, kept) if videos.cameras is None else _of_rig(videos, kept)


def _of_list(settings: Videos, kept: KeptFrames) -> VideoTracks:
    listed = listed_videos(settings)
    videos = IndexedVideos([video.path for video in listed], settings, kept)
    numbers = videos.numbers.tolist()
    ranges = [
        frame_range(video, videos.indices[number], settings) for video, number in zip(listed, numbers, strict=True)
    ]
    starts, ends = np.array(ranges, np.int64).T
    given = [video.label for video in listed]
    labels = None if given[0] is None else np.array(given, np.int32)
    columns = videos.numbers[:, None]
    return VideoTracks(videos, starts, ends, columns, columns, np.arange(len(listed)), labels)


def _of_rig(settings: Videos, kept: KeptFrames) -> VideoTracks:
    names = settings.camera_names
    paths = [expanded(files, settings) for files in (settings.cameras or {}).values()]
    counts = {camera: len(of_camera) for camera, of_camera in zip(names, paths, strict=True)}
    if len(set(counts.values())) > 1:
        rule = "one video per recording, so the lists must be equally long"
        raise SettingError(f"Each camera must have {rule}, got {counts}.")
    num_recordings = len(paths[0])
    labels = checked_labels(settings, num_recordings, "cameras")
    offsets_s = _offsets_s(settings, num_recordings)
    videos = IndexedVideos([path for of_camera in paths for path in of_camera], settings, kept)
    columns = videos.numbers.reshape(len(names), num_recordings).T
    numbers: list[int] = []
    rows: list[Int64Array] = []
    account = rigs.RigAccount()
    for number in range(num_recordings):
        of_recording = [
            (videos.indices[place], offset_s)
            for place, offset_s in zip(columns[number].tolist(), offsets_s[number].tolist(), strict=True)
        ]
        times = [(index.pts, index.time_base, rigs.exact(offset_s)) for index, offset_s in of_recording]
        matched = rigs.align_times(times, settings.reference, settings.tolerance_s)
        reference_times_s = _times_s(*of_recording[settings.reference])
        account.num_times += len(matched)
        for position, camera in np.argwhere(matched < 0).tolist():
            time_s = float(reference_times_s[position])
            account.missing.append(rigs.MissingFrame(number, names[camera], position, time_s))
        runs = settings.runs(np.all(matched >= 0, axis=1))
        numbers += [number] * len(runs)
        rows += [matched[run] for run in runs]
    advice = (
        "\nDo the cameras' clocks begin at the same time (`time_offsets_s`), and is `tolerance_s` large enough?"
    )
    account.report(settings, not rows, advice=advice)
    ends, recordings = np.array([len(run) for run in rows], np.int64), np.array(numbers, np.int64)
    of_tracks = None if settings.labels is None else np.array(labels, np.int32)[numbers]
    of_cameras = tuple(rows), names, offsets_s[numbers], tuple(account.missing), settings.reference
    starts = np.zeros_like(ends)
    return VideoTracks(videos, starts, ends, columns[numbers], columns, recordings, of_tracks, *of_cameras)


def _offsets_s(settings: Videos, num_recordings: int) -> npt.NDArray[np.float64]:
    """What is added to the times, ``(num_recordings, C)``."""
    columns = []
    for camera in settings.camera_names:
        given = settings.time_offsets_s.get(camera, 0.0)
        if isinstance(given, tuple) and len(given) != num_recordings:
            rule = f"a number, or one for each of {num_recordings} recordings"
            raise SettingError(f"`time_offsets_s[{camera!r}]` must be {rule}, got {list(given)!r}.")
        columns.append(np.broadcast_to(np.array(given), (num_recordings,)))
    return np.stack(columns, axis=1)


def _times_s(index: VideoIndex, offset_s: float) -> npt.NDArray[np.float64]:
    times_s: npt.NDArray[np.float64] = index.pts * np.float64(index.time_base) + np.float64(offset_s)
    return times_s


Images: TypeAlias = Literal["decoded", "encoded"]
VideoTail: TypeAlias = Literal["drop", "repeat", "constant", "reflect_1001", "reflect_101"]


def _length(value: SupportsIndex) -> int:
    return whole_number(value, "sequence_length", at_least=1)


def _stride(value: SupportsIndex) -> int:
    return whole_number(value, "stride", at_least=1)


def _step(value: SupportsIndex | None) -> int | None:
    advice = "It counts forward; for DALI's -1 leave it out, or give None: sequences lie side by side."
    return None if value is None else whole_number(value, "step", at_least=1, advice=advice)


@attrs.frozen
class VideoWindows:
    """Sequences of frames in ranges of videos, in the order of DALI's ``fn.experimental.readers.video``.

    Sequences start every ``step`` frames from the start of each range, and have ``sequence_length`` frames,
    ``stride`` apart. A sequence is complete if ``sequence_length * stride`` frames are there: with the
    ``stride - 1`` frames behind its last one. With ``tail="drop"`` only complete ones count; otherwise the first
    one of a range that is not complete counts too, and is padded.

    With ``sequence_length=3, stride=2, step=4``, in a range of eleven frames::

        frame       |  0  1  2  3  4  5  6  7  8  9 10 |
        sequence 0  |  0     2     4                   |
        sequence 1  |              4     6     8       |
        sequence 2  |                          8    10 |  +    not with ``tail="drop"``

    Raises:
        SettingError: A setting is out of its range.
    """

    sequence_length: int = attrs.field(converter=_length)
    stride: int = attrs.field(default=1, converter=_stride)
    _step: int | None = attrs.field(default=None, converter=_step)
    tail: VideoTail = attrs.field(default="drop", validator=one_of(VideoTail))

    @property
    def step(self) -> int:
        """Frames from the start of a sequence to the start of the next."""
        return self.span if self._step is None else self._step

    @property
    def span(self) -> int:
        """Number of frames that must be there for a complete sequence."""
        return self.sequence_length * self.stride

    @property
    def overlap(self) -> bool:
        """Whether sequences have frames in common."""
        return self.step <= self.span - self.stride

    @property
    def kept_frames(self) -> KeptFrames:
        """What a decoder must keep so that sequences one after the other, or repeated, are decoded once."""
        span = self.span - self.stride + 1
        if self.step >= span:
            return KeptFrames(self.sequence_length, passed=False, pixels=False)
        is_same_grid = self.step % self.stride == 0
        return KeptFrames(self.sequence_length if is_same_grid else span, passed=not is_same_grid)

    def counts(self, lengths: Int64Array) -> Int64Array:
        """Get the number of sequences in ranges of ``(S,)`` lengths."""
        counts: Int64Array = np.maximum((lengths - self.span) // self.step + 1, 0)
        if self.tail != "drop":
            counts += counts * self.step < lengths
        return counts

    def frames(self, start: int, end: int, number: int) -> Int64Array:
        """Get the ``(sequence_length,)`` frames of a sequence in [start, end), -1 for constant ones."""
        first = start + number * self.step
        frames = first + np.arange(self.sequence_length, dtype=np.int64) * self.stride
        if self.tail in ("drop", "repeat") or frames[-1] < end:
            return np.minimum(frames, end - 1)
        if self.tail == "constant":
            return np.where(frames < end, frames, -1)
        # Mirrored at the end of the range and at the first frame of the video, as often as needed.
        num_doubled = int(self.tail == "reflect_1001")
        period = max(2 * (end - 1 + num_doubled), 1)
        folded = frames % period
        return np.minimum(folded, period - num_doubled - folded)


_MOST_DESCRIBED = 8
_BLACK: UInt8Array = np.zeros(1, np.uint8)


class VideoProviderBase(rigs.RigProviderBase, ABC):
    """A data set of videos. A sample is one or more frames of a track (`VideoTracks`)."""

    def __init__(
        self,
        videos: Videos,
        windows: VideoWindows,
        kept: KeptFrames,
        *,
        frames: Name,
        label: Name | None,
        recording_number: Name | None,
        of_frames: Mapping[str, Name | None],
        holds_one_frame: bool,
        images: Images = "decoded",
        fill_value: UInt8Array = _BLACK,
    ) -> None:
        """Index the videos, and make the blueprint.

        Args:
            videos: The videos.
            windows: Which sequences they have.
            kept: Which frames each decoder keeps.
            frames: Name of the pixels.
            label: Name of the label; None for no such field, as below.
            recording_number: Name of the number of the recording.
            of_frames: Names of ``first_frame_number``, ``frame_numbers``, ``timestamps`` and ``path``.
            holds_one_frame: Whether a sample is one frame instead of a sequence: then pixels, number and time have
                one dimension less.
            images: Whether frames are decoded here, or files that hold them are delivered.
            fill_value: ``(C,)`` or ``(1,)``, the pixels of constant frames.
        """
        self._tracks = tracks_of(videos, kept)
        self._videos = self._tracks.indexed
        self._num_batch_threads = videos.num_batch_threads
        self._windows, self._fill_value = windows, fill_value
        self._counts = windows.counts(self._tracks.ends - self._tracks.starts)  # (S,)
        self._first = np.concatenate(([0], np.cumsum(self._counts)))  # (S + 1,), sample of each track
        num_more = 0 if holds_one_frame else 1
        content, ndim = DECODED_IMAGE if holds_one_frame else DECODED_CLIP, 3 + num_more
        self._colors = videos.colors
        self._is_encoded = choice(images, "images", ("decoded", "encoded")) == "encoded"
        if self._is_encoded:
            content, ndim = _encoded_content(videos, windows, self._videos), 1
        further: list[rigs.OptionalField] = [
            (of_frames.get("first_frame_number"), types.DALIDataType.INT32, 1),
            (of_frames.get("frame_numbers"), types.DALIDataType.INT32, num_more),
            (of_frames.get("timestamps"), types.DALIDataType.FLOAT64, num_more),
            (of_frames.get("path"), types.DALIDataType.STRING, None),
        ]
        of_sample: list[rigs.OptionalField] = [(recording_number, types.DALIDataType.INT32, 0)]
        label = None if self._tracks.labels is None else label
        (of_sample if self._tracks.camera_names else further).insert(0, (label, types.DALIDataType.INT32, 1))
        self._frames_name, self._label_name, self._recording_number_name = frames, label, recording_number
        self._names_of_frames = {kind: name for kind, name in of_frames.items() if name is not None}
        self._chosen = 0 if holds_one_frame else slice(None)
        of_camera = SampleDataGroup()
        of_camera.add_data_field(frames, types.DALIDataType.UINT8, ndim=ndim, content=content)
        if self._is_encoded:
            of_camera.add_data_field(numbers_name(frames), types.DALIDataType.INT32, ndim=num_more)
        self._set_format(self._tracks.camera_names, of_camera, further, of_sample, self._tracks.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of samples of all recordings."""
        return int(self._first[-1])

    def _locate(self, sample_index: int) -> tuple[int, Int64Array]:
        """Get the track of a sample, and ``(F,)`` positions in it, -1 for constant frames."""
        sample = self._checked(sample_index)
        track = int(self._first.searchsorted(sample, side="right")) - 1
        start, end = int(self._tracks.starts[track]), int(self._tracks.ends[track])
        return track, self._windows.frames(start, end, sample - int(self._first[track]))

    @property
    def loads_batches(self) -> bool:
        """Whether several samples of a batch are decoded at once, or can have frames in common."""
        return self._num_batch_threads > 1 or self._windows.overlap

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Decode one sample.

        Raises:
            SettingError: Also an IndexError; there is no such sample.
            FileError: A video cannot be opened. Also the builtin exception of the cause.
            VideoError: A frame cannot be decoded.
        """
        return self._sample(sample_index, self._videos.pool)

    def _sample(self, sample_index: int, decoders: FrameReaderPool | SharedFrames) -> SampleDataGroup:
        track, positions = self._locate(sample_index)
        tracks = self._tracks
        sample = self.new_sample()
        for camera, name in enumerate(tracks.camera_names or (None,)):
            self._fill(sample if name is None else sample[name], track, camera, positions, decoders)
        if self._label_name is not None and tracks.labels is not None:
            sample[self._label_name] = tracks.labels[track : track + 1]
        if self._recording_number_name is not None:
            sample[self._recording_number_name] = np.int32(tracks.numbers[track])
        return sample

    def _fill(
        self,
        group: SampleDataGroup,
        track: int,
        camera: int,
        positions: Int64Array,
        decoders: FrameReaderPool | SharedFrames,
    ) -> None:
        video = int(self._tracks.videos[track, camera])
        frames = self._tracks.frames(track, camera, positions)
        group.set_do_convert(False)  # would copy the pixels
        if self._is_encoded:
            group[self._frames_name], found = self._cut(track, camera, positions, decoders)
            group[numbers_name(self._frames_name)] = found[self._chosen]
        else:
            group[self._frames_name] = self._pixels(decoders, video, frames)[self._chosen]
        group.set_do_convert(True)
        for kind, name in self._names_of_frames.items():
            value: Any
            if kind == "path":
                value = as_utf8(self._videos.paths[video])
            elif kind == "timestamps":
                value = self._tracks.times_s(track, camera, frames)[self._chosen]
            else:
                numbers = frames.astype(np.int32)
                value = numbers[:1] if kind == "first_frame_number" else numbers[self._chosen]
            group[name] = value

    def _cut(
        self, track: int, camera: int, positions: Int64Array, decoders: FrameReaderPool | SharedFrames
    ) -> tuple[FileOfClip, npt.NDArray[np.int32]]:
        """Cut the frames at positions of a track out as a file, with their numbers in it."""
        video, frames = int(self._tracks.videos[track, camera]), self._tracks.frames(track, camera, positions)
        clip = self._videos.cutters.cut(video, frames)
        # Of remote videos, another decoder would request the same bytes again.
        is_remote = self._videos.is_remote(video)
        decoded = None if is_remote else functools.partial(decoders.read, video, frames)
        return FileOfClip.of(clip.file, self._colors, decoded), clip.numbers

    def _pixels(self, decoders: FrameReaderPool | SharedFrames, video: int, frames: Int64Array) -> UInt8Array:
        pixels = decoders.read(video, frames[frames >= 0])
        num_constant = len(frames) - len(pixels)
        if not num_constant:
            return pixels
        return np.concatenate([pixels, np.broadcast_to(self._fill_value, (num_constant, *pixels.shape[1:]))])

    def describe_sample(self, sample_index: int) -> str:
        """Name the files and frames of a sample, e.g. ``"monday/front.mp4, frames 4, 6, 8"``; of each camera."""
        track, positions = self._locate(sample_index)
        return "; ".join(
            _described(self._videos.name(int(self._tracks.videos[track, camera])), frames[frames >= 0].tolist())
            for camera in range(self._tracks.videos.shape[1])
            for frames in [self._tracks.frames(track, camera, positions)]
        )

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the samples of a batch, ``num_batch_threads`` at once; frames that they share are decoded once."""
        located = map(self._locate, sample_indices)
        decoders = SharedFrames(self._videos.pool, [clip for each in located for clip in self._clips(*each)])
        load = functools.partial(self._sample, decoders=decoders)
        if self._num_batch_threads == 1:
            yield from map(load, sample_indices)
            return
        with ThreadPoolExecutor(min(self._num_batch_threads, max(len(sample_indices), 1))) as threads:
            yield from threads.map(load, sample_indices)

    def _clips(self, track: int, positions: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Get the video and the frames of each camera, without constant ones."""
        for camera, video in enumerate(self._tracks.videos[track].tolist()):
            frames = self._tracks.frames(track, camera, positions)
            yield video, frames[frames >= 0]

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of samples of each track that has any, ``(S,)`` int64, for samplers of sequences.

        A track is a video, or its range in the list; with ``cameras``, contiguous points in time of a recording.
        """
        return self._counts[self._counts > 0]

    @property
    def samples_per_recording(self) -> Int64Array:
        """Number of samples of each recording: ``(V,)`` int64; 0 where it is too short."""
        return np.bincount(self._tracks.numbers, self._counts, len(self._tracks.all_videos)).astype(np.int64)

    def video_index(self, recording: SupportsIndex, camera: str | None = None) -> VideoIndex:
        """Get the index of the video of a recording, of one of its cameras."""
        return self._videos.indices[self._tracks.video_of(recording, camera)]

    @property
    def statistics(self) -> DecodingStatistics:
        """Decoding statistics of this object in this process."""
        return self._videos.pool.statistics

    def close(self) -> None:
        """Close the decoders of this process; they are opened again when they are needed."""
        self._videos.pool.close()
        self._videos.cutters.close()

    def __repr__(self) -> str:
        """Summarise what was found."""
        sequences = "" if self._chosen == 0 else f"sequences of {self._windows.sequence_length} "
        found = self._tracks.describe()
        return f"{type(self).__name__}({self._first[-1]} {sequences}frames, {found})"


def _described(path: str, frames: list[int]) -> str:
    listed = ", ".join(map(str, frames)) if len(frames) <= _MOST_DESCRIBED else f"{frames[0]} to {frames[-1]}"
    return f"{path}, frame{'' if len(frames) == 1 else 's'} {listed}"


def _encoded_content(videos: Videos, windows: VideoWindows, indexed: IndexedVideos) -> ImageContent:
    """Get the content of files that are cut out of the videos; refuse what cannot be cut out."""
    if videos.image_type != types.DALIImageType.RGB:
        raise SettingError(
            f"`images='encoded'` goes with the image type RGB only, got {videos.image_type.name}: VideoDecoder "
            f"makes RGB, and ImageColorSpaceConverter others of it."
        )
    if videos.upright:
        raise SettingError("`upright=True` turns decoded frames, so it needs `images='decoded'`.")
    if windows.tail == "constant":
        raise SettingError("`tail='constant'` has frames that are in no video, so it needs `images='decoded'`.")
    kinds = {index.kind_by(videos.colors) for index in indexed.indices}
    return ImageContent(is_encoded=True, codecs=tuple(sorted(kinds)))


class VideoDataProvider(VideoProviderBase):
    """Sample ``n`` is sequence ``n`` of DALI's ``fn.experimental.readers.video``, of any codec, decoded here.

    The colors are those that the streams state, or with ``colors="dali"`` of `Videos` those of DALI's reader.

    Fields of a sample, those in brackets only where they are given a name (the label: where the videos have any)::

        one camera                                          cameras={"front": [...], "left": [...]}
          frames: UINT8               (F, H, W, C)            front
          [label: INT32               (1,)]                     frames: UINT8   (F, H, W, C)
          [first frame number: INT32  (1,)]                     [numbers, timestamps, path]
          [frame numbers: INT32       (F,)]                   left: as front
          [timestamps: FLOAT64        (F,)]                   [label, recording number]
          [path: STRING]
          [recording number: INT32    ()]

    **Access.** Any frame is found exactly, also between B-frames and at a variable rate; see `VideoIndex`. The
    index is made once, here. A worker decodes a sequence from the last key frame before it, or continues in an
    open decoder whose position is before it.

    **Streaming.** With `StreamingSequenceSampler` over `sequence_lengths`, each slot plays the sequences of its
    video in their order, each in its own decoder, and each frame is decoded once. That holds in one worker: with
    several, each batch is loaded by any of them, so that each has to decode what the others got.

    Example::

        provider = VideoDataProvider(Videos("train/*.mp4", index_cache="indices"), sequence_length=8, step=4)
        data_input = ShuffledShardedInputCallable(provider, batch_size=4, shuffle=True)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        videos: Videos | VideoPaths,
        *,
        sequence_length: SupportsIndex,
        stride: SupportsIndex = 1,
        step: SupportsIndex | None = None,
        tail: VideoTail = "drop",
        fill_value: SupportsIndex | Sequence[SupportsIndex] = 0,
        images: Images = "decoded",
        frames_name: Name = "frames",
        label_name: Name | None = "label",
        first_frame_number_name: Name | None = None,
        frame_numbers_name: Name | None = None,
        timestamps_name: Name | None = None,
        path_name: Name | None = None,
        recording_number_name: Name | None = None,
    ) -> None:
        """Index the videos.

        Args:
            videos: The videos; paths, a folder or a pattern alone for those of one camera.
            sequence_length: Frames per sequence, ``F``.
            stride: Frames from one frame of a sequence to the next.
            step: Frames from the start of a sequence to the start of the next; None for
                ``sequence_length * stride``, as DALI 2.4 has it.
            tail: What happens at the end of a video: with ``"drop"`` only complete sequences count, those with
                ``sequence_length * stride`` frames from their start on. Otherwise the first one that is not
                complete counts too, padded as `np.pad` does it: ``"repeat"`` (of the last frame), ``"constant"``,
                ``"reflect_1001"`` (``symmetric``) or ``"reflect_101"`` (``reflect``).
            fill_value: With ``"constant"``, the value of pixels, or one per channel, in [0, 255].
            images: ``"decoded"``: frames are decoded here. ``"encoded"``: instead of the frames, the sample has
                the bytes of a small video file, ``(num_bytes,)``, and next to it the numbers of the frames in it,
                ``<frames_name>_to_decode``, for `VideoDecoder`.
            frames_name: Name for the frames.
            label_name: Name for the label; None to leave it out.
            first_frame_number_name: Name for the number of the first frame in its video, ``(1,)``.
            frame_numbers_name: Name for the number of each frame, ``(F,)``, -1 for constant ones.
            timestamps_name: Name for the time of each frame in seconds, ``(F,)``, -1 for constant ones: since the
                first frame of the video, with ``cameras`` as they are aligned.
            path_name: Name for the path of the video.
            recording_number_name: Name for the number of the recording: of the video as listed, or of one video of
                each camera.

        Raises:
            SettingError: PyAV is missing, or arguments are out of their range or do not fit the videos; a line of
                the list is wrong; or no video is long enough for a sequence.
            FileError: A folder, list or video cannot be opened. Also the builtin exception of the cause.
            VideoError: A file is not a video, or incomplete.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        videos = as_videos(videos)
        windows = VideoWindows(sequence_length, stride, step, tail)
        super().__init__(
            videos,
            windows,
            windows.kept_frames,
            frames=frames_name,
            label=label_name,
            recording_number=recording_number_name,
            of_frames={
                "first_frame_number": first_frame_number_name,
                "frame_numbers": frame_numbers_name,
                "timestamps": timestamps_name,
                "path": path_name,
            },
            holds_one_frame=False,
            images=images,
            fill_value=_checked_fill(fill_value, FrameConverter(videos.image_type).num_channels),
        )
        if not self.get_number_of_samples():
            lengths = self._tracks.ends - self._tracks.starts
            longest = int(lengths.argmax())
            path = self._videos.name(int(self._tracks.videos[longest, self._tracks.reference]))
            raise SettingError(
                f"There must be at least {windows.span} contiguous frames for `sequence_length="
                f"{windows.sequence_length}` with `stride={windows.stride}`, but the longest of {len(lengths)} "
                f"videos has {lengths[longest]}, in {path!r}. Use shorter sequences, or another `tail`."
            )


def _checked_fill(value: Any, num_channels: int) -> UInt8Array:
    given = np.atleast_1d(np.asarray(value, object)).tolist()
    numbers = [whole_number(each, "fill_value", at_least=0, at_most=255) for each in given]
    if len(numbers) not in (1, num_channels):
        rule = f"one number in [0, 255], or one for each of {num_channels} channel(s)"
        raise SettingError(f"`fill_value` must be {rule}, got {value!r}.")
    return np.array(numbers, np.uint8)


_Cut: TypeAlias = Callable[[int, int, int], tuple[FileOfClip, npt.NDArray[np.int32]]]


class VideoFrameDataProvider(VideoProviderBase):
    """Sample ``i`` is frame ``i`` of a list of videos, or all cameras of a rig at a point in time.

    The frames of all videos lie one after the other, and `sequence_lengths` is what samplers and `Clips` need, so
    every sampler of sequences and clips works with videos. `ClipDataProvider` makes clips of it; for sequences
    as DALI's reader has them, and fewer fields, there is `VideoDataProvider`, which explains access and
    streaming.

    Fields of a sample, those in brackets only where they are given a name (the label: where the videos have any)::

        one camera                            cameras={"front": [...], "left": [...]}
          image: UINT8       (H, W, C)          front
          [label: INT32      (1,)]                image: UINT8   (H, W, C)
          [frame number: INT32  ()]               [frame number, timestamp, path]
          [timestamp: FLOAT64   ()]             left: as front
          [path: STRING]                        [label, recording number]
          [recording number: INT32  ()]

    Example::

        provider = VideoFrameDataProvider(["train/0001.mp4", "train/0002.mp4"])
        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        data_input = SamplerInputCallable(provider, sampler)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        videos: Videos | VideoPaths,
        *,
        images: Images = "decoded",
        image_name: Name = "image",
        label_name: Name | None = "label",
        frame_number_name: Name | None = None,
        timestamp_name: Name | None = None,
        path_name: Name | None = None,
        recording_number_name: Name | None = None,
        num_kept_frames: SupportsIndex = 0,
    ) -> None:
        """Index the videos.

        Args:
            videos: The videos; paths, a folder or a pattern alone for those of one camera.
            images: ``"decoded"``, or ``"encoded"`` for a small video file and the number of the frame in it, as
                for `VideoDataProvider`.
            image_name: Name for the frame.
            label_name: Name for the label; None to leave it out.
            frame_number_name: Name for the number of the frame in its video.
            timestamp_name: Name for the time of the frame in seconds: since the first frame of the video, with
                ``cameras`` as they are aligned.
            path_name: Name for the path of the video.
            recording_number_name: Name for the number of the recording: of the video as listed, or of one video of
                each camera.
            num_kept_frames: Decoded frames that each decoder keeps, for clips that overlap: at least the frames
                that a clip shares with the next.

        Raises:
            As `VideoDataProvider`.
        """
        num_kept = whole_number(num_kept_frames, "num_kept_frames", at_least=0)
        # At least the last frame: padded slots repeat it.
        kept = KeptFrames(max(num_kept, 1), passed=num_kept > 0, pixels=num_kept > 0)
        super().__init__(
            as_videos(videos),
            VideoWindows(1),
            kept,
            frames=image_name,
            label=label_name,
            recording_number=recording_number_name,
            of_frames={"frame_numbers": frame_number_name, "timestamps": timestamp_name, "path": path_name},
            holds_one_frame=True,
            images=images,
        )

    @property
    def timestamps_s(self) -> npt.NDArray[np.float64]:
        """Time of each sample in seconds, ``(N,)`` float64, increasing in each sequence: for `Clips` by time.

        With ``cameras``, of the reference camera.
        """
        return self._tracks.all_times_s(self._tracks.reference)

    def frame_times_s(self, path: FieldPath = ()) -> npt.NDArray[np.float64] | None:
        """Get `timestamps_s`; of a field of one of several cameras, the times of that camera."""
        if not path:
            return self.timestamps_s
        return self._tracks.all_times_s(self._tracks.camera_names.index(path[0])) if len(path) > 1 else None

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some frames; pixels only where they are wanted, those of a video in one pass."""
        pool = self._videos.pool

        @functools.cache  # for the file and the number of its frame
        def cut(track: int, camera: int, position: int) -> tuple[FileOfClip, npt.NDArray[np.int32]]:
            return self._cut(track, camera, np.array([position]), pool)

        return {
            path: self._column(path, np.array([self._checked(sample) for sample in samples], np.int64), cut)
            for path, samples in wanted.items()
        }

    def load_clips(self, path: FieldPath, samples: Int64Array) -> Sequence[EncodedClipValue] | None:
        """Cut frames of the videos of a camera out, those of each row as one file."""
        if not self._is_encoded:
            return None
        camera = 0 if len(path) == 1 else self._tracks.camera_names.index(path[0])
        clips = []
        for row in samples:
            track, _ = self._locate(int(row[0]))
            positions = self._tracks.starts[track] + row - self._first[track]
            clips.append(self._cut(track, camera, positions, self._videos.pool))
        return clips

    def _column(self, path: FieldPath, samples: Int64Array, cut: _Cut) -> FieldColumn:
        tracks = self._first.searchsorted(samples, side="right") - 1
        column: list[Any] = [None] * len(samples)
        for track in np.unique(tracks).tolist():
            places = np.flatnonzero(tracks == track)
            positions = self._tracks.starts[track] + samples[places] - self._first[track]
            values = self._values(path, track, positions, cut)
            if len(places) == len(samples):
                return values
            for place, value in zip(places.tolist(), values, strict=True):
                column[place] = value
        return column

    def _values(self, path: FieldPath, track: int, positions: Int64Array, cut: _Cut) -> FieldColumn:
        """Get a field at ``(n,)`` positions of a track."""
        tracks, name, num = self._tracks, path[-1], len(positions)
        is_of_sample = len(path) == 1
        if is_of_sample and name == self._label_name and tracks.labels is not None:
            return np.full((num, 1), tracks.labels[track])
        if is_of_sample and name == self._recording_number_name:
            return np.full(num, tracks.numbers[track], np.int32)
        camera = 0 if is_of_sample else tracks.camera_names.index(path[0])
        video, frames = int(tracks.videos[track, camera]), tracks.frames(track, camera, positions)
        if self._is_encoded and name in (self._frames_name, numbers_name(self._frames_name)):
            clips = [cut(track, camera, position) for position in positions.tolist()]
            return [file if name == self._frames_name else found[0] for file, found in clips]
        if name == self._frames_name:
            return self._pixels(self._videos.pool, video, frames)
        if name == self._names_of_frames.get("timestamps"):
            return tracks.times_s(track, camera, frames)
        if name == self._names_of_frames.get("frame_numbers"):
            return frames.astype(np.int32)
        return [encoded(as_utf8(self._videos.paths[video]))] * num
