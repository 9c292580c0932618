# SPDX-License-Identifier: Apache-2.0
"""A data set of videos: a sequence of frames is one sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
from nvidia.dali import types

from ...checks import whole_number
from ...errors import SettingError
from ...sample_data import Name
from ...unknown_arguments import explains_unknown_arguments
from .video_decoding import FrameConverter
from .video_index import Int64Array
from .video_list import VIDEO_FILTERS, ListFormat, ListRounding, VideoPath
from .video_provider_base import VideoProviderBase
from .video_samples import FrameNumbers, VideoFields, VideoSamples, checked_fill, checked_frame_numbers
from .video_sources import VideoSources
from .video_tracks import MissingPolicy
from .video_windows import PadMode, VideoWindows


class VideoDataProvider(VideoProviderBase):
    """Sample ``n`` is sequence ``n`` of DALI's ``fn.experimental.readers.video``, of any codec, decoded here.

    The videos are named in one of three ways: ``filenames`` (and ``labels``), ``file_root`` (each subfolder is a
    label), or ``file_list`` (lines ``path label [start [end]]``). Or, for several cameras, by ``cameras``: one
    list of videos for each, with one video per drive.

    Fields of a sample, those in brackets only where they are asked for::

        one camera                                       cameras={"front": [...], "left": [...]}
          frames: UINT8         (F, H, W, C)               front
          [label: INT32         (1,)]                        frames: UINT8   (F, H, W, C)
          [frame_num: INT32     (1,) or (F,)]                [frame_num, timestamps, path]
          [timestamps: FLOAT64  (F,)]                      left: as front
          [path: STRING]                                   [label, video_number]
          [video_number: INT32  ()]

    **Access.** Any frame is found exactly, also between B-frames and at a variable rate; see `VideoIndex`. The
    index is made once, here, and kept in ``index_cache`` if that is given. A worker decodes a sequence from the
    last key frame before it, or goes on in an open decoder that stands before it.

    **Streaming.** ``sequence_lengths`` are the numbers of samples per video, for `StreamingSequenceSampler`: each
    slot plays the sequences of its video in their order, each in its own decoder, and each frame is decoded once.
    That holds in one worker: with several, each batch is loaded by any of them, so that each has to decode what
    the others got. ``num_batch_threads`` decodes several slots of a batch at once in one worker.

    **Several cameras.** For each frame of the reference camera, the frame of each other camera that is nearest in
    time (and to which it is the nearest, too), if it is within the tolerance. Points in time at which a camera
    has none are left out, counted in the log and listed in `missing_frames`. With ``missing="drop"`` sequences do
    not reach over them; with ``"bridge"`` they do.

    Example::

        provider = VideoDataProvider("drives/0001.mp4", sequence_length=8, step=4)
        data_input = ShuffledShardedInputCallable(provider, batch_size=4, shuffle=True)
    """

    @explains_unknown_arguments()
    def __init__(
        self,
        filenames: VideoPath | Iterable[VideoPath] | None = None,
        *,
        sequence_length: SupportsIndex,
        stride: SupportsIndex = 1,
        step: SupportsIndex | None = None,
        uniform_sample: bool = False,
        pad_mode: PadMode = "none",
        fill_value: SupportsIndex | Sequence[SupportsIndex] = 0,
        file_root: VideoPath | None = None,
        file_list: VideoPath | None = None,
        labels: SupportsIndex | Iterable[SupportsIndex] | None = None,
        file_filters: str | Iterable[str] = VIDEO_FILTERS,
        file_list_format: ListFormat = "timestamps",
        file_list_rounding: ListRounding = "start_down_end_up",
        file_list_include_end: bool = False,
        cameras: Mapping[str, VideoPath | Iterable[VideoPath]] | None = None,
        reference_camera: str | None = None,
        tolerance_s: float | None = None,
        time_offsets_s: Mapping[str, float | Sequence[float]] | None = None,
        missing: MissingPolicy = "drop",
        stream: SupportsIndex | Mapping[str, SupportsIndex] = 0,
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        enable_frame_num: bool | FrameNumbers = "none",
        enable_timestamps: bool = False,
        frames_name: Name = "frames",
        label_name: Name = "label",
        frame_num_name: Name = "frame_num",
        timestamps_name: Name = "timestamps",
        path_name: Name | None = None,
        video_number_name: Name | None = None,
        num_decoder_threads: SupportsIndex = 1,
        num_batch_threads: SupportsIndex = 1,
        max_open_decoders: SupportsIndex = 16,
        index_cache: VideoPath | None = None,
    ) -> None:
        """Index the videos.

        Args:
            filenames: Paths of the videos.
            sequence_length: Frames per sequence, ``F``.
            stride: Frames from one frame of a sequence to the next.
            step: Frames from the start of a sequence to the start of the next; None for
                ``sequence_length * stride``, as DALI 2.4 has it.
            uniform_sample: One sequence per video, of frames that are spread over it; ``stride``, ``step`` and
                ``pad_mode`` do not count then.
            pad_mode: What becomes of the end of a video: with ``"none"`` only complete sequences count, those with
                ``sequence_length * stride`` frames from their start on. With ``"constant"``, ``"edge"``,
                ``"reflect_1001"`` or ``"reflect_101"`` the first one that is not complete counts too, filled up.
            fill_value: With ``"constant"``, the value of pixels, or one per channel, in [0, 255].
            file_root: Folder of label folders, as in `FileDataProvider`.
            file_list: Path of a list file. Paths in it are relative to the current folder. Numbers after the label
                give a range: the end is not part of it.
            labels: One per video of ``filenames``, or per drive of ``cameras``.
            file_filters: Patterns of the files in label folders.
            file_list_format: ``"timestamps"``: ranges are in seconds, in the time of the container.
                ``"frames"``: they are numbers of frames, negative ones from the end.
            file_list_rounding: To which frame a start or end between two is rounded.
            file_list_include_end: Whether the end belongs to the range. DALI 2.4 has this argument, and leaves
                the end out in any case.
            cameras: Videos by name of the camera.
            reference_camera: The camera whose frames are the points in time; None for the first.
            tolerance_s: How far a frame may be from its point in time; None for half the usual interval of the
                reference camera.
            time_offsets_s: By camera, what is added to the times of its container; one number, or one per drive.
            missing: ``"drop"``, ``"bridge"`` or ``"raise"``.
            stream: Number of the video stream in the container; or one for each camera.
            image_type: ``RGB``, ``BGR`` or ``GRAY``.
            enable_frame_num: ``"scalar"`` or True for the number of the first frame in its video, ``(1,)``;
                ``"sequence"`` for that of each frame, ``(F,)``, -1 for constant ones.
            enable_timestamps: Whether there is a field for the time of each frame in seconds, ``(F,)``, -1 for
                constant ones: since the first frame of the video, with ``cameras`` as they are aligned.
            frames_name: Name of the field of the frames.
            label_name: Name of the field of the label.
            frame_num_name: Name of the field of frame numbers.
            timestamps_name: Name of the field of times.
            path_name: Name of a field for the path of the video; None for none.
            video_number_name: Name of a field for the number of the video as listed, or of the drive; None for
                none.
            num_decoder_threads: Threads of each decoder.
            num_batch_threads: How many samples of a batch are decoded at once in a worker.
            max_open_decoders: How many decoders a worker keeps open; to stream, at least slots times cameras.
            index_cache: Folder that keeps the indices of the videos.

        Raises:
            SettingError: PyAV is missing, or arguments are out of their range or do not go together; a line of
                the list is wrong; or no video is long enough for a sequence.
            FileError: A folder, list or video cannot be opened. Also the builtin exception of the cause.
            VideoError: A file is not a video, or incomplete.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        numbers = checked_frame_numbers(enable_frame_num)
        fields = VideoFields(
            frames_name,
            label_name,
            None if numbers == "none" else frame_num_name,
            timestamps_name if enable_timestamps else None,
            path_name,
            video_number_name,
            holds_one_frame=False,
            has_all_numbers=numbers == "sequence",
        )
        fill = checked_fill(fill_value, FrameConverter(image_type).num_channels)
        num_threads = whole_number(num_batch_threads, "num_batch_threads", at_least=1)
        # Only to check the settings, and how much sequences overlap, before files are opened.
        self._windows = VideoWindows(
            [], [], sequence_length, stride=stride, step=step, pad_mode=pad_mode, uniform=uniform_sample
        )
        options: dict[str, Any] = {
            "image_type": image_type,
            "num_decoder_threads": num_decoder_threads,
            "max_open_decoders": max_open_decoders,
            "index_cache": index_cache,
            "kept": self._windows.kept_frames,
        }
        sources = VideoSources(
            filenames=filenames,
            file_root=file_root,
            file_list=file_list,
            labels=labels,
            file_filters=file_filters,
            file_list_format=file_list_format,
            file_list_rounding=file_list_rounding,
            file_list_include_end=file_list_include_end,
            cameras=cameras,
            reference_camera=reference_camera,
            tolerance_s=tolerance_s,
            time_offsets_s=time_offsets_s,
            missing=missing,
            stream=stream,
        )
        super().__init__(VideoSamples(*sources.find(**options), fields, fill), num_threads)
        self._windows = VideoWindows(
            self._tracks.starts,
            self._tracks.ends,
            sequence_length,
            stride=stride,
            step=step,
            pad_mode=pad_mode,
            uniform=uniform_sample,
        )
        if not self._windows.num_windows:
            lengths = self._tracks.ends - self._tracks.starts
            longest = int(lengths.argmax())
            path = self._videos.path(int(self._tracks.videos[longest, self._tracks.reference]))
            raise SettingError(
                f"There must be a run of at least {self._windows.span} frames for `sequence_length="
                f"{self._windows.sequence_length}` with `stride={self._windows.stride}`, but the longest of "
                f"{len(self._tracks.starts)} has {lengths[longest]}, in {path!r}. Use shorter sequences, "
                f"or a `pad_mode`."
            )

    def get_number_of_samples(self) -> int:
        """Get the number of sequences."""
        return self._windows.num_windows

    def _locate(self, sample: int) -> tuple[int, Int64Array]:
        return self._windows.locate(sample)

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of samples of each run of frames that has any, ``(S,)`` int64, for samplers of sequences.

        Without ``cameras`` a run is a video, or its range in the list.
        """
        return self._windows.counts[self._windows.counts > 0]

    @property
    def samples_per_video(self) -> Int64Array:
        """Number of samples of each video as listed, or of each drive: ``(V,)`` int64; 0 where it is too short."""
        numbers = self._tracks.numbers
        return np.bincount(numbers, self._windows.counts, self._tracks.num_videos).astype(np.int64)

    def __repr__(self) -> str:
        return (
            f"VideoDataProvider({self._windows.num_windows} sequences of {self._windows.sequence_length} frames, "
            f"{self._tracks.describe(self._videos)})"
        )
