# SPDX-License-Identifier: Apache-2.0
"""Steps that apply augmentations of Albumentations and torchvision."""

from __future__ import annotations

import copy
import functools
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import choice
from ...draws.keyed_draws import seeded_global_generators
from ...draws.random_draws import IntegerDraw, RandomDraw
from ...errors import FieldValueError, SettingError, StepOutputError
from ...operators.array_packages import needed_package
from ...sample_data import FieldPath, GroupFormat, ImageContent, LeafFormat, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ..array_application import full_path
from ..image_use import PIXELS, ContentRule, ImageUse, as_pixels
from ..named_fields import FieldSearch, Key, Names, as_names, required_names
from ..wrappers.function_steps import ArrayStep

_DT = types.DALIDataType
_PIXELS = (_DT.UINT8, _DT.INT16, _DT.FLOAT)
_MASKS = (_DT.UINT8, _DT.INT16, _DT.INT32, _DT.INT64, _DT.FLOAT, _DT.BOOL)
_COORDINATES = (_DT.FLOAT, _DT.FLOAT64, _DT.INT32, _DT.INT64)
Array: TypeAlias = npt.NDArray[Any]


@attrs.frozen
class Annotated:
    """Images of one size, and what is given in their pixels: what a transform gets, and what it returns.

    Attributes:
        images: ``(H, W, C)`` or ``(F, H, W, C)``, each.
        masks: ``(H, W)`` or ``(H, W, C)``, each.
        boxes: The boxes of all fields, one after the other, ``(N, >= 4)`` float32.
        box_rows: For each of the boxes that are left, the number that it had: ``(N,)``; before, 0 to N - 1.
        points: Likewise the points, ``(N, >= 2)`` float32.
        point_rows: Likewise.
        labels: For names that the transform asks for: the values beside all boxes, one after the other.
    """

    images: Sequence[Array]
    masks: Sequence[Array]
    boxes: Array | None
    box_rows: Array
    points: Array | None
    point_rows: Array
    labels: Mapping[str, Array] = attrs.Factory(dict)


