# SPDX-License-Identifier: Apache-2.0
"""An input that is fed with encoded videos while the loop runs, and the thread that decodes them."""

from __future__ import annotations

import atexit
import collections
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from attrs.filters import exclude
from attrs.validators import optional
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from .. import errors
from ..checks import flag, one_of, valid, whole_number
from ..engine.dali.left_pipelines import leave_pipeline
from ..engine.dali.texts import dali_cause, device_error, is_about_device, is_about_lost_gpu
from ..errors import DeviceError, FieldValueError, FileError, SettingError, VideoError
from ..forks import left_to_parent
from ..operators.encoded_videos import rgb_of_bt601, why_not_in_graph
from ..providers.files.storage import open_regular_file
from ..sample_data import SampleDataGroup
from ..sample_data.formats import DECODED_CLIP
from ..sample_data.names import Name
from ..sources.native_input import OPERATOR, NativeInput, NativeRun
from ..unknown_arguments import explains_unknown_arguments
from .files.stored_videos import path_advice
from .frame_converter import Colors, FrameConverter
from .frame_reader import FrameReader
from .video_decoding import UInt8Array, import_av
from .video_index import VideoIndex, advice_for, make_index

EncodedVideo: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | UInt8Array"
LastSequencePolicy: TypeAlias = Literal["partial", "pad"]

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class FedVideo:
    """An encoded video.

    Attributes:
        number: How many were fed before it.
        source: Path of a file, or its bytes.
        label: What messages call it, e.g. ``"'monday.mp4' (video 3)"``.
        index: Its frames.
    """

    number: int
    source: str | bytes
    label: str
    index: VideoIndex


def checked_source(video: EncodedVideo) -> str | bytes:
    """Return the absolute path of a video's file, which was opened once, or its encoded bytes.

    Raises:
        FileError: The file cannot be read.
        VideoError: It is empty.
        FieldValueError: It is of another type.
    """
    if isinstance(video, (str, os.PathLike)):
        path = os.fspath(video)
        try:
            open_regular_file(path).close()
        except (OSError, ValueError) as error:  # ValueError: a zero in the path
            message = f"Cannot read the video {path!r}: {errors.reason_of(error)}.{path_advice(path)}"
            raise errors.error_that_is_also(FileError, [error], message) from error
        return os.path.abspath(path)
    is_bytes = isinstance(video, np.ndarray) and (video.dtype.name, video.ndim) == ("uint8", 1)
    if is_bytes or isinstance(video, bytes | bytearray | memoryview):
        return bytes(video)  # a copy, unless it is of that type: the caller may go on to use the buffer
    got = f"{video.dtype} with the shape {video.shape}" if isinstance(video, np.ndarray) else type(video).__name__
    raise FieldValueError(f"A video must be fed as a path, as bytes, or as (N,) uint8 with the bytes, got {got}.")


@attrs.frozen
class SequenceSettings:
    """Settings for cutting a video into sequences, see `VideoStreamInput`."""

    last_sequence_policy: LastSequencePolicy = attrs.field(validator=one_of(LastSequencePolicy))
    image_type: types.DALIImageType
    sequence_length: int = attrs.field(validator=valid(whole_number, at_least=1))
    stream: int | None = attrs.field(validator=optional(valid(whole_number, at_least=0)))
    num_threads: int = attrs.field(validator=valid(whole_number, at_least=1))
    colors: Colors = attrs.field(default="stream", validator=one_of(Colors))
    upright: bool | None = attrs.field(default=None, validator=optional(valid(flag)))


@attrs.frozen(eq=False)
class SequenceBatch:
    """Some consecutive sequences of a video.

    Attributes:
        video: The video.
        first_frame: Number of the first frame of the first sequence within the video.
        frames: ``(n, F, H, W, C)`` uint8, or a list of ``(F_i, H, W, C)`` where the last sequence is shorter; in
            an array, or in a tensor list of DALI, also on a GPU.
        lengths: Number of frames of each sequence, without those that pad it.
    """

    video: FedVideo
    first_frame: int
    frames: Any
    lengths: list[int]


