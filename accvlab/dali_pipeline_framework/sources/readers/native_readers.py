# SPDX-License-Identifier: Apache-2.0
"""The readers of DALI that this package offers as inputs, each with its blueprint."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ...checks import listed
from ...engine.dali.texts import NO_FILES, NO_FRAMES, dali_cause
from ...errors import DeviceError, SettingError
from ...providers.files.file_scan import DEFAULT_FILE_FILTERS, NameFilter
from ...providers.frames.frame_folders import has_image_extension
from ...sample_data import ImageContent
from ...sample_data.formats import DECODED_CLIP, ENCODED_IMAGE
from ...sample_data.names import Name
from ...sampling.random_access_sampler import Description
from ...video.video_decoding import has_pyav, video_codec
from ..input_parts import CODECS_ON_CPU
from .reader_files import (
    files_in_folders,
    images_of_annotations,
    is_on_s3,
    named_files,
    require_complete,
    require_index_of_archive,
    require_index_of_records,
    require_openable,
    type_of_argument,
    type_of_array_file,
    video_files,
)
from .reader_input import ReaderField, ReaderInput, ReaderRun, is_empty

_logger = logging.getLogger(__name__)


class FileReader(ReaderInput):
    """``fn.readers.file``: the bytes of files, and a label for each.

    Fields: ``data``, ``(num_bytes,)`` uint8, and ``label``, ``(1,)`` int32.
    """

    operator_name = "readers.file"

    def __init__(self, *, data_name: Name = "data", label_name: Name | None = "label", **arguments: Any) -> None:
        """Set up; paths are checked for pipes and devices, on which DALI would block, and no file is read.

        Args:
            data_name: Name of the field with the bytes.
            label_name: Name of the field with the label; None to leave it out.
            **arguments: Arguments of ``fn.readers.file``.

        Raises:
            SettingError: An argument is unknown, or not exactly one of ``file_root`` alone, ``file_list`` and
                ``files`` says where the files are; a folder or list is missing; or a file is a pipe or the like.
            FileError: A folder or list cannot be read.
        """
        self.fields = (
            ReaderField(data_name, types.DALIDataType.UINT8, ENCODED_IMAGE),
            ReaderField(label_name, types.DALIDataType.INT32),
        )
        super().__init__(fn.readers.file, arguments)
        self._require_source("file_list", "files", alone="file_root")
        are_named = any(arguments.get(name) is not None for name in ("files", "file_list"))
        files = self._named_files() if are_named else self._files_in_folders()
        require_openable(self.operator_name, files, are_named=are_named)

    def _named_files(self) -> Iterator[str]:
        return named_files(self._arguments, lambda line: line.rsplit(None, 1)[0])  # the line ends with a label

    def _files_in_folders(self) -> Iterator[str]:
        given = self._arguments
        filters = given.get("file_filters", DEFAULT_FILE_FILTERS)
        is_case_sensitive = given.get("case_sensitive_filter", False)
        wanted = NameFilter(filters, case_sensitive=is_case_sensitive, argument="file_filters")
        return files_in_folders(given["file_root"], wanted.matches)

    def advice(self, reason: str) -> str:
        """See `NativeInput.advice`."""
        if NO_FILES not in reason:
            return super().advice(reason)
        return (
            "The sub-folders of `file_root` are the labels, and the files in them are read that match one of "
            "`file_filters` (by default the usual extensions of images)."
        )


class SequenceReader(ReaderInput):
    """``fn.readers.sequence``: sequences of frames in folders of images, decoded by the reader.

    Field: ``frames``, ``(sequence_length, height, width, 3)`` uint8, layout ``FHWC``.
    """

    operator_name = "readers.sequence"

    def __init__(self, *, frames_name: Name = "frames", **arguments: Any) -> None:
        """Set up; paths are checked for pipes and devices, on which DALI would block, and no file is read.

        Args:
            frames_name: Name of the field.
            **arguments: Arguments of ``fn.readers.sequence``; ``file_root`` and ``sequence_length`` are required.

        Raises:
            SettingError: An argument is unknown or missing, or the folder does not exist.
            FileError: A folder or list cannot be read.
        """
        self.fields = (ReaderField(frames_name, types.DALIDataType.UINT8, DECODED_CLIP),)
        super().__init__(cast(Any, fn.readers).sequence, arguments)
        self._require_folder()
        require_openable(self.operator_name, files_in_folders(self._arguments["file_root"], has_image_extension))

    def advice(self, reason: str) -> str:
        """See `NativeInput.advice`."""
        if NO_FRAMES not in reason:
            return super().advice(reason)
        return "Expected are folders in `file_root`, one per stream, with one image file per frame in each."

    def _why_empty(self) -> str:
        given = self._arguments
        num_needed = (given["sequence_length"] - 1) * given.get("stride", 1) + 1
        folders = [each for each in os.scandir(given["file_root"]) if each.is_dir()]
        longest = max((len(os.listdir(each.path)) for each in folders), default=0)
        return (
            f"A sequence needs {num_needed} frames of one stream, and the longest of {len(folders)} stream(s) has "
            f"{longest} file(s)."
        )


class VideoReader(ReaderInput):
    """Clips of video files: ``fn.experimental.readers.video``, or ``fn.readers.video`` (GPU only).

    Fields: ``frames``, ``(F, H, W, C)`` uint8, layout ``FHWC``, and those that the arguments ask for: ``label``
    ``(1,)`` int32 (with ``labels``, ``file_list`` or ``file_root``), ``frame_num`` (``enable_frame_num``) ``(1,)``
    or ``(F,)`` int32, ``timestamps`` (``enable_timestamps``) ``(F,)`` float64 in seconds.

    On the CPU, DALI decodes VP8, VP9 and MJPEG; a GPU decodes H.264, HEVC and others too. For other videos on
    the CPU there is `VideoDataProvider`.
    """

    operator_name = "experimental.readers.video"
    remote_advice = "Use VideoDataProvider(Videos(url, storage_options=...)), which reads remote videos in parts."

    def __init__(
        self,
        *,
        frames_name: Name = "frames",
        label_name: Name | None = "label",
        frame_num_name: Name | None = "frame_num",
        timestamps_name: Name | None = "timestamps",
        experimental: bool = True,
        **arguments: Any,
    ) -> None:
        """Set up; the ends of the files are checked, since DALI delivers truncated videos silently.

        Args:
            frames_name: Name of the field with the frames.
            label_name: Name of the field with the label; None to leave it out.
            frame_num_name: Name of the field with the frame number(s); None to leave it out.
            timestamps_name: Name of the field with the times; None to leave it out.
            experimental: Whether to use the newer ``fn.experimental.readers.video``, which runs on the CPU too.
            **arguments: Arguments of the operator.

        Raises:
            SettingError: An argument is unknown or missing, or not exactly one of ``filenames``, ``file_list`` and
                ``file_root`` says where the videos are; or one does not exist, or is no regular file.
            VideoError: A video is incomplete.
            FileError: A video must not be read.
        """
        if not experimental:
            self.operator_name = "readers.video"
        names = types.DALIDataType
        dtype = arguments.get("dtype", names.UINT8) if not experimental else names.UINT8
        content = DECODED_CLIP if dtype == names.UINT8 else ImageContent(is_encoded=False, layout="FHWC")
        fields = [ReaderField(frames_name, dtype, content)]
        # An empty list counts: `fn.readers.video` then numbers the files.
        has_labels = arguments.get("labels") is not None
        if has_labels or not all(is_empty(arguments.get(name)) for name in ("file_list", "file_root")):
            fields.append(ReaderField(label_name, names.INT32))
        if arguments.get("enable_frame_num", "none") not in ("none", False):
            fields.append(ReaderField(frame_num_name, names.INT32))
        if arguments.get("enable_timestamps"):
            fields.append(ReaderField(timestamps_name, names.FLOAT64))
        self.fields = fields
        super().__init__(fn.experimental.readers.video if experimental else fn.readers.video, arguments)
        self._require_source("filenames", "file_list", "file_root")
        videos = video_files(self._arguments)
        require_openable(self.operator_name, videos)
        require_complete(videos)

    def define(self, name: str, seed: int) -> Sequence[DataNode]:
        """Define the reader in the current pipeline. See `NativeInput.define`.

        Raises:
            DeviceError: It decodes on a GPU only, and the pipeline is one for the CPU.
        """
        if self.operator_name == "readers.video" and not self._has_gpu():
            raise DeviceError(
                "fn.readers.video (experimental=False) decodes on a GPU only, and this pipeline is for the CPU "
                "(device_id=None). Give it the number of a GPU as `device_id`; or, on the CPU, use "
                "experimental=True (VP8, VP9 and MJPEG) or VideoDataProvider (all codecs)."
            )
        return super().define(name, seed)

    def _device(self) -> str:
        return "gpu" if self._has_gpu() else "cpu"

    def _why_empty(self) -> str:
        num_needed = (self._arguments["sequence_length"] - 1) * self._arguments.get("stride", 1) + 1
        codecs = self._codecs(3)
        known = ", ".join(f"{path!r} has {codec or 'none that is known'}" for path, codec in codecs.items())
        advice = " VideoDataProvider decodes all codecs on the CPU." if any(codecs.values()) else ""
        return (
            f"A clip needs {num_needed} frames of one video, and DALI must be able to decode it: on the CPU VP8, "
            f"VP9 and MJPEG, on a GPU also H.264, HEVC and others.{f' Codecs: {known}.' if known else ''}{advice}"
        )

    def _codecs(self, most: int | None = None) -> dict[str, str | None]:
        """Codecs of the videos, of the first ones at most; without PyAV, of none."""
        filenames = self._arguments.get("filenames") or []
        paths = [filenames] if isinstance(filenames, str) else list(filenames)
        return {path: video_codec(path) for path in paths[:most]} if has_pyav() else {}

    def begin(self, name: str, pipeline: Any) -> ReaderRun:
        """See `NativeInput.begin`. On the CPU, name the videos that DALI leaves out silently (with PyAV)."""
        if pipeline.device_id is None:
            codecs = self._codecs()
            left_out = {path: codec for path, codec in codecs.items() if codec not in CODECS_ON_CPU}
            if left_out:
                _logger.warning(
                    "DALI leaves out %d of %d videos, which it cannot decode on the CPU: %s. VideoDataProvider "
                    "decodes other codecs too.",
                    len(left_out),
                    len(codecs),
                    listed((f"{path!r} ({codec or 'no video'})" for path, codec in left_out.items()), 5),
                )
        return super().begin(name, pipeline)


class NumpyReader(ReaderInput):
    """``fn.readers.numpy``: arrays from ``.npy`` files.

    Field: ``data``, of the shape of the array (or of the region that is read) and its type.
    """

    operator_name = "readers.numpy"

    def __init__(
        self,
        *,
        data_name: Name = "data",
        dtype: npt.DTypeLike | types.DALIDataType | None = None,
        use_gpu: bool = False,
        **arguments: Any,
    ) -> None:
        """Set up; at most the header of the first file is read.

        Args:
            data_name: Name of the field.
            dtype: Type of the arrays, the same in all files; None to read it from the first file.
            use_gpu: Whether to read into GPU memory (GPUDirect Storage), in a pipeline that has a GPU.
            **arguments: Arguments of ``fn.readers.numpy``.

        Raises:
            SettingError: An argument is unknown, or not exactly one of ``file_root`` alone, ``file_list`` and
                ``files`` says where the files are; there is no file, or it is no array.
        """
        self.fields = (ReaderField(data_name, types.DALIDataType.FLOAT),)
        self._use_gpu = use_gpu
        super().__init__(fn.readers.numpy, arguments)
        self._require_source("file_list", "files", alone="file_root")
        require_openable(self.operator_name, named_files(self._arguments), are_named=True)
        if dtype is None:
            dtype = type_of_array_file(_first_array_file(self._arguments))
        self.fields = (ReaderField(data_name, type_of_argument(dtype)),)

    def _device(self) -> str:
        return "gpu" if self._use_gpu and self._has_gpu() else "cpu"


class TFRecordReader(ReaderInput):
    """``fn.readers.tfrecord``: records of TensorFlow's format.

    Fields: one per feature, with its name: ``tfrec.string`` as ``(num_bytes,)`` uint8, ``tfrec.int64`` as int64,
    ``tfrec.float32`` as float32 (see `nvidia.dali.tfrecord`).
    """

    operator_name = "readers.tfrecord"

    def __init__(
        self,
        *,
        features: Mapping[str, Any],
        dtypes: Mapping[str, types.DALIDataType] | None = None,
        **arguments: Any,
    ) -> None:
        """Set up; unless ``dtypes`` are given, one record is read, since DALI's features do not have their types.

        Args:
            features: Features by name (``nvidia.dali.tfrecord.FixedLenFeature`` or ``VarLenFeature``).
            dtypes: Types of the features by name; None to find them out.
            **arguments: Other arguments of ``fn.readers.tfrecord``; ``path`` and ``index_path`` are required.

        Raises:
            SettingError: An argument is unknown or missing, a file does not exist, an index is not that of its
                file, or no record can be read.
        """
        if not isinstance(features, Mapping) or not features:
            raise SettingError(f"`features` must be a dict of at least one feature, got {features!r}.")
        self.fields = [ReaderField(name, types.DALIDataType.UINT8) for name in features]
        super().__init__(fn.readers.tfrecord, {**arguments, "features": dict(features)})
        self._require_files("path", "index_path")
        self._compare_indices("path", "index_path", require_index_of_records)
        found = self._find_dtypes() if dtypes is None else dtypes
        if found.keys() != features.keys():
            raise SettingError(
                f"`dtypes` must have the names of the features ({', '.join(features)}), got {found!r}."
            )
        self.fields = [ReaderField(name, found[name]) for name in features]

    def _in_order(self, outputs: Any) -> Sequence[DataNode]:
        return [outputs[field.name] for field in self.fields]

    def describe(self) -> Description:
        """See `ReaderInput.describe`. DALI's features have no description: the types of the fields are used."""
        features = {str(field.name): field.dtype.name for field in self.fields}
        return {**super().describe(), "features": repr(features)}

    def _find_dtypes(self) -> dict[str, types.DALIDataType]:
        arguments = {name: self._arguments[name] for name in ("path", "index_path", "features")}
        pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
        try:
            with pipeline:
                outputs: Any = fn.readers.tfrecord(**arguments)
                pipeline.set_outputs(*(outputs[name] for name in arguments["features"]))
            record = pipeline.run()
        except (RuntimeError, TypeError) as error:
            raise SettingError(f"fn.readers.tfrecord cannot read the first record: {dali_cause(error)}") from error
        return {name: each.dtype for name, each in zip(arguments["features"], record, strict=True)}


