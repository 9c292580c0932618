# SPDX-License-Identifier: Apache-2.0
"""The provider of frames of videos, and which sequences of them there are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, SupportsIndex, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import choice, index_in, whole_number
from ..draws.keyed_draws import Int64Array
from ..errors import SettingError
from ..providers.data_provider import EncodedClipValue, FieldColumn, FieldColumns, WantedFields
from ..providers.files.storage import as_utf8
from ..providers.frames import camera_rigs as rigs
from ..sample_data import FieldPath, ImageContent, SampleDataGroup
from ..sample_data.conversion import encoded
from ..sample_data.formats import DECODED_IMAGE, numbers_name
from ..sample_data.names import Name
from ..unknown_arguments import explains_unknown_arguments
from .decoded_clips import FileOfClip
from .frame_reader import DecodingStatistics, IndexedVideos
from .video_index import VideoIndex
from .videos import VideoPaths, Videos, checked_labels, expanded, frame_ranges, listed_videos

_DIGITS = 9  # of offsets in seconds: 64 bits hold the times in nanoseconds


@attrs.frozen
class VideoTracks:
    """Tracks, contiguous frames, in the order of the data set.

    Attributes:
        indexed: The videos.
        videos: ``(V, C)`` int64, number of each camera's video in the `IndexedVideos`, for each recording: a video
            as listed, or one video of each camera.
        recordings: ``(S,)`` int64, number of each track's recording.
        rows: For each track, the frame of each camera at each position, ``(T, C)`` int64; of a single camera
            without a name the range of its frames.
        labels: Of each recording, or None for each.
        camera_names: Names of the cameras; none for a single one without a name.
        offsets_s: ``(V, C)`` float64, what is added to the times of each camera's frames.
        missing: Frames that cameras lack.
        reference: Number of the reference camera.
        edges: ``(S + 1,)`` int64, first sample of each track, and the number of samples.
    """

    indexed: IndexedVideos
    videos: Int64Array
    recordings: Int64Array
    rows: Sequence[range | Int64Array]
    labels: Sequence[int | None]
    camera_names: tuple[str, ...] = ()
    offsets_s: npt.NDArray[np.float64] | None = None
    missing: tuple[rigs.MissingFrame, ...] = ()
    reference: int = 0
    edges: Int64Array = attrs.field(init=False)

    @edges.default
    def _edges(self) -> Int64Array:
        return np.cumsum([0, *map(len, self.rows)])

    def describe(self) -> str:
        """Say how many there are: ``"2 videos"``, or ``"2 recordings of 3 cameras in 6 files"``."""
        if not self.camera_names:
            return f"{len(self.videos)} videos"
        files = {self.indexed.paths[number] for number in self.videos.ravel().tolist()}
        num_recordings, num_cameras = self.videos.shape
        return f"{num_recordings} recordings of {num_cameras} cameras in {len(files)} files"

    def video_of(self, recording: SupportsIndex, camera: str | None) -> int:
        """Get the number in the `IndexedVideos` of a camera's video of a recording."""
        names = self.camera_names or (None,)
        place = names.index(choice(camera, "camera", names))
        return int(self.videos[index_in(recording, "recording", len(self.videos)), place])

    def tracks(self, samples: Int64Array) -> Int64Array:
        """Get the number of the track of each of ``(n,)`` samples."""
        return self.edges.searchsorted(samples, side="right") - 1

    def frames(self, track: int, camera: int, samples: Int64Array) -> tuple[int, Int64Array]:
        """Get the number of a camera's video, and of the frames in it that ``(n,)`` samples of a track have."""
        row, positions = self.rows[track], samples - self.edges[track]
        video = int(self.videos[self.recordings[track], camera])
        return video, positions + row.start if isinstance(row, range) else row[positions, camera]

    def times_s(self, track: int, camera: int, frames: Int64Array) -> npt.NDArray[np.float64]:
        """Get the ``(n,)`` times of frames in seconds.

        Of a single camera: since the first frame of the video, as DALI has it. Of several: as they are aligned.
        """
        recording = self.recordings[track]
        index = self.indexed.indices[int(self.videos[recording, camera])]
        times_s = index.times_s if self.offsets_s is None else _times_s(index, self.offsets_s[recording, camera])
        return times_s[frames]

    def all_times_s(self, camera: int) -> npt.NDArray[np.float64]:
        """Get the times of all samples, ``(N,)``, of a camera."""
        parts = []
        for track, (start, end) in enumerate(itertools.pairwise(self.edges.tolist())):
            _, frames = self.frames(track, camera, np.arange(start, end))
            parts.append(self.times_s(track, camera, frames))
        return np.concatenate(parts)