@attrs.define(eq=False)
class SequenceDecoder:
    """Decodes whole videos into batches.

    Attributes:
        settings: How.
        batch_size: Number of sequences per batch; the last one can have less.
        device_id: Number of the GPU to decode on; None for the CPU.
    """

    settings: SequenceSettings
    batch_size: int
    device_id: int | None

    def batches(self, video: FedVideo) -> Iterator[SequenceBatch]:
        """Decode a video.

        Yields:
            The batches, at least one.

        Raises:
            FileError: The file cannot be read.
            VideoError: It was changed, or a frame cannot be decoded.
            DeviceError: The GPU has failed.
        """
        if self.device_id is not None:
            why, log = self._why_not_on_gpu(video.index), _logger.info
            if not why:
                batches = self.by_dali(video)
                try:
                    first = next(batches)
                except (VideoError, DeviceError) as error:  # e.g. a part of a GPU that has no decoder for videos
                    if is_about_lost_gpu(error):
                        raise
                    why, log = str(error), _logger.warning
                else:
                    yield first
                    yield from batches
                    return
            log("The video %s is decoded on the CPU: %s", video.label, why)
        yield from self._by_pyav(video)

    def _why_not_on_gpu(self, index: VideoIndex) -> str:
        if index.other_streams:
            return "it has several video streams"
        kind, keeps_colors = index.kind_by(self.settings.colors), self.settings.colors != "dali"
        return why_not_in_graph([kind], has_gpu=True, must_use_gpu=False, keeps_colors=keeps_colors)

    def by_dali(self, video: FedVideo) -> Iterator[SequenceBatch]:
        """Decode a video with DALI's operator."""
        # The operator does not tell the end of a video, and running it past the last one is an error that ends its
        # pipeline. So each video has a pipeline of its own, and that error means its end.
        source = video.source
        encoded = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else np.fromfile(source, np.uint8)
        num_frames, pipeline = 0, None
        try:
            pipeline = self._operator_pipeline(video.index)
            cast(Any, pipeline).feed_input("video", encoded[None])
            while num_frames < video.index.num_frames:
                frames, per_sequence = pipeline.run()
                lengths = [int(length) for length in np.asarray(per_sequence.as_tensor())]
                yield SequenceBatch(video, num_frames, frames, lengths)
                num_frames += sum(lengths)
        except RuntimeError as error:
            if pipeline is not None and is_about_lost_gpu(error):
                leave_pipeline(pipeline)
            if is_about_device(error):
                raise device_error(f"Decoding the video {video.label}", error) from error
            raise VideoError(
                f"DALI cannot decode the video {video.label} after {num_frames} of its "
                f"{video.index.num_frames} frames: {dali_cause(error).rstrip('.')}. Is it complete?"
            ) from error

    def _operator_pipeline(self, index: VideoIndex) -> Pipeline:
        length, colors = self.settings.sequence_length, self.settings.colors
        pipeline = Pipeline(self.batch_size, num_threads=1, device_id=self.device_id, prefetch_queue_depth=1)
        with pipeline:
            frames = fn.experimental.inputs.video(
                name="video",
                device="cpu" if self.device_id is None else "mixed",
                sequence_length=length,
                no_copy=True,  # the encoded bytes live as long as the pipeline
            )
            matrix = [] if colors == "dali" else rgb_of_bt601([index.kind_by(colors)])
            if matrix:  # DALI converts all by BT.601
                frames = fn.coord_transform(frames, M=matrix, dtype=types.DALIDataType.UINT8)
            lengths = frames.shape(device="cpu")[0]
            if self.settings.last_sequence_policy == "pad":
                frames = fn.pad(frames, axes=(0,), shape=(length,))
            pipeline.set_outputs(frames, lengths)
        left_to_parent(pipeline, leave_pipeline)
        pipeline.build()
        return pipeline

    def _by_pyav(self, video: FedVideo) -> Iterator[SequenceBatch]:
        settings, length = self.settings, self.settings.sequence_length
        of_reader = attrs.asdict(settings, filter=exclude("last_sequence_policy", "sequence_length"))
        opened = FrameReader(video.source, video.index, name=video.label, **of_reader)
        with contextlib.closing(opened) as reader:
            for first in range(0, video.index.num_frames, self.batch_size * length):
                end = min(first + self.batch_size * length, video.index.num_frames)
                frames = _in_sequences(reader.frames(np.arange(first, end)), settings)
                lengths = [min(length, end - start) for start in range(first, end, length)]
                yield SequenceBatch(video, first, frames, lengths)


def _in_sequences(frames: UInt8Array, settings: SequenceSettings) -> Any:
    # frames: (n, H, W, C)
    length, image = settings.sequence_length, frames.shape[1:]
    rest = len(frames) % length
    if rest and settings.last_sequence_policy == "pad":
        frames, rest = np.concatenate([frames, np.zeros((length - rest, *image), np.uint8)]), 0
    full = frames[: len(frames) - rest].reshape(-1, length, *image)
    return [*full, frames[-rest:]] if rest else full


_MOST_SECONDS_TO_END = 10.0