class WebDatasetReader(ReaderInput):
    """``fn.readers.webdataset``: samples in tar archives.

    Fields: one per entry of ``ext``, by default with the (first) extension as its name, as uint8 bytes or what
    ``dtypes`` says; a component that a sample lacks is empty, unless ``missing_component_behavior`` differs.
    """

    operator_name = "readers.webdataset"

    def __init__(
        self, *, ext: str | Sequence[str], names: Sequence[Name | None] | None = None, **arguments: Any
    ) -> None:
        """Set up; archives are compared with their indices, where these are given.

        Args:
            ext: Extensions, as in DALI: ``"jpg"``, or ``"jpg;png"`` for either.
            names: Names of the fields, one per entry of ``ext``; None for one to leave out. None: the extensions.
            **arguments: Other arguments of ``fn.readers.webdataset``; ``paths`` is required.

        Raises:
            SettingError: An argument is unknown or missing, an archive does not exist, or an index is not that of
                its archive.
        """
        extensions = [ext] if isinstance(ext, str) else list(ext)
        names = [each.split(";")[0] for each in extensions] if names is None else list(names)
        if len(names) != len(extensions):
            raise SettingError(
                f"`names` must have one name per entry of `ext`, got {len(names)} for {len(extensions)}."
            )
        dtypes = arguments.get("dtypes")
        if dtypes is None:
            dtypes = [types.DALIDataType.UINT8] * len(extensions)
        dtypes = dtypes if isinstance(dtypes, list | tuple) else [dtypes]
        if len(dtypes) != len(extensions):
            raise SettingError(
                f"`dtypes` must have one type per entry of `ext`, got {len(dtypes)} for {len(extensions)}."
            )
        self.fields = [ReaderField(name, dtype) for name, dtype in zip(names, dtypes, strict=True)]
        super().__init__(fn.readers.webdataset, {**arguments, "ext": extensions})
        self._require_files("paths", "index_paths")
        self._compare_indices("paths", "index_paths", require_index_of_archive)