class ImageLibraryStep(ArrayStep):
    """Runs a transform of another library on what fields of some names hold, anywhere in the sample.

    A derived step says how the transform is called. All images, masks, boxes and points get the same parameters in
    one call, so the images and masks of a sample must have one size; for cameras that differ, or that shall get
    parameters of their own, apply the step to each camera by a wrapper.

    While the transform runs, the global generators of Python, NumPy and PyTorch are seeded by a draw of the step.
    """

    _label_names: tuple[str, ...] = ()
    _point_columns = 2

    def __init__(
        self,
        transform: Callable[..., Any],
        image_names: Names,
        mask_names: Names | None,
        box_names: Names | None,
        box_row_names: Names | None,
        point_names: Names | None,
        point_row_names: Names | None,
        image_type: types.DALIDataType | None,
        key: Key,
    ) -> None:
        """Check and keep the settings.

        Raises:
            SettingError: The transform cannot be called, or something else than names, or no type, or no key was
                given.
        """
        if not callable(transform):
            raise SettingError(f"`transform` must be callable, got {transform!r}.")
        self._transform: Any = transform
        self._image_names = required_names(image_names, "image_names")
        self._mask_names = as_names(mask_names, "mask_names")
        self._box_names = as_names(box_names, "box_names")
        self._box_row_names = as_names(box_row_names, "box_row_names")
        self._point_names = as_names(point_names, "point_names")
        self._point_row_names = as_names(point_row_names, "point_row_names")
        if image_type is not None and image_type not in NUMPY_TYPES:
            raise SettingError(f"`image_type` must be the type of a field, or None, got {image_type!r}.")
        self._image_type = image_type
        self._seed = IntegerDraw("seed", 0, 2**31 - 1, key=key)

    @abstractmethod
    def _transformed(self, annotated: Annotated, seed: int) -> Annotated:
        """Call the transform. Boxes and points in what it returns may be fewer."""

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the seed of the generators."""
        return [self._seed]

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images are decoded, and stay as they are but for what the type says."""
        leaves: ContentRule = _after_same_type if self._image_type is None else PIXELS
        return [ImageUse(self._image_names, PIXELS, leaves)]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        images = search.find(self._image_names, "an image", _PIXELS, group_of="images")
        search.find(self._mask_names, "a mask", _MASKS, group_of="masks")
        boxes = search.find(self._box_names, "boxes", _COORDINATES, group_of="boxes")
        points = search.find(self._point_names, "points", _COORDINATES, group_of="points")
        self._check_rows(search, data_empty.format, boxes, (*self._box_row_names, *self._label_names), "boxes")
        self._check_rows(search, data_empty.format, points, self._point_row_names, "points")
        for name in self._label_names:
            for path in boxes:
                if not isinstance(data_empty.format.get((*path[:-1], name)), LeafFormat):
                    search.add(f"must be beside the boxes, for the label field {name!r}", path, KeyError)
        search.raise_problems()
        if self._image_type is not None:
            for path in images:
                data_empty.change_type_of_data_and_remove_data(path, self._image_type)
        return data_empty

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        of_images = {dtype for path, dtype in found.items() if path[-1] in self._image_names}
        named = ", ".join(f"`image_type={dtype}`" for dtype in of_images if dtype is not None)
        return f"Name the type of images after the transform: {named}." if named else ""

    def _check_rows(
        self, search: FieldSearch, format: GroupFormat, of: Sequence[FieldPath], names: Sequence[Any], what: str
    ) -> None:
        groups = [path[:-1] for path in of]
        for path in of:
            if names and groups.count(path[:-1]) > 1:
                search.add(f"must be the only {what} in its group, since it has rows beside it", path)
        for name in dict.fromkeys(names):
            found = [format.get((*group, name)) for group in groups]
            if not any(isinstance(leaf, LeafFormat) for leaf in found):
                search.add_missing(name, f"fields beside the {what}")

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        fields = _fields_of(
            data.format,
            self._image_names,
            self._mask_names,
            (self._box_names, (*self._box_row_names, *self._label_names)),
            (self._point_names, self._point_row_names),
        )
        images = [data.get_item_in_path(path) for path in fields.images]
        masks = [data.get_item_in_path(path) for path in fields.masks]
        _check_sizes(self, (*fields.images, *fields.masks), (*images, *masks))
        boxes = _Rows(data, fields.boxes, 4, "boxes (N, 4)")
        points = _Rows(data, fields.points, self._point_columns, f"points (N, {self._point_columns})")
        labels = {
            name: np.concatenate([np.asarray(data.get_item_in_path((*path[:-1], name))) for path in fields.boxes])
            for name in self._label_names
        }
        seed = int(self.draw("seed"))
        with seeded_global_generators(seed):
            after = self._transformed(
                Annotated(images, masks, boxes.joined, boxes.numbers, points.joined, points.numbers, labels), seed
            )
        if self._image_type is not None:
            for path in fields.images:
                data.change_type_of_data_and_remove_data(path, self._image_type)
        for paths, arrays in ((fields.images, after.images), (fields.masks, after.masks)):
            for path, array in zip(paths, arrays, strict=True):
                data.set_item_in_path(path, array)
        boxes.put(data, after.boxes, after.box_rows)
        points.put(data, after.points, after.point_rows)
        return data