_running: weakref.WeakSet[VideoStreamRun] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    # A thread that decodes while the interpreter ends can crash the process.
    for run in list(_running):
        run.close()


@attrs.define(eq=False)
class _Feed:
    """Videos that wait to be decoded, in the order in which they were fed.

    Attributes:
        changed: Guards the queue, and what its reader keeps with it; notified of any change.
        waiting: The queue.
        num_fed: Number of videos that were fed.
        is_closed: Whether no more videos follow those in the queue.
        is_read: Whether a pipeline reads the queue.
    """

    changed: threading.Condition = attrs.field(factory=threading.Condition)
    waiting: collections.deque[FedVideo] = attrs.field(factory=collections.deque)
    num_fed: int = 0
    is_closed: bool = False
    is_read: bool = False


@attrs.define(eq=False)
class _DecodedBatches:
    """The batches that a thread has decoded, up to a number of them; guarded by the condition of the feed.

    Attributes:
        feed: What it decodes.
        decoder: How.
        num_ahead: How many batches may wait.
        ready: Batches that wait.
        end: What is raised after the last batch, once all are decoded.
        is_decoding: Whether more batches of a video follow.
        is_stopped: Whether the pipeline was closed.
    """

    feed: _Feed
    decoder: SequenceDecoder
    num_ahead: int
    ready: collections.deque[SequenceBatch] = attrs.field(factory=collections.deque, init=False)
    end: BaseException | None = attrs.field(default=None, init=False)
    is_decoding: bool = attrs.field(default=False, init=False)
    is_stopped: bool = attrs.field(default=False, init=False)

    def decode_all(self) -> None:
        """Decode all videos, in a thread."""
        changed, end = self.feed.changed, None
        try:
            while (video := self._next_video()) is not None:
                for batch in self.decoder.batches(video):
                    with changed:
                        changed.wait_for(lambda: len(self.ready) < self.num_ahead or self.is_stopped)
                        self.ready.append(batch)
                        changed.notify_all()
                    if self.is_stopped:
                        return
        except BaseException as error:
            end = error
        with changed:
            self.end = end or StopIteration()
            changed.notify_all()

    def _next_video(self) -> FedVideo | None:
        """Wait for the next video; None when there are no more."""
        feed = self.feed
        with feed.changed:
            self.is_decoding = False
            feed.changed.notify_all()
            feed.changed.wait_for(lambda: self.is_stopped or feed.waiting or feed.is_closed)
            self.is_decoding = bool(feed.waiting) and not self.is_stopped
            return feed.waiting.popleft() if self.is_decoding else None

    def stop(self, pid: int) -> None:
        """End the thread, and whoever waits.

        Does not wait for the thread: called while garbage is collected, maybe by who holds the lock it waits for.
        """
        if os.getpid() != pid:  # a forked child does not have the thread, which may hold the lock there
            return
        with self.feed.changed:
            self.is_stopped = True
            self.feed.is_read = False
            self.feed.changed.notify_all()


class VideoStreamRun(NativeRun):
    """A stream in a pipeline; a `SettingError` where another pipeline reads it."""

    is_awaited = True

    def __init__(self, decoded: _DecodedBatches, handover: dict[str, Any], is_blocking: bool) -> None:
        """Begin to decode."""
        with decoded.feed.changed:
            if decoded.feed.is_read:
                advice = "Close the other pipeline first, or create a stream for each."
                raise SettingError(f"A stream of videos can be read by one pipeline at a time. {advice}")
            decoded.feed.is_read = True
        self._decoded, self._handover, self._is_blocking = decoded, handover, is_blocking
        self._labels: collections.deque[tuple[int, str]] = collections.deque(maxlen=32)  # of the last batches
        self._num_begun = 0
        self._thread = threading.Thread(target=decoded.decode_all, name="video stream", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, decoded.stop, os.getpid())
        _running.add(self)

    def is_ready(self) -> bool:
        """See `NativeRun.is_ready`."""
        return bool(self._decoded.ready) or self._decoded.end is not None or self._decoded.is_stopped

    def wait(self) -> None:
        """Wait for a batch, or raise a `NothingFedError`. See `NativeRun.wait`."""
        feed = self._decoded.feed
        with feed.changed:
            while not self.is_ready():
                is_used_up = not (self._decoded.is_decoding or feed.waiting or feed.is_closed)
                if is_used_up and not self._is_blocking:
                    raise errors.NothingFedError(
                        f"There is no video to decode: all {feed.num_fed} that were fed are used up. Feed "
                        f"another one with `feed`, or say with `close` that no more follow; with "
                        f"blocking=True the loop waits for it."
                    )
                feed.changed.wait()

    def begin_batch(self) -> None:
        """Hand over a batch that is ready. See `NativeRun.begin_batch`."""
        decoded = self._decoded
        with decoded.feed.changed:
            if decoded.is_stopped:
                raise errors.ClosedError("The pipeline was closed while it waited for a video.")
            batch = decoded.ready.popleft() if decoded.ready else None
            decoded.feed.changed.notify_all()
        if batch is None:
            raise cast(BaseException, decoded.end).with_traceback(None)
        first_frame, lengths = batch.first_frame, batch.lengths
        self._handover.update(
            frames=batch.frames,
            video=np.full(len(lengths), batch.video.number, np.int32),
            first_frame=np.cumsum([first_frame, *lengths[:-1]], dtype=np.int32),
            num_frames=np.array(lengths, np.int32),
        )
        last_frame = first_frame + sum(lengths) - 1
        text = f"The batch holds the frames {first_frame} to {last_frame} of the video {batch.video.label}."
        self._labels.append((self._num_begun, text))
        self._num_begun += 1

    def describe_batch(self, batch: int) -> str:
        """See `NativeRun.describe_batch`."""
        return dict(self._labels).get(batch, "")

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._end()
        if self._thread is not threading.current_thread():
            self._thread.join(_MOST_SECONDS_TO_END)


