# SPDX-License-Identifier: Apache-2.0
"""A data set of videos: a frame is one sample."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from ..checks import whole_number
from ..sample_data.names import Name
from ..unknown_arguments import explains_unknown_arguments, in_settings
from .frame_reader import KeptFrames
from .video_provider_base import VideoProviderBase
from .video_windows import VideoWindows
from .videos import VideoPaths, Videos, as_videos


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
