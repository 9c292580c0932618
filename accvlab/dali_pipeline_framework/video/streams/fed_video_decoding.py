# SPDX-License-Identifier: Apache-2.0
"""Decoding of a whole video into batches of consecutive sequences, by DALI's operator or by PyAV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ...engine.dali.texts import NOTHING_FED, dali_cause
from ...errors import SettingError, VideoError
from ...sources.input_parts import CODECS_ON_CPU
from ..files.video_file import missing_bytes
from ..video_decoding import FrameConverter, VideoDecoder, has_pyav, video_codec
from .video_feed import FedVideo, UInt8Array

LastSequencePolicy: TypeAlias = Literal["partial", "pad"]
DecoderChoice: TypeAlias = Literal["auto", "dali", "pyav"]


@attrs.frozen
class SequenceSettings:
    """Settings for cutting a video into sequences, see `VideoStreamInput`."""

    sequence_length: int
    last_sequence_policy: LastSequencePolicy
    decoder: DecoderChoice
    image_type: types.DALIImageType
    stream: int
    num_threads: int
    affine: bool
    bytes_per_sample_hint: int

    @property
    def is_only_for_pyav(self) -> bool:
        """Whether DALI's operator cannot do what is asked for."""
        return self.image_type != types.DALIImageType.RGB or self.stream != 0


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


def decode_in_batches(
    video: FedVideo,
    settings: SequenceSettings,
    batch_size: int,
    device_id: int | None,
    is_stopped: Callable[[], bool],
) -> Iterator[SequenceBatch]:
    """Decode a video.

    Args:
        video: The video.
        settings: How.
        batch_size: Number of sequences per batch; the last one can have less.
        device_id: Number of the GPU to decode on; None for the CPU.
        is_stopped: Asked now and then whether to stop early.

    Yields:
        The batches, at least one.

    Raises:
        SettingError: A decoder that the video needs is not installed, or the one that was chosen cannot decode it.
        FileError: The file cannot be read.
        VideoError: It is not a video, is damaged, incomplete, or has no frames.
    """
    _require_complete(video, settings.stream)
    num_frames = 0
    for batch in _decoded(video, settings, batch_size, device_id, is_stopped):
        num_frames += sum(batch.lengths)
        yield batch
    if has_pyav() and not is_stopped():
        _require_all_decoded(video, settings, num_frames)


def _decoded(
    video: FedVideo,
    settings: SequenceSettings,
    batch_size: int,
    device_id: int | None,
    is_stopped: Callable[[], bool],
) -> Iterator[SequenceBatch]:
    if _is_for_dali(video, settings, device_id):
        batches = _decoded_by_dali(video, settings, batch_size, device_id)
        try:
            first = next(batches)
        except VideoError:
            if settings.decoder == "dali" or not has_pyav():
                raise
        else:
            yield first
            yield from batches
            return
    yield from _decoded_by_pyav(video, settings, batch_size, is_stopped)


def _is_for_dali(video: FedVideo, settings: SequenceSettings, device_id: int | None) -> bool:
    if settings.decoder == "pyav" or settings.is_only_for_pyav:
        return False
    if device_id is not None:
        return True
    codec = video_codec(video.source)
    if codec in CODECS_ON_CPU:
        return True
    if settings.decoder == "auto":
        return codec is None and not has_pyav()
    if codec is not None:
        raise SettingError(
            f"DALI decodes VP8, VP9 and MJPEG on the CPU, but the video {video.label} is of the codec {codec}. "
            f"Use decoder='auto' with PyAV installed (pip install 'accvlab.dali_pipeline_framework[video]'), or a "
            f"GPU."
        )
    return True


def require_video(video: FedVideo, stream: int) -> None:
    """Raise a `VideoError` if a file is no video or incomplete, as far as can be told without decoding."""
    if has_pyav():
        VideoDecoder(video.source, stream=stream, name=video.label).close()
    _require_complete(video, stream)


def _require_complete(video: FedVideo, stream: int) -> None:
    num_missing = missing_bytes(video.source)
    if not num_missing:
        return
    if has_pyav():  # tells whether frames are missing, or only an index behind them
        from ..video_index import make_index

        make_index(video.source, stream, video.label)
        return
    raise VideoError(f"The video {video.label} is incomplete: {num_missing} bytes are missing at its end.")


# --- DALI -----------------------------------------------------------------------------------------


