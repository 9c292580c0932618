# SPDX-License-Identifier: Apache-2.0
"""Decoder of images, and of the frames of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import field_name, flag, listed, probability
from ...draws.draw_scope import Draws
from ...engine.dali.texts import failing_with
from ...errors import FieldValueError
from ...operators import image_arrays
from ...operators.deferred_images import DeferredImage
from ...operators.functions import Value
from ...operators.image_pixels import pipeline_has_gpu
from ...sample_data import FieldPath, FieldValue, ImageContent, LeafFormat, SampleDataGroup, formats
from ...sample_data.graph_mode import do_not_convert, graph_context
from ...sample_data.names import Name, format_path
from ...unknown_arguments import explains_unknown_arguments
from ..field_steps import PixelStep
from ..named_fields import FieldSearch, find_paths
from ..pipeline_step_base import PixelChanges, naming_field, on_arrays


class ImageDecoder(PixelStep):
    """Decodes every image field with the given name, anywhere in the sample.

    Input: the bytes of an image file, ``(num_bytes,)`` uint8 (JPEG, PNG, WebP, BMP, TIFF, JPEG 2000, ...). A field
    that is known to hold a decoded image is refused. Output, in the same field: ``(height, width, 3)`` uint8 in
    [0, 255], layout ``HWC``, on the GPU or on the CPU. Gray images get three equal channels, an alpha channel is
    dropped (of TIFF only in the graph; on arrays, such a file is an error).

    A group of this name that holds the encoded frames of a window (`Windows`) becomes a field
    ``(T, height, width, 3)``, layout ``FHWC``. The frames of a window must have the same size. With a GPU, the
    step and those after it run in the graph as a whole then.

    To resize a region of an image, use `ImageResizer` or `ImageResizeCropFlipper` with ``is_encoded`` in place of
    this step: in a graph they decode the region only. They take no windows.
    """

    treats_elements_alike = True
    array_form_needs = image_arrays.DECODING_NEEDS
    _cannot, _what, _holds = "decode", "an encoded image", "the bytes of an image file"
    _dtypes = (types.DALIDataType.UINT8,)
    _needs = formats.ENCODED_IMAGE

    @explains_unknown_arguments
    def __init__(
        self,
        image_name: Name = "image",
        use_device_mixed: bool = True,
        hw_decoder_load: float = 0.65,
        as_bgr: bool = False,
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the fields to decode.
            use_device_mixed: Whether to decode on the GPU, in a pipeline that has one. In a pipeline
                without one (``device_id=None``) the CPU decodes in any case.
            hw_decoder_load: Share of the images, in [0, 1], for the hardware JPEG decoder of GPUs that
                have one; the rest is decoded by CUDA kernels. A value other than 0.65 overrides
                ``hw_decoder_load`` in the ``decoder_options`` of the pipeline (see
                `PipelineDefinition.get_dali_pipeline`).
            as_bgr: Whether the channels are blue, green, red instead of red, green, blue. On the CPU this
                takes about three times as long to decode.

        Raises:
            SettingError: ``hw_decoder_load`` is not in [0, 1].
        """
        self._image_name = field_name(image_name, "image_name")
        self._use_device_mixed = flag(use_device_mixed, "use_device_mixed")
        self._hw_decoder_load = probability(hw_decoder_load, "hw_decoder_load")
        self._as_bgr = flag(as_bgr, "as_bgr")

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges | None:
        """Declare that images are decoded in the graph; None where there are frames of sequences."""
        return None if self._sequences(data_empty) else super().declare_pixel_changes(data_empty)

    def num_in_one_batch(self, data_empty: SampleDataGroup) -> int:
        """Number of files of all windows, which one operator decodes."""
        return sum(
            len(data_empty.get_item_in_path(path)[formats.ENCODED_NAME]) for path in self._sequences(data_empty)
        )

    def _sequences(self, data: SampleDataGroup) -> list[FieldPath]:
        """Get the paths of groups of encoded frames."""
        paths = find_paths(data, self._names())
        return [path for path in paths if formats.holds_encoded_frames(data.format.at(path))]

    def _image_paths(self, data: SampleDataGroup) -> list[FieldPath]:
        sequences = self._sequences(data)
        return [path for path in super()._image_paths(data) if path not in sequences]

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        found = super()._find(search)
        sequences = self._sequences(SampleDataGroup.from_format(search.format))
        search.problems = [problem for problem in search.problems if problem.path not in sequences]
        return found

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        sequences = self._sequences(data_empty)
        data = super().format_after(data_empty)
        return _with_clips(data, dict.fromkeys(sequences)) if sequences else data

    @on_arrays
    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        sequences = self._sequences(data)
        if not sequences:
            return super()._process(data)
        for path in self._image_paths(data):
            decoded = self._decoded(data.get_item_in_path(path))
            self._adjust_format(data, path)
            data.set_item_in_path(path, decoded)
        files = [[*data.get_item_in_path((*path, formats.ENCODED_NAME)).values()] for path in sequences]
        decode_together = graph_context.get().decode_together
        if decode_together is None:
            clips = [_joined([*map(self._decoded, of_clip)]) for of_clip in files]
        else:  # the batch of the pipeline has the room
            clips = [*decode_together(self._decoded, _joined, files)]
        return _with_clips(data, dict(zip(sequences, clips, strict=True)))

    @do_not_convert
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        sequences = self._sequences(data)
        data = super().arrays(data, draws)
        return _with_clips(data, {path: self._clip(data, path) for path in sequences}) if sequences else data

    def _clip(self, data: SampleDataGroup, path: FieldPath) -> npt.NDArray[np.uint8]:
        frames = []
        for number, file in data.get_item_in_path((*path, formats.ENCODED_NAME)).items():
            with naming_field((*path, formats.ENCODED_NAME, number)):
                frames.append(image_arrays.decoded_image(file, as_bgr=self._as_bgr))
        sizes = dict.fromkeys(frame.shape for frame in frames)
        if len(sizes) > 1:
            raise FieldValueError(f"{format_path(path)}: {_SAME_SIZE}: {listed(sizes)}")
        return np.stack(frames)

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        return formats.DECODED_CLIP if leaf.ndim == 4 else formats.DECODED_IMAGE

    def _adjust_format(self, data: SampleDataGroup, path: FieldPath) -> None:
        data.change_type_of_data_and_remove_data(path, types.DALIDataType.UINT8, new_ndim=3)

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name) -> DataNode:
        """See `PipelineStepBase.graph`."""
        return self._decoded(image)

    def _decoded(self, image: DataNode) -> DataNode:
        output_type = types.DALIImageType.BGR if self._as_bgr else types.DALIImageType.RGB
        if not (self._use_device_mixed and pipeline_has_gpu()):
            return fn.decoders.image(image, device="cpu", output_type=output_type)
        settings = {**graph_context.get().decoder_options}
        if self._hw_decoder_load != _DEFAULT_LOAD:
            settings["hw_decoder_load"] = self._hw_decoder_load
        return fn.decoders.image(image, device="mixed", output_type=output_type, **settings)

    def _on_array(self, image: npt.NDArray[np.uint8], leaf: LeafFormat) -> npt.NDArray[np.uint8]:
        return image_arrays.decoded_image(image, as_bgr=self._as_bgr)

    def _deferred(self, image: DeferredImage, leaf: LeafFormat) -> DeferredImage:
        return image.decoded(type(self).__name__)


