# SPDX-License-Identifier: Apache-2.0
"""An input that is fed with encoded videos while the loop runs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ...checks import choice, flag, whole_number
from ...errors import SettingError, SourcePicklingError
from ...sample_data import SampleDataGroup
from ...sample_data.formats import DECODED_CLIP
from ...sample_data.names import Name
from ...sampling.arithmetic.last_batch import LastBatch
from ...sampling.random_access_sampler import Description
from ...sources.input_parts import NativeInput
from ...unknown_arguments import explains_unknown_arguments
from ..video_decoding import FrameConverter, import_av
from .fed_video_decoding import DecoderChoice, LastSequencePolicy, SequenceSettings, require_video
from .video_feed import EncodedVideo, VideoFeed
from .video_stream_run import BatchHandover, DecodedBatches, VideoStreamRun


class VideoStreamInput(NativeInput):
    """An input that is fed with encoded videos, and delivers them as batches of consecutive sequences of frames.

    What ``fn.experimental.inputs.video`` is for a pipeline of DALI: a sample is a sequence of ``sequence_length``
    frames, a batch holds the next sequences of one video. The last batch of a video can be smaller, and its last
    sequence shorter (or padded). Then the next video begins, with a new batch. 67 frames, 5 per sequence and 3
    sequences per batch are batches of 3, 3, 3, 3 and 2 sequences, the last one with 2 frames::

        stream = VideoStreamInput(sequence_length=5, last_sequence_policy="pad")
        with DataLoader(PipelineDefinition(stream), batch_size=3) as loader:
            stream.feed("monday.mp4")             # or bytes; any number of times, also while the loop runs
            stream.close()                       # no more videos follow: the loop ends after the last one
            for batch in loader:
                batch["frames"]                  # (n, F, H, W, C) uint8, n <= 3

    A thread decodes ahead; there are no worker processes, whatever ``num_workers`` says. A stream has no epochs: a
    loop that is left goes on with the next one where it stood, and after the end there is nothing more. It has no
    state to save. Each rank has a stream of its own.
    """

    operator_name = "external_source"
    has_epochs = False
    delivers_partial_batches = True
    shard = (0, 1)
    is_joinable = False
    ragged_advice = (
        "The last sequence of a video can be shorter than the others: pass ragged='list' to the loader, or "
        "last_sequence_policy='pad' to VideoStreamInput."
    )
    place_advice = "Its arguments `video_name` and `first_frame_name` add fields that tell video and frame."

    @explains_unknown_arguments()
    def __init__(
        self,
        sequence_length: int,
        *,
        frames_name: Name = "frames",
        video_name: Name | None = None,
        first_frame_name: Name | None = None,
        num_frames_name: Name | None = None,
        last_sequence_policy: LastSequencePolicy = "partial",
        blocking: bool = True,
        decoder: DecoderChoice = "auto",
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        stream: int = 0,
        num_threads: int = 1,
        num_batches_ahead: int = 2,
        affine: bool = True,
        bytes_per_sample_hint: int = 0,
    ) -> None:
        """Create the input; nothing is fed.

        Args:
            sequence_length: Number of frames of a sequence, at least 1.
            frames_name: Name of the field with the frames, ``(F, H, W, C)`` uint8, layout ``FHWC``.
            video_name: Name for a field with the number of the video, ``()`` int32: how many were fed before it.
                None to leave it out.
            first_frame_name: Name for a field with the number of the sequence's first frame within its video,
                ``()`` int32. None to leave it out.
            num_frames_name: Name for a field with the number of frames of the sequence, without those that only
                pad it, ``()`` int32. None to leave it out.
            last_sequence_policy: The last sequence of a video that has not ``sequence_length`` frames is shorter
                (``"partial"``, which needs ``ragged="list"`` of the loader, unless batches hold one sequence), or
                is filled with black frames (``"pad"``).
            blocking: What happens where a batch is asked for and all that was fed is used up: wait for `feed` or
                `close`, or with False a `NothingFedError`, after which the loop can be begun again.
            decoder: ``"dali"``: DALI's operator, which on the CPU decodes VP8, VP9 and MJPEG. ``"pyav"``: PyAV,
                on the CPU. ``"auto"``: for each video the operator where it can decode it, else PyAV.
            image_type: ``RGB``; with PyAV also ``BGR`` and ``GRAY``.
            stream: Number of the video stream in files with several of them; others than 0 only with PyAV.
            num_threads: Threads that decode a video with PyAV.
            num_batches_ahead: Batches that are decoded ahead of those in the pipeline, at least 1.
            affine: Of DALI's operator: whether its threads on a GPU are bound to cores.
            bytes_per_sample_hint: Of DALI's operator: expected size of a sequence in bytes, where memory for the
                GPU is to be taken in advance.

        Raises:
            SettingError: An argument breaks a rule, or PyAV is asked for and not installed.
        """
        self._settings = SequenceSettings(
            sequence_length=whole_number(sequence_length, "sequence_length", at_least=1),
            last_sequence_policy=choice(
                last_sequence_policy, "last_sequence_policy", get_args(LastSequencePolicy)
            ),
            decoder=choice(decoder, "decoder", get_args(DecoderChoice)),
            image_type=image_type,
            stream=whole_number(stream, "stream", at_least=0),
            num_threads=whole_number(num_threads, "num_threads", at_least=1),
            affine=flag(affine, "affine"),
            bytes_per_sample_hint=whole_number(bytes_per_sample_hint, "bytes_per_sample_hint", at_least=0),
        )
        FrameConverter(image_type)  # complains about other types
        if decoder == "dali" and self._settings.is_only_for_pyav:
            raise SettingError(
                f"DALI's operator decodes the first video stream as RGB, got image_type={image_type} and "
                f"stream={stream}. Use decoder='auto' or 'pyav'."
            )
        if decoder == "pyav" or self._settings.is_only_for_pyav:
            import_av()
        self._blocking = flag(blocking, "blocking")
        self._num_ahead = whole_number(num_batches_ahead, "num_batches_ahead", at_least=1)
        self._frames_name = frames_name
        columns = {"video": video_name, "first_frame": first_frame_name, "num_frames": num_frames_name}
        self._columns = {column: name for column, name in columns.items() if name is not None}
        _ = self.used_sample_data_structure  # complains about names
        self._feed = VideoFeed()
        self._handovers: weakref.WeakKeyDictionary[Any, BatchHandover] = weakref.WeakKeyDictionary()

    # --- feeding ----------------------------------------------------------------------------------

    def feed(self, video: EncodedVideo, *, name: str | None = None) -> int:
        """Put a video into the queue; from any thread, before and while the loop runs.

        Args:
            video: Path of a file, which is opened when its turn comes, or the encoded bytes: ``bytes``, which are
                not copied, or another buffer or ``(N,)`` uint8 array, which is.
            name: What messages call the video; None for its path.

        Returns:
            Number of the video, which is how many were fed before it.

        Raises:
            ClosedError: The stream was closed.
            FileError: The file cannot be read.
            VideoError: It is empty; or, as far as PyAV is installed, not a video, or incomplete.
            FieldValueError: It is of another type.
        """
        return self._feed.put(video, name, functools.partial(require_video, stream=self._settings.stream))

    def close(self) -> None:
        """Say that no more videos follow: the loop ends after the last one. May be called again."""
        self._feed.close()

    @property
    def is_closed(self) -> bool:
        """Whether no more videos follow."""
        return self._feed.is_closed

    @property
    def num_fed(self) -> int:
        """Number of videos that were fed."""
        return self._feed.num_fed

    @property
    def num_waiting(self) -> int:
        """Number of videos of which nothing was decoded yet."""
        return self._feed.num_waiting

    # --- in the pipeline --------------------------------------------------------------------------

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        blueprint = SampleDataGroup()
        blueprint.add_data_field(self._frames_name, types.DALIDataType.UINT8, content=DECODED_CLIP)
        for name in self._columns.values():
            blueprint.add_data_field(name, types.DALIDataType.INT32)
        return blueprint

    def define(self, name: str, seed: int) -> Sequence[DataNode]:
        """Define the operators that get the decoded frames. See `NativeInput.define`."""
        pipeline = Pipeline.current()
        is_on_gpu = self._is_on_gpu(pipeline.device_id)
        handover = self._handovers.setdefault(pipeline, BatchHandover())
        frames = fn.external_source(
            source=handover.take_frames,
            batch=True,
            name=name,
            device="gpu" if is_on_gpu else "cpu",
            dtype=types.DALIDataType.UINT8,
            ndim=4,
            layout="FHWC",
        )
        if not self._columns:
            return [frames]
        places = fn.external_source(
            source=lambda: handover.places,
            batch=True,
            num_outputs=len(self._columns),
            dtype=types.DALIDataType.INT32,
            ndim=0,
        )
        return [frames, *places]

    def _is_on_gpu(self, device_id: int | None) -> bool:
        return device_id is not None and self._settings.decoder != "pyav" and not self._settings.is_only_for_pyav

    def begin(self, name: str, pipeline: Any) -> VideoStreamRun:
        """Begin to decode for a pipeline that was built. See `NativeInput.begin`."""
        return VideoStreamRun(
            DecodedBatches(self._feed, self._num_ahead),
            self._settings,
            list(self._columns),
            self._handovers[pipeline],
            self._blocking,
            pipeline.max_batch_size,
            pipeline.device_id if self._is_on_gpu(pipeline.device_id) else None,
        )

    # --- settings of a loader ---------------------------------------------------------------------

    def with_settings(
        self, *, shard: tuple[int, int] | None = None, last_batch: LastBatch | None = None
    ) -> VideoStreamInput:
        """Check settings of a loader.

        Raises:
            SettingError: A stream cannot have them.
        """
        if shard is not None and shard[1] > 1:
            raise SettingError(
                f"A stream of videos is not dealt to shards, got shard {shard[0]} of {shard[1]}: feed each rank "
                f"the videos that are its own, and leave `shard` out."
            )
        if last_batch not in (None, "partial"):
            raise SettingError(
                f"The last batch of a video is as large as the video makes it (last_batch='partial'), got "
                f"last_batch={last_batch!r}."
            )
        return self

    def describe(self) -> Description:
        """What the order depends on, by name."""
        return {"input": type(self).__name__, "sequence_length": self._settings.sequence_length}

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise SourcePicklingError(
            "A VideoStreamInput cannot be pickled or copied: what is fed to it in one process is not seen in "
            "another. Create it in the process of the loop."
        )

    def __repr__(self) -> str:
        """Return the settings that tell it from others."""
        return (
            f"{type(self).__name__}(sequence_length={self._settings.sequence_length}, "
            f"last_sequence_policy={self._settings.last_sequence_policy!r}, decoder={self._settings.decoder!r})"
        )