class _Rows:
    """The boxes, or points, of several fields as one array, and back.

    Attributes:
        joined: All of them, ``(N, columns)`` float32; None where there are no fields.
        numbers: 0 to N - 1.
    """

    def __init__(
        self, data: SampleDataGroup, fields: Mapping[FieldPath, Sequence[FieldPath]], columns: int, what: str
    ) -> None:
        """Join fields; each has the paths of fields with a row for each of its rows."""
        self._fields = fields
        self._columns = columns
        self._given = {path: np.asarray(data.get_item_in_path(path)) for path in fields}
        parts = []
        for path, array in self._given.items():
            if array.ndim == 0 or array.shape[-1] < columns or (what[0] == "b" and array.ndim != 2):
                raise FieldValueError(f"{full_path(path)}: must be {what}, got the shape {array.shape}.")
            parts.append(array.reshape(-1, array.shape[-1])[:, :columns].astype(np.float32))
        self.joined = np.concatenate(parts) if parts else None
        self.numbers = np.arange(sum(map(len, parts)))
        self._counts = [*map(len, parts)]

    def put(self, data: SampleDataGroup, joined: Array | None, rows: Array) -> None:
        """Set the fields to what came back: the rows of these numbers, and drop the others beside them."""
        if joined is None:
            return
        end = 0
        for (path, beside), count in zip(self._fields.items(), self._counts, strict=True):
            start, end = end, end + count
            is_own = (rows >= start) & (rows < end)
            kept, before = rows[is_own] - start, self._given[path]
            is_same = len(kept) == count and bool((kept == np.arange(count)).all())
            if not is_same and before.ndim != 2:
                raise FieldValueError(
                    f"{full_path(path)}: the transform dropped {count - len(kept)} of {count} points; a field "
                    f"of the shape {before.shape} cannot have fewer. Let it keep them, or give a field (N, 2)."
                )
            data.set_item_in_path(path, self._changed(before, joined[is_own], kept))
            for other in beside:
                value = np.asarray(data.get_item_in_path(other))
                if value.ndim == 0 or len(value) != count:
                    raise FieldValueError(
                        f"{full_path(other)}: must have a row for each of the {count} in {full_path(path)}, "
                        f"got the shape {value.shape}."
                    )
                if not is_same:
                    data.set_item_in_path(other, value[kept])

    def _changed(self, before: Array, values: Array, kept: Array) -> Array:
        rounded = np.rint(values) if before.dtype.kind in "iu" else values
        further = before.reshape(-1, before.shape[-1])[kept, self._columns :]
        array = np.concatenate([rounded.astype(before.dtype), further], axis=1)
        return array.reshape(*before.shape[:-1], -1) if before.ndim != 2 else array


@attrs.frozen
class _Fields:
    images: Sequence[FieldPath]
    masks: Sequence[FieldPath]
    boxes: Mapping[FieldPath, Sequence[FieldPath]]
    points: Mapping[FieldPath, Sequence[FieldPath]]


@functools.lru_cache(maxsize=256)
def _fields_of(
    format: GroupFormat,
    image_names: tuple[Name, ...],
    mask_names: tuple[Name, ...],
    box_and_row_names: tuple[tuple[Name, ...], tuple[Name, ...]],
    point_and_row_names: tuple[tuple[Name, ...], tuple[Name, ...]],
) -> _Fields:
    def found(names: Sequence[Name]) -> list[FieldPath]:
        return [path for name in names for path in format.find(name)]

    def with_rows(names: tuple[tuple[Name, ...], tuple[Name, ...]]) -> dict[FieldPath, list[FieldPath]]:
        beside = {path: [(*path[:-1], name) for name in dict.fromkeys(names[1])] for path in found(names[0])}
        return {
            path: [other for other in others if isinstance(format.get(other), LeafFormat)]
            for path, others in beside.items()
        }

    return _Fields(
        found(image_names), found(mask_names), with_rows(box_and_row_names), with_rows(point_and_row_names)
    )


def _check_sizes(step: object, paths: Sequence[FieldPath], arrays: Sequence[Array]) -> None:
    sizes: dict[tuple[int, ...], FieldPath] = {}
    for path, array in zip(paths, arrays, strict=True):
        if array.ndim not in (2, 3, 4):
            raise FieldValueError(
                f"{full_path(path)}: must be an image (H, W, C), a clip (F, H, W, C) or a mask (H, W), got the "
                f"shape {array.shape}."
            )
        sizes.setdefault(array.shape[-3:-1] if array.ndim > 2 else array.shape, path)
    if len(sizes) > 1:
        found = ", ".join(f"{full_path(path)} {height} x {width}" for (height, width), path in sizes.items())
        raise FieldValueError(
            f"All images and masks must have one size (height x width), got {found}. Apply "
            f"{type(step).__name__} to each camera by a wrapper, e.g. DataGroupArrayWithNameElementsAppliedStep."
        )


def _after_same_type(leaf: LeafFormat) -> ImageContent:
    """What is known after a transform that keeps the type: of floating-point numbers, not the range."""
    content = as_pixels(leaf)
    return content if leaf.dtype == _DT.UINT8 else attrs.evolve(content, value_range=None)


