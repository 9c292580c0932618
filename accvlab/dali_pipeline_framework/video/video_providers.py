# SPDX-License-Identifier: Apache-2.0
"""Providers of windows and single frames of videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ..checks import whole_number
from ..errors import SettingError
from ..sample_data.names import Name
from ..unknown_arguments import explains_unknown_arguments, in_settings
from .frame_reader import KeptFrames
from .video_decoding import FrameConverter, UInt8Array
from .video_provider_base import VideoProviderBase
from .video_windows import VideoTail, VideoWindows
from .videos import VideoPaths, Videos, as_videos

_COUNTERPARTS = {
    "pad_mode": "tail",
    "enable_frame_num": "first_frame_number_name",
    "enable_timestamps": "timestamps_name",
}


class VideoDataProvider(VideoProviderBase):
    """Sample ``n`` is sequence ``n`` of DALI's ``fn.experimental.readers.video``, of any codec, decoded here.

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
    index is made once, here. A worker decodes a sequence from the last key frame before it, or goes on in an open
    decoder that stands before it.

    **Streaming.** With `StreamingSequenceSampler` over `sequence_lengths`, each slot plays the sequences of its
    video in their order, each in its own decoder, and each frame is decoded once. That holds in one worker: with
    several, each batch is loaded by any of them, so that each has to decode what the others got.

    Example::

        provider = VideoDataProvider(Videos("train/*.mp4", index_cache="indices"), sequence_length=8, step=4)
        data_input = ShuffledShardedInputCallable(provider, batch_size=4, shuffle=True)
    """

    @explains_unknown_arguments({**in_settings(Videos), **_COUNTERPARTS})
    def __init__(
        self,
        videos: Videos | VideoPaths,
        *,
        sequence_length: SupportsIndex,
        stride: SupportsIndex = 1,
        step: SupportsIndex | None = None,
        uniform_sample: bool = False,
        tail: VideoTail = "drop",
        fill_value: SupportsIndex | Sequence[SupportsIndex] = 0,
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
            uniform_sample: One sequence per video, of frames that are spread over it; ``stride``, ``step`` and
                ``tail`` do not count then.
            tail: What happens at the end of a video: with ``"drop"`` only complete sequences count, those with
                ``sequence_length * stride`` frames from their start on. With ``"repeat"`` (of the last frame),
                ``"constant"``, ``"reflect_1001"`` or ``"reflect_101"`` the first one that is not complete counts
                too, filled up.
            fill_value: With ``"constant"``, the value of pixels, or one per channel, in [0, 255].
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
        windows = VideoWindows(sequence_length, stride, step, tail, uniform_sample)
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

    def __repr__(self) -> str:
        """Summarise what was found."""
        return self._repr(f"{self._first[-1]} sequences of {self._windows.sequence_length} frames")


def _checked_fill(value: Any, num_channels: int) -> UInt8Array:
    given = np.atleast_1d(np.asarray(value, object)).tolist()
    numbers = [whole_number(each, "fill_value", at_least=0, at_most=255) for each in given]
    if len(numbers) not in (1, num_channels):
        raise SettingError(
            f"`fill_value` must be one number in [0, 255], or one for each of {num_channels} channel(s), got "
            f"{value!r}."
        )
    return np.array(numbers, np.uint8)


class VideoFrameDataProvider(VideoProviderBase):
    """Sample ``i`` is frame ``i`` of a list of videos, or all cameras of a rig at a point in time.

    The frames of all videos lie one after the other, and `sequence_lengths` is what samplers and `Clips` need, so
    every sampler of sequences and clips works with videos. `ClipDataProvider` makes clips of it; for sequences
    as DALI's reader has them, and fewer fields, there is `VideoDataProvider`, which tells about access and
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

    @explains_unknown_arguments(in_settings(Videos))
    def __init__(
        self,
        videos: Videos | VideoPaths,
        *,
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
        )

    @property
    def timestamps_s(self) -> npt.NDArray[np.float64]:
        """Time of each sample in seconds, ``(N,)`` float64, increasing in each sequence: for `Clips` by time.

        With ``cameras``, of the reference camera.
        """
        return self._tracks.all_times_s(self._videos)

    def __repr__(self) -> str:
        """Summarise what was found."""
        return self._repr(f"{self._first[-1]} frames")