def tracks_of(videos: Videos, num_kept: int) -> VideoTracks:
    """Index videos, each file once, and find their contiguous frames."""
    return _of_list(videos, num_kept) if videos.cameras is None else _of_rig(videos, num_kept)


def _of_list(settings: Videos, num_kept: int) -> VideoTracks:
    paths, labels = listed_videos(settings)
    videos = IndexedVideos(paths, settings, num_kept)
    rows = frame_ranges(settings, paths, [videos.indices[number] for number in videos.numbers.tolist()])
    return VideoTracks(videos, videos.numbers[:, None], np.arange(len(paths)), rows, labels)


def _of_rig(settings: Videos, num_kept: int) -> VideoTracks:
    names = settings.camera_names
    paths = [expanded(files, settings) for files in (settings.cameras or {}).values()]
    counts = {camera: len(of_camera) for camera, of_camera in zip(names, paths, strict=True)}
    if len(set(counts.values())) > 1:
        rule = "one video per recording, so the lists must be equally long"
        raise SettingError(f"Each camera must have {rule}, got {counts}.")
    num_recordings = len(paths[0])
    labels = checked_labels(settings, num_recordings, "cameras")
    offsets_s = _offsets_s(settings, num_recordings)
    videos = IndexedVideos([path for of_camera in paths for path in of_camera], settings, num_kept)
    columns = videos.numbers.reshape(len(names), num_recordings).T
    recordings: list[int] = []
    rows: list[Int64Array] = []
    missing: list[rigs.MissingFrame] = []
    num_times = 0
    for number, of_recording in enumerate(columns.tolist()):
        indices = [videos.indices[place] for place in of_recording]
        times = [
            rigs.CameraTimes(index.pts, index.time_base, rigs.exact(round(offset_s, _DIGITS)))
            for index, offset_s in zip(indices, offsets_s[number].tolist(), strict=True)
        ]
        matched = rigs.align_times(times, settings.reference, settings.tolerance_s)
        reference_times_s = _times_s(indices[settings.reference], offsets_s[number, settings.reference]).tolist()
        num_times += len(matched)
        runs, lacking = settings.sequences(number, matched, reference_times_s)
        missing += lacking
        recordings += [number] * len(runs)
        rows += [matched[run] for run in runs]
    advice = (
        "\nDo the cameras' clocks begin at the same time (`time_offsets_s`), and is `tolerance_s` large enough?"
    )
    rigs.report_missing(settings, missing, num_times, is_empty=not rows, advice=advice)
    of_cameras = names, offsets_s, tuple(missing), settings.reference
    return VideoTracks(videos, columns, np.array(recordings, np.int64), rows, labels, *of_cameras)


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
_Cut: TypeAlias = Callable[[int, int, int], tuple[FileOfClip, npt.NDArray[np.int32]]]