class VideoStreamInput(NativeInput):
    """An input that is fed with encoded videos, and delivers them as batches of consecutive sequences of frames.

    In place of ``fn.experimental.inputs.video`` of DALI: a sample is a sequence of ``sequence_length`` frames, a
    batch holds the next sequences of one video. The last batch of a video can be smaller, and its last sequence
    shorter (or padded). Then the next video begins, with a new batch. 67 frames, 5 per sequence and 3 sequences
    per batch, are batches of 3, 3, 3, 3 and 2 sequences; the last sequence has 2 frames, and is padded here::

        stream = VideoStreamInput(sequence_length=5, last_sequence_policy="pad")
        pipeline = PipelineDefinition(stream).get_dali_pipeline(batch_size=3)
        with DALIStructuredOutputIterator(pipeline=pipeline) as iterator:
            stream.feed("monday.mp4")             # or bytes; any number of times, also while the loop runs
            stream.close()                       # no more videos follow: the loop ends after the last one
            for batch in iterator:
                batch["frames"]                  # (n, F, H, W, C) uint8, n <= 3

    A thread decodes ahead; there are no worker processes. A stream has no epochs: the
    loop after a ``break`` continues where the last one stopped, and after the end there is nothing more. A stream
    has no state to save. Each rank has its own stream.
    """

    operator_name = "external_source"
    has_epochs = False
    delivers_partial_batches = True
    shard = (0, 1)
    ragged_advice = (
        "The last sequence of a video can be shorter than the others: pass ragged='list' to the iterator, or "
        "last_sequence_policy='pad' to VideoStreamInput."
    )

    @explains_unknown_arguments
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
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        colors: Colors = "stream",
        stream: int | None = None,
        upright: bool | None = None,
        num_threads: int = 1,
        num_batches_ahead: int = 2,
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
            last_sequence_policy: Handling of a last sequence of a video with fewer than ``sequence_length``
                frames: it is shorter (``"partial"``, which needs ``ragged="list"`` of the iterator, unless batches
                hold one sequence), or is filled with black frames (``"pad"``).
            blocking: Whether a request for a batch waits for `feed` or `close` when all fed videos are used up;
                with False, it raises a `NothingFedError`, after which the loop can be started again.
            image_type: ``RGB``, ``BGR`` or ``GRAY``. With ``BGR`` and ``GRAY``, videos are always decoded on the
                CPU.
            colors: How colors are converted, see `FrameConverter`; on a GPU, ``"dali"`` leaves DALI's pixels.
            stream: Number of the video stream; None for the one with the largest frames, see `index_video`.
                Streams other than 0, and files with several video streams without ``stream=0``, are decoded on the
                CPU.
            upright: Whether frames are turned by the angle that their video states, as players do; with True,
                videos are always decoded on the CPU. None: not turned, with a warning if a video states an angle.
            num_threads: Threads that decode a video on the CPU.
            num_batches_ahead: Batches that are decoded ahead of those in the pipeline, at least 1.

        Raises:
            SettingError: An argument breaks a rule, or PyAV is not installed.
            NameTypeError: A name is no text.
            DuplicateFieldError: Two fields have the same name.
        """
        self._settings = SequenceSettings(
            last_sequence_policy, image_type, sequence_length, stream, num_threads, colors, upright
        )
        FrameConverter(image_type)  # complains about other types
        import_av()
        self._blocking = flag(blocking, "blocking")
        self._num_ahead = whole_number(num_batches_ahead, "num_batches_ahead", at_least=1)
        self._frames_name = frames_name
        columns = {"video": video_name, "first_frame": first_frame_name, "num_frames": num_frames_name}
        self._columns = {column: name for column, name in columns.items() if name is not None}
        _ = self.used_sample_data_structure  # complains about names
        self._feed = _Feed()
        self._handovers: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()

    # --- feeding ----------------------------------------------------------------------------------

    def feed(self, video: EncodedVideo, *, name: str | None = None) -> int:
        """Put a video into the queue; from any thread, before and while the loop runs.

        Args:
            video: Path of a file, which is indexed now and opened again when its turn comes, or the encoded
                bytes: ``bytes``, or another buffer or an ``(N,)`` uint8 array, which is copied.
            name: Name of the video in messages; None for its path.

        Returns:
            Number of the video, which is how many were fed before it.

        Raises:
            ClosedError: The stream was closed.
            FileError: The file cannot be read.
            VideoError: It is empty, not a video, or incomplete.
            SettingError: It has no stream of this number.
            FieldValueError: It is of another type.
        """
        source = checked_source(video)
        called = f"<{len(source)} bytes>" if isinstance(source, bytes) else source
        called = repr(called if name is None else name)
        feed = self._feed
        index = make_index(source, self._settings.stream, called)
        index.warn_of_choices(called, advice_for(self._settings.upright))
        with feed.changed:
            if feed.is_closed:
                raise errors.ClosedError(
                    "The stream was closed, so no more videos can be fed. Create a new stream."
                )
            number = feed.num_fed
            feed.waiting.append(FedVideo(number, source, f"{called} (video {number})", index))
            feed.num_fed += 1
            feed.changed.notify_all()
        return number

    def close(self) -> None:
        """Say that no more videos follow: the loop ends after the last one. May be called again."""
        with self._feed.changed:
            self._feed.is_closed = True
            self._feed.changed.notify_all()

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
        return len(self._feed.waiting)

    # --- in the pipeline --------------------------------------------------------------------------

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        blueprint = SampleDataGroup()
        blueprint.add_data_field(self._frames_name, types.DALIDataType.UINT8, content=DECODED_CLIP)
        for name in self._columns.values():
            blueprint.add_data_field(name, types.DALIDataType.INT32)
        return blueprint

    def define(self, seed: int) -> Sequence[DataNode]:
        """Define the operators that get the decoded frames. See `NativeInput.define`."""
        pipeline = Pipeline.current()
        handover = self._handovers.setdefault(pipeline, {})  # the next batch
        frames = fn.external_source(
            source=lambda: handover.pop("frames"),  # not held longer than needed
            batch=True,
            name=OPERATOR,
            device="cpu" if self._device_of(pipeline) is None else "gpu",
            dtype=types.DALIDataType.UINT8,
            ndim=4,
            layout="FHWC",
        )
        columns = [*self._columns]
        if not columns:
            return [frames]
        places = fn.external_source(
            source=lambda: [handover[column] for column in columns],
            batch=True,
            num_outputs=len(columns),
            dtype=types.DALIDataType.INT32,
            ndim=0,
        )
        return [frames, *places]

    def _device_of(self, pipeline: Pipeline) -> int | None:
        """Get the number of the GPU that decodes for a pipeline; None for the CPU."""
        settings = self._settings
        # DALI's operator decodes the first video stream as RGB.
        is_usual = settings.image_type == types.DALIImageType.RGB and not settings.stream and not settings.upright
        return pipeline.device_id if is_usual else None

    def begin(self, pipeline: Any) -> VideoStreamRun:
        """Begin to decode for a pipeline that was built. See `NativeInput.begin`."""
        decoder = SequenceDecoder(self._settings, pipeline.max_batch_size, self._device_of(pipeline))
        decoded = _DecodedBatches(self._feed, decoder, self._num_ahead)
        return VideoStreamRun(decoded, self._handovers[pipeline], self._blocking)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        why = "what is fed to it in one process is not seen in another. Create it in the process of the loop."
        raise errors.SourcePicklingError(f"A VideoStreamInput cannot be pickled or copied: {why}")

    def __repr__(self) -> str:
        """Return the settings by which it differs from others."""
        length, policy = self._settings.sequence_length, self._settings.last_sequence_policy
        return f"{type(self).__name__}(sequence_length={length}, last_sequence_policy={policy!r})"