def _decoded_by_dali(
    video: FedVideo, settings: SequenceSettings, batch_size: int, device_id: int | None
) -> Iterator[SequenceBatch]:
    # The operator does not tell the end of a video, and running it past the last one is an error that ends its
    # pipeline. So each video has a pipeline of its own, and that error means its end.
    encoded = video.encoded()
    pipeline = _operator_pipeline(settings, batch_size, device_id)
    num_frames = 0
    cast(Any, pipeline).feed_input("video", encoded[None])
    while True:
        try:
            frames, per_sequence = pipeline.run()
        except RuntimeError as error:
            if num_frames and NOTHING_FED in str(error):
                return
            cause = dali_cause(error).rstrip(".")
            on_cpu = (
                " Without PyAV, only VP8, VP9 and MJPEG are decoded on the CPU; for other codecs: pip install "
                "'accvlab.dali_pipeline_framework[video]'."
            )
            raise VideoError(
                f"DALI cannot decode the video {video.label} after {num_frames} frames: {cause}. Is it a "
                f"video, and complete?{'' if device_id is not None or has_pyav() else on_cpu}"
            ) from error
        lengths = [int(length) for length in np.asarray(per_sequence.as_tensor())]
        yield SequenceBatch(video, num_frames, frames, lengths)
        num_frames += sum(lengths)
        if len(lengths) < batch_size or lengths[-1] < settings.sequence_length:
            return


def _operator_pipeline(settings: SequenceSettings, batch_size: int, device_id: int | None) -> Pipeline:
    pipeline = Pipeline(batch_size, num_threads=1, device_id=device_id, prefetch_queue_depth=1)
    with pipeline:
        frames = fn.experimental.inputs.video(
            name="video",
            device="cpu" if device_id is None else "mixed",
            sequence_length=settings.sequence_length,
            affine=settings.affine,
            bytes_per_sample_hint=settings.bytes_per_sample_hint,
            no_copy=True,  # the encoded bytes live as long as the pipeline
        )
        lengths = frames.shape(device="cpu")[0]
        if settings.last_sequence_policy == "pad":
            frames = fn.pad(frames, axes=(0,), shape=(settings.sequence_length,))
        pipeline.set_outputs(frames, lengths)
    pipeline.build()
    return pipeline


# --- PyAV -----------------------------------------------------------------------------------------


def _decoded_by_pyav(
    video: FedVideo, settings: SequenceSettings, batch_size: int, is_stopped: Callable[[], bool]
) -> Iterator[SequenceBatch]:
    length = settings.sequence_length
    converter = FrameConverter(settings.image_type)
    num_frames = 0
    with VideoDecoder(
        video.source, stream=settings.stream, num_threads=settings.num_threads, name=video.label
    ) as decoder:
        while not is_stopped():
            frames = _next_frames(decoder, converter, batch_size * length, is_stopped)
            if not len(frames):
                break
            num_full, rest = divmod(len(frames), length)
            lengths = [length] * num_full + [rest] * bool(rest)
            yield SequenceBatch(video, num_frames, _in_sequences(frames, lengths, settings), lengths)
            num_frames += len(frames)
        else:
            return
        if not num_frames:
            raise VideoError(f"There are no frames in the video {video.label}.")


def _next_frames(
    decoder: VideoDecoder, converter: FrameConverter, most: int, is_stopped: Callable[[], bool]
) -> UInt8Array:
    """Decode up to ``most`` frames: ``(n, H, W, C)`` uint8."""
    frames: UInt8Array | None = None
    num_frames = 0
    while num_frames < most and not is_stopped():
        frame = decoder.next_frame()
        if frame is None:
            break
        if frame.is_corrupt:
            raise VideoError(f"The frame {decoder.num_decoded - 1} of the video {decoder.name} is damaged.")
        if frames is None:
            frames = np.empty((most, frame.height, frame.width, converter.num_channels), np.uint8)
        converter.convert(frame, frames[num_frames])
        num_frames += 1
    return np.empty((0, 0, 0, 0), np.uint8) if frames is None else frames[:num_frames]


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


def _require_all_decoded(video: FedVideo, settings: SequenceSettings, num_decoded: int) -> None:
    from ..video_index import make_index

    # An edit list can hide frames that the container counts; the index has only those that are shown.
    index = make_index(video.source, settings.stream, video.label, num_decoded)
    if num_decoded < index.num_frames:
        raise VideoError(
            f"The video {video.label} is damaged: {num_decoded} of its {index.num_frames} frames can be decoded."
        )
    index.warn_of_doubts(video.label)