class CocoReader(ReaderInput):
    """``fn.readers.coco``: images with boxes, labels, and masks from annotations in COCO's format.

    Fields: ``image``, the bytes of the file; ``boxes`` ``(n, 4)`` float32, ``xywh`` (``xyxy`` with ``ltrb``), in
    pixels or with ``ratio`` relative to the image; ``labels`` ``(n,)`` int32; with ``polygon_masks`` also
    ``polygons`` ``(p, 3)`` int32 and ``vertices`` ``(v, 2)`` float32; with ``pixelwise_masks`` ``masks``
    ``(h, w, 1)`` int32; with ``image_ids`` ``image_id`` ``(1,)`` int32.
    """

    operator_name = "readers.coco"

    def __init__(
        self,
        *,
        image_name: Name = "image",
        boxes_name: Name | None = "boxes",
        labels_name: Name | None = "labels",
        polygons_name: Name | None = "polygons",
        vertices_name: Name | None = "vertices",
        masks_name: Name | None = "masks",
        image_id_name: Name | None = "image_id",
        **arguments: Any,
    ) -> None:
        """Set up; the images of the annotations are checked for pipes, and none is read.

        Args:
            image_name: Name of the field with the image file.
            boxes_name: Name of the field with the boxes; None to leave it out, also below.
            labels_name: Name of the field with the labels.
            polygons_name: Name of the field with the polygons.
            vertices_name: Name of the field with their vertices.
            masks_name: Name of the field with the masks.
            image_id_name: Name of the field with the number of the image.
            **arguments: Arguments of ``fn.readers.coco``.

        Raises:
            SettingError: An argument is unknown, or a file or folder does not exist.
        """
        int32, float32 = types.DALIDataType.INT32, types.DALIDataType.FLOAT
        fields = [
            ReaderField(image_name, types.DALIDataType.UINT8, ENCODED_IMAGE),
            ReaderField(boxes_name, float32),
            ReaderField(labels_name, int32),
        ]
        if arguments.get("polygon_masks"):
            fields += [ReaderField(polygons_name, int32), ReaderField(vertices_name, float32)]
        if arguments.get("pixelwise_masks"):
            fields.append(ReaderField(masks_name, int32))
        if arguments.get("image_ids"):
            fields.append(ReaderField(image_id_name, int32))
        self.fields = fields
        super().__init__(fn.readers.coco, arguments)
        root, annotations = self._arguments.get("file_root") or "", self._arguments.get("annotations_file")
        if root:
            self._require_folder()
        if annotations:
            self._require_files("annotations_file")
            require_openable(self.operator_name, images_of_annotations(annotations, root))


def _first_array_file(arguments: Mapping[str, Any]) -> str:
    root, first = arguments.get("file_root"), next(named_files(arguments), None)
    looked_up = first or root
    if is_on_s3(looked_up):
        raise SettingError(
            f"fn.readers.numpy: give the `dtype` of the arrays; it is not looked up in {looked_up!r}."
        )
    if first is not None:
        return first
    if arguments.get("file_list") is not None:
        raise SettingError(f"`file_list` of fn.readers.numpy: {str(arguments['file_list'])!r} is empty.")
    pattern = arguments.get("file_filter", "*.npy")
    found = min((str(each) for each in Path(str(root)).rglob(pattern) if each.is_file()), default=None)
    if found is None:
        raise SettingError(f"fn.readers.numpy: there is no file {pattern!r} in {str(root)!r}.")
    return found
