# SPDX-License-Identifier: Apache-2.0
"""Decoder of encoded videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import choice, field_name
from ...draws.draw_scope import Draws
from ...operators.deferred_images import DeferredImage
from ...operators.element_selection import leaf_at
from ...operators.encoded_videos import rgb_of_bt601, why_not_in_graph
from ...operators.image_pixels import pipeline_has_gpu
from ...providers.frame_counts import count_frames
from ...sample_data import FieldPath, LeafFormat, SampleDataGroup, formats
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ...video.decoded_clips import decoded_clip, size_of_clip
from ...video.frame_converter import Colors
from ..array_step import FieldUse
from ..field_steps import PixelStep
from ..image_use import ImageUse
from ..named_fields import FieldSearch
from ..pipeline_step_base import PixelChanges, naming_field

VideoDevice: TypeAlias = Literal["auto", "cpu", "gpu"]

_INT32 = types.DALIDataType.INT32


class VideoDecoder(PixelStep):
    """Decodes every encoded video in fields with the given name, anywhere in the sample.

    Input, from providers of videos with ``images="encoded"``: the bytes of a video file, ``(num_bytes,)``
    uint8, and next to it ``<name>_to_decode``, int32: numbers of frames in it, ``(F,)``, or ``()`` for a single
    one. Output, in the same field: ``(F, height, width, 3)`` uint8 in [0, 255], RGB, layout ``FHWC``; of a single
    frame ``(height, width, 3)``. The numbers are removed.

    In the workers, PyAV decodes every codec of FFmpeg, to the same pixels as when the provider decodes. In the
    graph, one ``fn.decoders.video`` decodes the videos of all samples and elements of an array: on a GPU, which
    has decoders for the usual codecs; without one, VP8, VP9 and MJPEG. DALI converts colors by BT.601. Where the
    streams state another matrix, the RGB is corrected by a matrix: within 2 levels, except for saturated colors,
    which BT.601 has clipped.
    """

    treats_elements_alike = True
    array_form_needs = ("av",)
    _cannot, _what, _holds = "decode", "an encoded video", "the bytes of a video file"
    _dtypes = (types.DALIDataType.UINT8,)

    @explains_unknown_arguments
    def __init__(self, image_name: Name, device: VideoDevice = "auto", *, colors: Colors = "stream") -> None:
        """Create the step.

        Args:
            image_name: Name of the fields to decode.
            device: ``"auto"``: on the GPU, if the graph has one and all GPUs of the machine decode all codecs of
                the fields; else in the workers. ``"gpu"``: on the GPU, if the graph has one, whatever the codec.
                ``"cpu"``: in the workers. Without a GPU, the graph can decode VP8, VP9 and MJPEG: with
                ``with_run("graph")``; or, unless ``device`` is ``"cpu"``, with ``run="graph"`` of the loader.
            colors: ``"stream"``: by the matrix that a stream states; a stream that states none is converted as by
                the provider of the field. ``"dali"``: by BT.601, whatever is stated, see `FrameConverter`.

        Raises:
            SettingError: ``device`` or ``colors`` is something else.
        """
        self._image_name = field_name(image_name, "image_name")
        self._device: VideoDevice = choice(device, "device", ("auto", "cpu", "gpu"))
        self._colors: Colors = choice(colors, "colors", ("stream", "dali"))

    @property
    def image_tolerance(self) -> float:  # type: ignore[override]
        """None where colors are those of DALI; else matrices may differ."""
        return 0.0 if self._colors == "dali" else 1.0

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that the fields hold files, and what they hold after the step."""
        contents = {
            path: formats.DECODED_CLIP if _holds_clip(data_empty, path) else formats.DECODED_IMAGE
            for path in self._image_paths(data_empty)
        }
        left = [ImageUse(leaves=content, path=path) for path, content in contents.items()]
        return [ImageUse(self._names(), formats.ENCODED_VIDEO), *left]

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        numbers = _numbers_path(path)
        found = search.find_at(numbers, "the numbers of the frames to decode", [_INT32])
        if found is not None and search.leaf(found).ndim not in (0, 1):
            search.add("must be declared with ndim=1, or with ndim=0 for a single frame", numbers)

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        ndim = 4 if _holds_clip(data, path) else 3
        data.get_parent_of_path(path).remove_field(_numbers_path(path)[-1])
        data.change_type_of_data_and_remove_data(path, types.DALIDataType.UINT8, new_ndim=ndim)

    def why_on_arrays(self, data_empty: SampleDataGroup, has_gpu: bool) -> str:
        """See `PipelineStepBase.why_on_arrays`."""
        if self._device == "cpu" and self.run != "graph":
            return "device='cpu'"
        for path in self._image_paths(data_empty):
            codecs = leaf_at(data_empty, path).content.codecs
            uses_gpu = has_gpu and self._device != "cpu"
            must_use_gpu, keeps_colors = self._device == "gpu", self._colors == "stream"
            why = why_not_in_graph(codecs, has_gpu=uses_gpu, must_use_gpu=must_use_gpu, keeps_colors=keeps_colors)
            if why:
                return why
        return ""

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges:
        """Declare that the graph needs the numbers of the frames."""
        return {
            path: {"frames" if _holds_clip(data_empty, path) else "frame": _INT32}
            for path in self._image_paths(data_empty)
        }

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, **parameters: DataNode) -> DataNode:
        """See `PipelineStepBase.graph`."""
        ((kind, numbers),) = parameters.items()
        colors = rgb_of_bt601(leaf.content.codecs) if self._colors == "stream" else ()
        device, is_clip = "mixed" if self._device != "cpu" and pipeline_has_gpu() else "cpu", kind == "frames"
        if not is_clip:
            numbers = fn.reshape(numbers, shape=[1])
        frames = fn.decoders.video(image, device=device, frames=numbers, pad_mode="none")
        if colors:
            frames = fn.coord_transform(frames, M=[*colors], dtype=types.DALIDataType.UINT8)
        return frames if is_clip else fn.squeeze(frames, axes=[0])

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The numbers of the frames."""
        return FieldUse(read=[_numbers_path(path) for path in self._image_paths(data_empty)])

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        for path in self._image_paths(data):
            numbers: Any = data.get_item_in_path(_numbers_path(path))
            image, is_clip = data.get_item_in_path(path), _holds_clip(data, path)
            change = self._noted if isinstance(image, DeferredImage) else self._on_array
            with naming_field(path):
                changed = change(image, leaf_at(data, path), numbers, is_clip=is_clip)
            self._adjust_format(data, path)
            data.set_item_in_path(path, changed)
        return data

    def _on_array(
        self, image: npt.NDArray[np.uint8], leaf: LeafFormat, numbers: npt.NDArray[np.int32], *, is_clip: bool
    ) -> npt.NDArray[np.uint8]:
        is_bt601 = self._colors == "stream" and any("bt601" in codec.split() for codec in leaf.content.codecs)
        frames = decoded_clip(image, numbers, "bt601" if is_bt601 else self._colors)
        return frames if is_clip else frames[0]

    def _noted(
        self, image: DeferredImage, leaf: LeafFormat, numbers: npt.NDArray[np.int32], *, is_clip: bool
    ) -> DeferredImage:
        def find_shape() -> tuple[int, ...]:
            size = size_of_clip(image.source)
            return (len(numbers), *size, 3) if is_clip else (*size, 3)

        count_frames(np.unique(numbers).size, int(np.max(numbers, initial=-1)) + 1)  # decoded up to the last one
        return attrs.evolve(image.changed(numbers, find_shape=find_shape), ndim=4 if is_clip else 3)


def _numbers_path(path: FieldPath) -> FieldPath:
    return (*path[:-1], formats.numbers_name(path[-1]))


def _holds_clip(data: SampleDataGroup, path: FieldPath) -> bool:
    numbers = data.format.get(_numbers_path(path))
    return not isinstance(numbers, LeafFormat) or numbers.ndim != 0
