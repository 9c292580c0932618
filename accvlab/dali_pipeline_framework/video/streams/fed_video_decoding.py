# SPDX-License-Identifier: Apache-2.0
"""Videos that are fed, and their decoding into batches of consecutive sequences, by DALI's operator or by PyAV."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ...engine.dali.texts import NOTHING_FED, dali_cause
from ...errors import FieldValueError, FileError, VideoError, error_that_is_also
from ..files.video_file import is_file_or_missing, missing_bytes, path_advice
from ..video_decoding import FrameConverter, UInt8Array, VideoDecoder
from ..video_index import make_index

EncodedVideo: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | UInt8Array"
LastSequencePolicy: TypeAlias = Literal["partial", "pad"]


@attrs.frozen(eq=False)
class FedVideo:
    """An encoded video.

    Attributes:
        number: How many were fed before it.
        source: Path of a file, or its bytes.
        label: What messages call it, e.g. ``"'monday.mp4' (video 3)"``.
    """

    number: int
    source: str | bytes
    label: str

    def encoded(self) -> UInt8Array:
        """Get the encoded bytes, ``(N,)`` uint8; a file is read.

        Raises:
            FileError: The file cannot be read.
        """
        if isinstance(self.source, bytes):
            return np.frombuffer(self.source, np.uint8)
        try:
            return np.fromfile(self.source, np.uint8)
        except OSError as error:
            raise _file_error(error, self.label) from error


def checked_source(video: EncodedVideo) -> str | bytes:
    """Return the absolute path of a video's file, which was opened once, or its encoded bytes.

    Raises:
        FileError: The file cannot be read.
        VideoError: It is empty.
        FieldValueError: It is of another type.
    """
    if isinstance(video, (str, os.PathLike)):
        return _checked_path(video)
    if isinstance(video, np.ndarray) and (video.dtype != np.uint8 or video.ndim != 1):
        raise FieldValueError(
            f"An array with an encoded video must be of type uint8 and have one dimension, got {video.dtype} with "
            f"the shape {video.shape}."
        )
    if not isinstance(video, (bytes, bytearray, memoryview, np.ndarray)):
        raise FieldValueError(
            f"A video must be fed as the path of its file, as bytes, or as an array of uint8 with the encoded "
            f"bytes, got {type(video).__name__}."
        )
    encoded = bytes(video)  # a copy, unless it is of that type: the caller may go on to use the buffer
    if not encoded:
        raise VideoError("An encoded video must have at least one byte, got none.")
    return encoded


def _checked_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise FieldValueError(f"The path of a video must be text, got {path!r}.")
    try:
        if not is_file_or_missing(text):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(text, "rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        advice = path_advice(text) + (" Its encoded bytes can be fed, too." if "://" in text else "")
        raise _file_error(error, repr(text), advice) from error
    except ValueError as error:  # a zero within
        raise FileError(f"Cannot read the video {text!r}: {error}.") from error
    if is_empty:
        raise VideoError(f"The video {text!r} is empty.")
    return os.path.abspath(text)


def _file_error(error: OSError, label: str, advice: str = "") -> Exception:
    message = f"Cannot read the video {label}: {error.strerror}.{advice}"
    return error_that_is_also(FileError, [type(error)], message)


def require_video(video: FedVideo, stream: int) -> None:
    """Raise a `VideoError` if a file is no video or incomplete, as far as can be told without decoding."""
    VideoDecoder(video.source, stream=stream, name=video.label).close()
    if missing_bytes(video.source):  # frames, or only an index behind them
        make_index(video.source, stream, video.label)


@attrs.frozen
class SequenceSettings:
    """Settings for cutting a video into sequences, see `VideoStreamInput`."""

    sequence_length: int
    last_sequence_policy: LastSequencePolicy
    image_type: types.DALIImageType
    stream: int
    num_threads: int


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
        is_stopped: Whether to stop early; may be set by another thread.
    """

    settings: SequenceSettings
    batch_size: int
    device_id: int | None
    is_stopped: bool = False

    def batches(self, video: FedVideo) -> Iterator[SequenceBatch]:
        """Decode a video.

        Yields:
            The batches, at least one.

        Raises:
            FileError: The file cannot be read.
            VideoError: It is not a video, is damaged, incomplete, or has no frames.
        """
        require_video(video, self.settings.stream)
        num_frames = 0
        for batch in self._decoded(video):
            num_frames += sum(batch.lengths)
            yield batch
        if not self.is_stopped:
            self._require_all_decoded(video, num_frames)

    def _decoded(self, video: FedVideo) -> Iterator[SequenceBatch]:
        if self.device_id is not None:
            batches = self.by_dali(video)
            try:
                first = next(batches)
            except VideoError:
                pass  # PyAV knows more codecs than a GPU
            else:
                yield first
                yield from batches
                return
        yield from self._by_pyav(video)

    def _require_all_decoded(self, video: FedVideo, num_decoded: int) -> None:
        # An edit list can hide frames that the container counts; the index has only those that are shown.
        index = make_index(video.source, self.settings.stream, video.label, num_decoded)
        if num_decoded < index.num_frames:
            raise VideoError(
                f"The video {video.label} is damaged: {num_decoded} of its {index.num_frames} frames can be "
                f"decoded."
            )
        index.warn_of_doubts(video.label)

    # --- DALI -----------------------------------------------------------------------------------------

    def by_dali(self, video: FedVideo) -> Iterator[SequenceBatch]:
        """Decode a video with DALI's operator."""
        # The operator does not tell the end of a video, and running it past the last one is an error that ends its
        # pipeline. So each video has a pipeline of its own, and that error means its end.
        encoded = video.encoded()
        pipeline = self._operator_pipeline()
        num_frames = 0
        cast(Any, pipeline).feed_input("video", encoded[None])
        while True:
            try:
                frames, per_sequence = pipeline.run()
            except RuntimeError as error:
                if num_frames and NOTHING_FED in str(error):
                    return
                raise VideoError(
                    f"DALI cannot decode the video {video.label} after {num_frames} frames: "
                    f"{dali_cause(error).rstrip('.')}. Is it a video, and complete?"
                ) from error
            lengths = [int(length) for length in np.asarray(per_sequence.as_tensor())]
            yield SequenceBatch(video, num_frames, frames, lengths)
            num_frames += sum(lengths)
            if len(lengths) < self.batch_size or lengths[-1] < self.settings.sequence_length:
                return

    def _operator_pipeline(self) -> Pipeline:
        length = self.settings.sequence_length
        pipeline = Pipeline(self.batch_size, num_threads=1, device_id=self.device_id, prefetch_queue_depth=1)
        with pipeline:
            frames = fn.experimental.inputs.video(
                name="video",
                device="cpu" if self.device_id is None else "mixed",
                sequence_length=length,
                no_copy=True,  # the encoded bytes live as long as the pipeline
            )
            lengths = frames.shape(device="cpu")[0]
            if self.settings.last_sequence_policy == "pad":
                frames = fn.pad(frames, axes=(0,), shape=(length,))
            pipeline.set_outputs(frames, lengths)
        pipeline.build()
        return pipeline

    # --- PyAV -----------------------------------------------------------------------------------------

    def _by_pyav(self, video: FedVideo) -> Iterator[SequenceBatch]:
        settings, length = self.settings, self.settings.sequence_length
        converter = FrameConverter(settings.image_type)
        num_frames = 0
        with VideoDecoder(
            video.source, stream=settings.stream, num_threads=settings.num_threads, name=video.label
        ) as decoder:
            while not self.is_stopped:
                frames = self._next_frames(decoder, converter, self.batch_size * length)
                if not len(frames):
                    break
                num_full, rest = divmod(len(frames), length)
                lengths = [length] * num_full + [rest] * bool(rest)
                yield SequenceBatch(video, num_frames, _in_sequences(frames, lengths, settings), lengths)
                num_frames += len(frames)
        if not num_frames and not self.is_stopped:
            raise VideoError(f"There are no frames in the video {video.label}.")

    def _next_frames(self, decoder: VideoDecoder, converter: FrameConverter, most: int) -> UInt8Array:
        """Decode up to ``most`` frames: ``(n, H, W, C)`` uint8."""
        frames = np.empty((0, 0, 0, 0), np.uint8)
        num_frames = 0
        while num_frames < most and not self.is_stopped and (frame := decoder.next_frame()) is not None:
            if frame.is_corrupt:
                raise VideoError(f"The frame {decoder.num_decoded - 1} of the video {decoder.name} is damaged.")
            if not num_frames:
                frames = np.empty((most, frame.height, frame.width, converter.num_channels), np.uint8)
            converter.convert(frame, frames[num_frames])
            num_frames += 1
        return frames[:num_frames]


def _in_sequences(frames: UInt8Array, lengths: list[int], settings: SequenceSettings) -> Any:
    # frames: (n, H, W, C), of a buffer that has room for whole sequences
    length, num_missing = settings.sequence_length, settings.sequence_length - lengths[-1]
    image = frames.shape[1:]
    if not num_missing:
        return frames.reshape(-1, length, *image)
    if settings.last_sequence_policy == "pad":
        buffer = cast(UInt8Array, frames.base)
        buffer[len(frames) : len(frames) + num_missing] = 0
        return buffer[: len(frames) + num_missing].reshape(-1, length, *image)
    if len(lengths) == 1:
        return frames[None]
    return [*frames[: -lengths[-1]].reshape(-1, length, *image), frames[-lengths[-1] :]]