class VideoFrameDataProvider(rigs.RigProviderBase):
    """Sample ``i`` is frame ``i`` of a list of videos, or all cameras of a rig at a point in time.

    The frames of all videos lie one after the other; samplers of sequences take `sequence_lengths`. `Windows`
    makes samples of several frames of it: clips of eight frames that do not overlap are
    ``Windows(provider, {"image": range(8)}, unit="frames", step=8)``. Colors are converted as each stream states;
    with ``colors="dali"`` of `Videos`, pixels equal those of DALI's reader.

    Fields of a sample; those in brackets only if they are given a name (the label: if the videos have labels)::

        one camera                            cameras={"front": [...], "left": [...]}
          image: UINT8       (H, W, C)          front
          [label: INT32      (1,)]                image: UINT8   (H, W, C)
          [frame number: INT32  ()]               [frame number, timestamp, path]
          [timestamp: FLOAT64   ()]             left: as front
          [path: STRING]                        [label, recording number]
          [recording number: INT32  ()]

    **Access.** Any frame is found exactly, also between B-frames and at a variable rate; see `VideoIndex`. The
    index is made once, here; ``missing_frames`` lists the missing frames of cameras. A worker decodes from the
    last key frame before a frame, or continues in an open decoder whose position is before it.

    **Streaming.** With `StreamingSequenceSampler` over `sequence_lengths`, each slot plays its video, or the
    windows of it, in its own decoder, and each frame is decoded once. That holds for one worker: with several, any
    of them loads the next batch, and decodes again the frames that another one has decoded.

    Example::

        provider = VideoFrameDataProvider(Videos("train/*.mp4", index_cache="indices"))
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
            videos: The videos; for one camera also paths, a folder or a pattern.
            images: ``"decoded"``: frames are decoded here. ``"encoded"``: instead of the frame, the sample has the
                bytes of a small video file, ``(num_bytes,)``, and next to it the number of the frame in it,
                ``<image_name>_to_decode``, for `VideoDecoder`.
            image_name: Name for the frame.
            label_name: Name for the label; None to leave it out.
            frame_number_name: Name for the number of the frame in its video.
            timestamp_name: Name for the time of the frame in seconds: since the first frame of the video; with
                ``cameras``, the time of the container plus ``time_offsets_s``.
            path_name: Name for the path of the video.
            recording_number_name: Name for the number of the recording: the position of its video in the list (of
                each camera).
            num_kept_frames: Decoded frames that each decoder keeps, for windows that overlap or are repeated by
                padded slots: as many as from the first to the last frame of a window.

        Raises:
            SettingError: PyAV is missing, or arguments are out of their range or do not fit the videos; or a
                range has no frame.
            FileError: A folder or video cannot be opened.
            VideoError: A file is not a video, or is incomplete. Also raised, whatever the reasons, if several
                files cannot be used.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        videos = videos if isinstance(videos, Videos) else Videos(videos)
        num_kept = whole_number(num_kept_frames, "num_kept_frames", at_least=0)
        self._tracks = tracks = tracks_of(videos, num_kept)
        self._videos = tracks.indexed
        self.num_batch_threads = videos.num_batch_threads
        self._colors = videos.colors
        self._is_encoded = choice(images, "images", ("decoded", "encoded")) == "encoded"
        int32, float64 = types.DALIDataType.INT32, types.DALIDataType.FLOAT64
        self._frame_names = frame_number_name, timestamp_name, path_name
        further: list[rigs.OptionalField] = [
            *zip(self._frame_names, (int32, float64, types.DALIDataType.STRING), (0, 0, None), strict=True)
        ]
        of_sample: list[rigs.OptionalField] = [(recording_number_name, int32, 0)]
        label = None if tracks.labels[0] is None else label_name
        (of_sample if tracks.camera_names else further).insert(0, (label, int32, 1))
        self._image_name, self._label_name, self._recording_number_name = image_name, label, recording_number_name
        of_camera = SampleDataGroup()
        content = _encoded_content(videos, self._videos) if self._is_encoded else DECODED_IMAGE
        ndim = 1 if self._is_encoded else 3
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=ndim, content=content)
        if self._is_encoded:
            of_camera.add_data_field(numbers_name(image_name), int32, ndim=0)
        self._set_format(tracks.camera_names, of_camera, further, of_sample, tracks.missing)

    # --- loading ----------------------------------------------------------------------------------------

    def get_number_of_samples(self) -> int:
        """Get the number of frames of all recordings."""
        return int(self._tracks.edges[-1])

    @property
    def loads_batches(self) -> bool:
        """Whether several samples of a batch are decoded at once."""
        return self.num_batch_threads > 1

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the samples of a batch, ``num_batch_threads`` at once."""
        with ThreadPoolExecutor(min(self.num_batch_threads, max(len(sample_indices), 1))) as threads:
            yield from threads.map(self.get_data, sample_indices)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Decode one frame, of all cameras.

        Raises:
            SettingError: There is no such sample; the error is also an IndexError.
            FileError: A video cannot be opened.
            VideoError: A frame cannot be decoded.
        """
        paths = self._blueprint.format.flat_paths
        columns = self.load_fields(dict.fromkeys(paths, (sample_index,)))
        sample = self.new_sample()
        sample.set_data([columns[path][0] for path in paths])
        return sample

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some frames; pixels only if they are wanted, each video in one pass."""
        # Once for the file and the number of its frame.
        cut = functools.cache(lambda track, camera, sample: self._cut(track, camera, np.array([sample])))
        return {
            path: self._column(path, np.array([self._checked(sample) for sample in samples], np.int64), cut)
            for path, samples in wanted.items()
        }

    def load_clips(self, path: FieldPath, samples: Int64Array) -> Sequence[EncodedClipValue] | None:
        """Cut frames of a camera's videos out; each row of ``samples`` becomes one file."""
        if not self._is_encoded:
            return None
        tracks = self._tracks.tracks(samples[:, 0]).tolist()
        return [self._cut(track, self._camera_of(path), row) for track, row in zip(tracks, samples, strict=True)]

    def _camera_of(self, path: FieldPath) -> int:
        return 0 if len(path) == 1 else self._tracks.camera_names.index(str(path[0]))

    def _cut(self, track: int, camera: int, samples: Int64Array) -> tuple[FileOfClip, npt.NDArray[np.int32]]:
        """Cut the frames that samples of a track have out as a file, with their numbers in it."""
        video, frames = self._tracks.frames(track, camera, samples)
        clip = self._videos.cutters.cut(video, frames)
        # Of remote videos, another decoder would request the same bytes again.
        is_remote = self._videos.is_remote(video)
        decoded = None if is_remote else functools.partial(self._videos.pool.read, video, frames)
        return FileOfClip.of(clip, self._colors, decoded), clip.numbers

    def _column(self, path: FieldPath, samples: Int64Array, cut: _Cut) -> FieldColumn:
        tracks = self._tracks.tracks(samples)
        column: list[Any] = [None] * len(samples)
        for track in np.unique(tracks).tolist():
            places = np.flatnonzero(tracks == track)
            values = self._values(path, track, samples[places], cut)
            if len(places) == len(samples):
                return values
            for place, value in zip(places.tolist(), values, strict=True):
                column[place] = value
        return column

    def _values(self, path: FieldPath, track: int, samples: Int64Array, cut: _Cut) -> FieldColumn:
        """Get a field of ``(n,)`` samples of a track."""
        tracks, name, num = self._tracks, path[-1], len(samples)
        recording = int(tracks.recordings[track])
        if len(path) == 1 and name == self._label_name:
            return np.full((num, 1), tracks.labels[recording], np.int32)
        if len(path) == 1 and name == self._recording_number_name:
            return np.full(num, recording, np.int32)
        camera = self._camera_of(path)
        video, frames = tracks.frames(track, camera, samples)
        if self._is_encoded and name in (self._image_name, numbers_name(self._image_name)):
            clips = [cut(track, camera, sample) for sample in samples.tolist()]
            return [file if name == self._image_name else found[0] for file, found in clips]
        if name == self._image_name:
            return self._videos.pool.read(video, frames)
        frame_number_name, timestamp_name, _ = self._frame_names
        if name == timestamp_name:
            return tracks.times_s(track, camera, frames)
        if name == frame_number_name:
            return frames.astype(np.int32)
        return [encoded(as_utf8(self._videos.paths[video]))] * num

    def describe_sample(self, sample_index: int) -> str:
        """Name file and frame of a sample, of all cameras, e.g. ``"front.mp4, frame 4; left.mp4, frame 4"``."""
        tracks, samples = self._tracks, np.array([self._checked(sample_index)])
        track = int(tracks.tracks(samples)[0])
        found = [tracks.frames(track, camera, samples) for camera in range(tracks.videos.shape[1])]
        return "; ".join(f"{self._videos.name(video)}, frame {frames[0]}" for video, frames in found)

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64.

        A sequence is a video, or its range; with ``cameras``, a recording, or by ``Videos(missing="drop")`` a
        part of one between gaps.
        """
        return np.diff(self._tracks.edges)

    @property
    def timestamps_s(self) -> npt.NDArray[np.float64]:
        """Time of each sample in seconds, ``(N,)`` float64, increasing in each sequence.

        With ``cameras``, of the reference camera.
        """
        return self._tracks.all_times_s(self._tracks.reference)

    def frame_times_s(self, path: FieldPath = ()) -> npt.NDArray[np.float64] | None:
        """Get `timestamps_s`; for a field of a camera, with ``cameras``, the times of its own frames."""
        if not path:
            return self.timestamps_s
        return self._tracks.all_times_s(self._camera_of(path)) if len(path) > 1 else None

    def video_index(self, recording: SupportsIndex, camera: str | None = None) -> VideoIndex:
        """Get the index of the video of a recording; with ``cameras``, of one of its cameras."""
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
        return f"{type(self).__name__}({self._tracks.edges[-1]} frames, {self._tracks.describe()})"


def _encoded_content(videos: Videos, indexed: IndexedVideos) -> ImageContent:
    """Get the content of files that are cut out of the videos; refuse what cannot be cut out."""
    if videos.image_type != types.DALIImageType.RGB:
        raise SettingError(
            f"`images='encoded'` goes with the image type RGB only, got {videos.image_type.name}: VideoDecoder "
            f"makes RGB."
        )
    if videos.upright:
        raise SettingError("`upright=True` turns decoded frames, so it needs `images='decoded'`.")
    kinds = {index.kind_by(videos.colors) for index in indexed.indices}
    return ImageContent(is_encoded=True, codecs=tuple(sorted(kinds)))