_DEFAULT_LOAD = 0.65  # of the step, and of DALI
_SAME_SIZE = "the frames of a window must have the same size, and these have not"
# Added to the extent of a region to make it larger than any image, so that DALI refuses it.
_FAR_OUTSIDE = 1 << 24
_MOST_TO_PASTE = 64  # images that DALI puts on a canvas at once


@do_not_convert
def _with_clips(data: SampleDataGroup, clips: Mapping[FieldPath, FieldValue]) -> SampleDataGroup:
    """Get a sample with a clip at each of the paths, where a group of encoded frames was."""
    clip = formats.leaf_format(types.DALIDataType.UINT8, ndim=4, content=formats.DECODED_CLIP)
    format = data.format.with_replaced(dict.fromkeys(clips, clip))
    output = data._with_own_switches(SampleDataGroup.from_format(format))
    values = {**dict(zip(data.format.flat_paths, data.get_data(), strict=True)), **clips}
    output.set_data([values[path] for path in format.flat_paths])
    return output


def _joined(images: Sequence[DataNode]) -> DataNode:
    """Join the images of windows, ``F`` batches of ``(H, W, 3)``, to ``(F, H, W, 3)``."""
    if len(images) > _MOST_TO_PASTE or images[0].device == "gpu":
        return fn.reshape(failing_with(_SAME_SIZE, fn.stack, *images), layout="FHWC")
    # On the CPU, `fn.stack` takes four times the processor time of `fn.multi_paste`, which puts the images one
    # below the other on a canvas. Not on a GPU, where its kernel is wrong for some regions.
    shapes: Value = fn.stack(*[image.shape(dtype=types.DALIDataType.INT32) for image in images])  # (F, 3)
    sizes, size = shapes[:, 0:2], shapes[0, 0:2]
    first_rows = np.stack([np.arange(len(images)), np.zeros(len(images))], axis=1).astype(np.int32)
    canvas = failing_with(
        _SAME_SIZE,
        fn.multi_paste,
        *images,
        out_anchors=types.Constant(first_rows, device="cpu") * size[0],
        # Impossible regions where a size is another one.
        shapes=sizes + fn.cast(sizes != size, dtype=types.DALIDataType.INT32) * _FAR_OUTSIDE,
        output_size=fn.stack(size[0] * len(images), size[1]),
    )
    shape = fn.cat(np.array([len(images)], np.int32), size, np.array([3], np.int32))
    return fn.reshape(canvas, shape=shape, layout="FHWC")