class AlbumentationsStep(ImageLibraryStep):
    """Runs a transform of Albumentations (2.x), where the samples are loaded.

    Images are ``(H, W, C)`` or clips ``(F, H, W, C)`` before and after, masks ``(H, W)`` or ``(H, W, C)``, boxes
    ``(N, 4)`` and points ``(..., 2)`` as ``bbox_params`` and ``keypoint_params`` of the ``Compose`` say (e.g.
    ``"pascal_voc"``: corners in pixels; ``"yolo"``: shares of the image), all found by name anywhere in what the
    step is applied to. The transform is called once with all of them. So all get the same parameters, and images
    and masks must have one size. For cameras that shall get parameters of their own, apply the step to each camera
    by a wrapper.

    Boxes and points that the library drops (too small, outside) are dropped, and the same rows of the fields
    ``box_row_names`` and ``point_row_names`` beside them. Fields that ``label_fields`` of ``bbox_params`` names
    must be beside the boxes; they are such fields, too. All else that depends on the geometry of an image, e.g. a
    projection matrix, stays as it is: use the steps of this package where that matters.

    Random numbers: the generators of the transform, and the global ones of Python, NumPy and PyTorch, are seeded
    by a draw for each sample. The step has its own copy of the transform.

    Example::

        AlbumentationsStep(
            A.Compose(
                [A.RandomCrop(256, 256), A.HorizontalFlip(), A.CLAHE()],
                bbox_params=A.BboxParams("pascal_voc", min_visibility=0.2),
            ),
            "image",
            box_names="boxes",
            box_row_names="labels",
        )
    """

    array_form_needs = ("albumentations",)

    def __init__(
        self,
        transform: Callable[..., Any],
        image_names: Names,
        *,
        box_names: Names | None = None,
        box_row_names: Names | None = None,
        mask_names: Names | None = None,
        point_names: Names | None = None,
        point_row_names: Names | None = None,
        image_type: types.DALIDataType | None = None,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            transform: A ``Compose``, or a single transform where there are no boxes and points.
            image_names: Name or names of images.
            box_names: Name or names of boxes, for a ``Compose`` with ``bbox_params``.
            box_row_names: Name or names of fields beside the boxes, with a row for each box, which go with it.
            mask_names: Name or names of masks.
            point_names: Name or names of points, for a ``Compose`` with ``keypoint_params``.
            point_row_names: Name or names of fields beside the points, with a row for each point.
            image_type: Type of images after the transform; None for that before it.
            key: What the random numbers are held constant over, see `UniformDraw`.

        Raises:
            SettingError: The transform is none, or has no parameters for boxes or points, or another argument
                breaks a rule.
        """
        super().__init__(
            transform,
            image_names,
            mask_names,
            box_names,
            box_row_names,
            point_names,
            point_row_names,
            image_type,
            key,
        )
        self._transform = _compose(transform)
        processors = self._transform.processors
        for names, argument, processor, parameters in (
            (self._box_names, "box_names", "bboxes", "bbox_params"),
            (self._point_names, "point_names", "keypoints", "keypoint_params"),
        ):
            if names and processor not in processors:
                raise SettingError(
                    f"`{argument}` needs a `Compose` with `{parameters}`, which say what they mean."
                )
        if self._box_names:
            self._label_names = tuple(processors["bboxes"].params.label_fields or ())
        if self._point_names:
            self._point_columns = len(processors["keypoints"].params.format)
            if processors["keypoints"].params.label_fields:
                raise SettingError(
                    "`keypoint_params` must be without `label_fields`; name fields beside the points in "
                    "`point_row_names`."
                )

    def _transformed(self, annotated: Annotated, seed: int) -> Annotated:
        transform = self._transform
        # All transforms of it share the two generators.
        transform.set_random_state(np.random.default_rng(seed), random.Random(seed))
        images, masks = _named(annotated.images, "image"), _named(annotated.masks, "mask")
        known = transform.additional_targets
        missing = {name: name.partition("_")[0] for name in (*images, *masks) if "_" in name and name not in known}
        if missing:
            transform.add_targets({**known, **missing})
        given: dict[str, Any] = {**images, **masks, **annotated.labels}
        if annotated.boxes is not None:
            given["bboxes"] = _numbered(annotated.boxes, annotated.box_rows)
        if annotated.points is not None:
            given["keypoints"] = _numbered(annotated.points, annotated.point_rows)
        found = transform(**given)
        for name in (*images, *masks):
            if not isinstance(found[name], np.ndarray):
                raise StepOutputError(
                    f"{self!r}: the transform must return NumPy arrays, got {type(found[name]).__name__} for an "
                    f"image or mask. Leave the conversion to tensors (ToTensorV2) to the loader."
                )
        boxes, box_rows = _apart(found.get("bboxes"), annotated.boxes, annotated.box_rows)
        points, point_rows = _apart(found.get("keypoints"), annotated.points, annotated.point_rows)
        return attrs.evolve(
            annotated,
            images=[found[name] for name in images],
            masks=[found[name] for name in masks],
            boxes=boxes,
            box_rows=box_rows,
            points=points,
            point_rows=point_rows,
        )


def _compose(transform: Any) -> Any:
    """Get a copy of a transform as a ``Compose``, so that one of the user's keeps its generators and targets."""
    albumentations = needed_package("albumentations")
    if isinstance(transform, albumentations.BaseCompose | albumentations.BasicTransform):
        is_compose = isinstance(transform, albumentations.Compose)
        return copy.deepcopy(transform) if is_compose else albumentations.Compose([copy.deepcopy(transform)])
    raise SettingError(f"`transform` must be a transform of Albumentations, e.g. a `Compose`, got {transform!r}.")


def _named(arrays: Any, target: str) -> dict[str, Array]:
    """Arrays by the names under which a ``Compose`` takes them: image, image_1, image_2 ..."""
    return {f"{target}_{number}" if number else target: array for number, array in enumerate(arrays)}


def _numbered(values: Array, rows: Array) -> Array:
    """Get an array with the number of each row as another column, which the library passes on."""
    return np.concatenate([values, rows[:, None].astype(np.float32)], axis=1)


def _apart(found: Any, before: Array | None, rows: Array) -> tuple[Array | None, Array]:
    """Get values and the numbers of the rows that are left."""
    if before is None:
        return None, rows
    columns = before.shape[1]
    if not len(found):
        return before[:0], rows[:0]  # the library forgets further columns
    array = np.asarray(found)
    return array[:, :columns].astype(np.float32), array[:, columns].astype(np.int64)


_BOX_FORMATS = {"xyxy": "XYXY", "xywh": "XYWH", "cxcywh": "CXCYWH"}


class TorchvisionStep(ImageLibraryStep):
    """Runs a transform of ``torchvision.transforms.v2``, on the CPU, where the samples are loaded.

    Images are ``(H, W, C)`` or clips ``(F, H, W, C)`` before and after, masks ``(H, W)`` or ``(H, W, C)``, boxes
    ``(N, 4)``, points ``(..., 2)``, all found by name anywhere in what the step is applied to. The transform is
    called once with all of them, as a dict of tensors of ``torchvision.tv_tensors``: "images", "masks", "boxes",
    "labels" (the numbers of the boxes, so that ``SanitizeBoundingBoxes`` works as it is), "points". So all get the
    same parameters, and images and masks must have one size. For cameras that shall get parameters of their own,
    apply the step to each camera by a wrapper.

    Boxes that the transform drops are dropped, and the same rows of the fields ``box_row_names`` beside them. All
    else that depends on the geometry of an image, e.g. a projection matrix, stays as it is: use the steps of this
    package where that matters.

    Random numbers: PyTorch's generator (and those of Python and NumPy) are seeded by a draw for each sample, and
    are afterwards as they were before.

    Example::

        TorchvisionStep(
            v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2), v2.SanitizeBoundingBoxes()]),
            "image",
            box_names="boxes",
            box_row_names="labels",
        )
        TorchvisionStep(v2.ToDtype(torch.float32, scale=True), "image", image_type=FLOAT)
    """

    array_form_needs = ("torch", "torchvision")

    def __init__(
        self,
        transform: Callable[..., Any],
        image_names: Names,
        *,
        box_names: Names | None = None,
        box_row_names: Names | None = None,
        mask_names: Names | None = None,
        point_names: Names | None = None,
        box_format: str = "xyxy",
        image_type: types.DALIDataType | None = None,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            transform: A transform of ``torchvision.transforms.v2``, or a function of such a dict.
            image_names: Name or names of images.
            box_names: Name or names of boxes, in pixels.
            box_row_names: Name or names of fields beside the boxes, with a row for each box, which go with it.
            mask_names: Name or names of masks.
            point_names: Name or names of points ``(x, y)``, in pixels.
            box_format: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``, before and after.
            image_type: Type of images after the transform; None for that before it.
            key: What the random numbers are held constant over, see `UniformDraw`.

        Raises:
            SettingError: The transform cannot be called, or another argument breaks a rule.
        """
        super().__init__(
            transform, image_names, mask_names, box_names, box_row_names, point_names, None, image_type, key
        )
        self._box_format = choice(box_format, "box_format", (*_BOX_FORMATS,))

    def _transformed(self, annotated: Annotated, seed: int) -> Annotated:
        torch, tv_tensors = needed_package("torch"), needed_package("torchvision.tv_tensors")
        height, width = annotated.images[0].shape[-3:-1]
        given: dict[str, Any] = {"images": [], "masks": [tv_tensors.Mask(_tensor(m)) for m in annotated.masks]}
        for image in annotated.images:
            kind = tv_tensors.Video if image.ndim == 4 else tv_tensors.Image
            given["images"].append(kind(_tensor(image)))
        if annotated.boxes is not None:
            given["boxes"] = tv_tensors.BoundingBoxes(
                torch.from_numpy(annotated.boxes),
                format=_BOX_FORMATS[self._box_format],
                canvas_size=(height, width),
            )
            given["labels"] = torch.from_numpy(annotated.box_rows)
        if annotated.points is not None:
            points = torch.from_numpy(annotated.points)
            given["points"] = tv_tensors.KeyPoints(points, canvas_size=(height, width))
        found = self._transform(given)
        if not isinstance(found, dict) or found.keys() != given.keys():
            raise StepOutputError(
                f"{self!r}: the transform must return a dict of {', '.join(given)}, as it gets, got "
                f"{', '.join(map(str, found)) if isinstance(found, dict) else type(found).__name__}."
            )
        boxes: Any = found.get("boxes")
        rows: Any = found.get("labels")
        if boxes is not None and len(boxes) != len(rows):
            raise StepOutputError(
                f'{self!r}: the transform returned {len(boxes)} boxes, but {len(rows)} of their numbers ("labels" '
                f"in its dict). A transform that drops boxes must drop the same of these."
            )
        return attrs.evolve(
            annotated,
            images=[self._array(i, like) for i, like in zip(found["images"], annotated.images, strict=True)],
            masks=[self._array(m, like) for m, like in zip(found["masks"], annotated.masks, strict=True)],
            boxes=None if boxes is None else boxes.numpy(),
            box_rows=annotated.box_rows if rows is None else rows.numpy(),
            points=None if annotated.points is None else found["points"].numpy(),
        )

    def _array(self, tensor: Any, like: Array) -> Array:
        """Get an image of a tensor ``(..., C, H, W)``; a mask without channels is ``(H, W)``."""
        axes = np.ndim(like)
        if getattr(tensor, "ndim", None) != axes:
            shape = tuple(getattr(tensor, "shape", ()))
            raise StepOutputError(
                f"{self!r}: the transform must return tensors with as many axes as it gets, {axes}; got "
                f"{type(tensor).__name__} {shape}."
            )
        array: Array = tensor.numpy()
        return array if axes == 2 else np.ascontiguousarray(np.moveaxis(array, -3, -1))


def _tensor(array: Array) -> Any:
    """Get a tensor ``(..., C, H, W)`` of a copy of an image: PyTorch knows no read-only memory."""
    copied = needed_package("torch").from_numpy(array.copy())
    return copied if array.ndim == 2 else copied.movedim(-1, -3)
