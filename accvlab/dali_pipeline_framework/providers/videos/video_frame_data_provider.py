# SPDX-License-Identifier: Apache-2.0
"""A data set of videos: a frame is one sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import whole_number
from ...sample_data import Name
from ...unknown_arguments import explains_unknown_arguments
from .frame_reader import KeptFrames
from .video_index import Int64Array
from .video_list import VIDEO_FILTERS, ListFormat, ListRounding, VideoPath
from .video_provider_base import VideoProviderBase
from .video_samples import VideoFields, VideoSamples
from .video_sources import VideoSources
from .video_tracks import MissingPolicy


class VideoFrameDataProvider(VideoProviderBase):
    """Sample ``i`` is frame ``i`` of a list of videos, or all cameras of a rig at a point in time.

    The frames of all videos lie one after the other, and `sequence_lengths` is what samplers and `Clips` need, so
    every sampler of sequences and clips works with videos. `ClipDataProvider` makes clips of it; for sequences
    as DALI's reader has them, and fewer fields, there is `VideoDataProvider`.

    Fields of a sample, those in brackets only where they are asked for::

        one camera                            cameras={"front": [...], "left": [...]}
          image: UINT8       (H, W, C)          front
          [label: INT32      (1,)]                image: UINT8   (H, W, C)
          [frame number: INT32  ()]               [frame number, time, path]
          [time: FLOAT64     ()]                left: as front
          [path: STRING]                        [label, video number]
          [video number: INT32  ()]

    Videos, cameras, decoding and streaming are as in `VideoDataProvider`.

    Example::

        provider = VideoFrameDataProvider(["drives/0001.mp4", "drives/0002.mp4"])
        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        data_input = SamplerInputCallable(provider, sampler)
    """

    @explains_unknown_arguments()
    def __init__(
        self,
        filenames: VideoPath | Iterable[VideoPath] | None = None,
        *,
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
        image_name: Name = "image",
        label_name: Name = "label",
        frame_number_name: Name | None = None,
        time_name: Name | None = None,
        path_name: Name | None = None,
        video_number_name: Name | None = None,
        num_kept_frames: SupportsIndex = 0,
        num_decoder_threads: SupportsIndex = 1,
        num_batch_threads: SupportsIndex = 1,
        max_open_decoders: SupportsIndex = 16,
        index_cache: VideoPath | None = None,
    ) -> None:
        """Index the videos.

        Args:
            filenames: See `VideoDataProvider`, as for all that are not named here.
            file_root: See there.
            file_list: See there.
            labels: See there.
            file_filters: See there.
            file_list_format: See there.
            file_list_rounding: See there.
            file_list_include_end: See there.
            cameras: See there.
            reference_camera: See there.
            tolerance_s: See there.
            time_offsets_s: See there.
            missing: See there.
            stream: See there.
            image_type: See there.
            image_name: Name of the field of the frame.
            label_name: Name of the field of the label.
            frame_number_name: Name of a field for the number of the frame in its video; None for none.
            time_name: Name of a field for the time of the frame in seconds; None for none.
            path_name: Name of a field for the path of the video; None for none.
            video_number_name: Name of a field for the number of the video as listed, or of the drive.
            num_kept_frames: Decoded frames that each decoder keeps, for clips that overlap: at least the frames
                that a clip shares with the next.
            num_decoder_threads: See there.
            num_batch_threads: See there.
            max_open_decoders: See there.
            index_cache: See there.

        Raises:
            SettingError: As in `VideoDataProvider`.
            FileError: As there.
            VideoError: As there.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        fields = VideoFields(
            image_name,
            label_name,
            frame_number_name,
            time_name,
            path_name,
            video_number_name,
            holds_one_frame=True,
        )
        num_threads = whole_number(num_batch_threads, "num_batch_threads", at_least=1)
        num_kept = whole_number(num_kept_frames, "num_kept_frames", at_least=0)
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
        videos, tracks = sources.find(
            image_type=image_type,
            num_decoder_threads=num_decoder_threads,
            max_open_decoders=max_open_decoders,
            index_cache=index_cache,
            # At least the last frame: padded slots repeat it.
            kept=KeptFrames(max(num_kept, 1), passed=num_kept > 0, pixels=num_kept > 0),
        )
        super().__init__(VideoSamples(videos, tracks, fields, np.zeros(1, np.uint8)), num_threads)
        self._edges = np.concatenate(([0], np.cumsum(self.sequence_lengths)))  # (S + 1,)

    def get_number_of_samples(self) -> int:
        """Get the number of frames, or points in time, of all videos."""
        return int(self._edges[-1])

    def _locate(self, sample: int) -> tuple[int, Int64Array]:
        track = int(self._edges.searchsorted(sample, side="right")) - 1
        position = int(self._tracks.starts[track]) + sample - int(self._edges[track])
        return track, np.array([position])

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64: of each video as listed, or its range.

        With ``cameras``, of each run of points in time without a missing frame.
        """
        return self._tracks.ends - self._tracks.starts

    @property
    def times_s(self) -> npt.NDArray[np.float64]:
        """Time of each sample in seconds, ``(N,)`` float64, increasing in each sequence: for `Clips` by time.

        With ``cameras``, of the reference camera.
        """
        return self._tracks.all_times_s(self._videos)

    def __repr__(self) -> str:
        return f"VideoFrameDataProvider({self._edges[-1]} frames, {self._tracks.describe(self._videos)})"
