# SPDX-License-Identifier: Apache-2.0
"""Steps that apply augmentations of Albumentations and torchvision."""

from __future__ import annotations

import copy
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from ...draws.draw_scope import Draws
from ...draws.keyed_draws import kept_global_generators
from ...draws.random_draws import IntegerDraw, RandomDraw
from ...errors import FieldValueError, SettingError, StepOutputError
from ...operators.array_packages import needed_package
from ...operators.functions import Array
from ...sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import ArrayStep
from ..image_use import PIXELS, ContentRule, ImageUse, as_pixels
from ..named_fields import FieldSearch, Key, Names, as_names, find_paths, required_names
from ..pipeline_step_base import full_path

_DT = types.DALIDataType
_PIXELS = (_DT.UINT8, _DT.INT16, _DT.FLOAT)
_MASKS = (_DT.UINT8, _DT.INT16, _DT.INT32, _DT.INT64, _DT.FLOAT, _DT.BOOL)
_COORDINATES = (_DT.FLOAT, _DT.FLOAT64, _DT.INT32, _DT.INT64)


@attrs.frozen
class Rows:
    """Boxes or points with their numbers.

    Attributes:
        values: The boxes, or points, of all fields, one after the other, ``(N, columns)`` float32.
        numbers: The number that each had before the transform: ``(N,)``; before, 0 to N - 1.
    """

    values: Array
    numbers: Array


@attrs.frozen
class Annotated:
    """Images of one size with masks, boxes and points: input and output of a transform.

    Attributes:
        images: ``(H, W, C)`` or ``(F, H, W, C)``, each.
        masks: ``(H, W)`` or ``(H, W, C)``, each.
        rows: "boxes" with at least four columns and "points" with at least two, if there are fields of them.
        labels: Values next to all boxes, one after the other, by the names that the transform requires.
    """

    images: Sequence[Array]
    masks: Sequence[Array]
    rows: Mapping[str, Rows]
    labels: Mapping[str, Array]


class ImageLibraryStep(ArrayStep):
    """Runs a transform of another library on what fields of some names hold, anywhere in the sample.

    A derived step says how the transform is called. All images, masks, boxes and points get the same parameters in
    one call, so the images and masks of a sample must have one size; for cameras that differ, or that shall get
    parameters of their own, apply the step to each camera by a wrapper.

    While the transform runs, the global generators of Python, NumPy and PyTorch are seeded by a draw of the step.
    """

    _label_names: tuple[str, ...] = ()
    _point_columns = 2

    @explains_unknown_arguments
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
            transform: The transform. For `AlbumentationsStep` a ``Compose``, or a single transform where there are
                no boxes and points; for `TorchvisionStep` one of ``torchvision.transforms.v2``, or a function of
                such a dict.
            image_names: Name or names of images.
            box_names: Name or names of boxes; `AlbumentationsStep` needs a ``Compose`` with ``bbox_params``, for
                `TorchvisionStep` they are ``x1, y1, x2, y2`` in pixels, before and after.
            box_row_names: Name or names of fields next to the boxes, with a row for each box, which go with it.
            mask_names: Name or names of masks.
            point_names: Name or names of points; `AlbumentationsStep` needs a ``Compose`` with
                ``keypoint_params``, for `TorchvisionStep` they are ``x, y`` in pixels.
            point_row_names: Name or names of fields next to the points, with a row for each point.
            image_type: Type of images after the transform; None for the type before it.
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: ``transform`` is not a transform, or has no parameters for boxes or points, or another
                argument breaks a rule.
        """
        if not callable(transform):
            raise SettingError(f"`transform` must be callable, got {transform!r}.")
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
        self._transform = self._prepared(transform)

    def _prepared(self, transform: Any) -> Any:
        """Check the transform, and return it in the form in which it is run."""
        return transform

    @abstractmethod
    def _transformed(self, annotated: Annotated, seed: int) -> Annotated:
        """Call the transform. Boxes and points in what it returns may be fewer."""

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the seed of the generators."""
        return [self._seed]

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images are decoded, and stay as they are but for what the type says."""
        leaves: ContentRule = as_pixels if self._image_type is None else PIXELS
        return [ImageUse(self._image_names, PIXELS, leaves)]

    def _kinds_of_rows(self) -> dict[str, tuple[Sequence[Name], Sequence[Name], int]]:
        """Names of boxes and points, names of fields next to them with a row for each, number of coordinates."""
        return {
            "boxes": (self._box_names, (*self._box_row_names, *self._label_names), 4),
            "points": (self._point_names, self._point_row_names, self._point_columns),
        }

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        search.find(self._image_names, "an image", _PIXELS, group_of="images")
        search.find(self._mask_names, "a mask", _MASKS, group_of="masks")
        for what, (names, row_names, _) in self._kinds_of_rows().items():
            paths = search.find(names, what, _COORDINATES, group_of=what)
            _check_rows(search, paths, row_names, what)
        for name in self._label_names:
            for path in find_paths(data_empty, self._box_names):
                if not isinstance(search.format.get((*path[:-1], name)), LeafFormat):
                    search.add(f"must be next to the boxes, for the label field {name!r}", path, KeyError)
        search.raise_problems()
        self._change_type(data_empty)
        return data_empty

    def _change_type(self, data: SampleDataGroup) -> None:
        if self._image_type is not None:
            for path in find_paths(data, self._image_names):
                data.change_type_of_data_and_remove_data(path, self._image_type)

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        of_images = {dtype for path, dtype in found.items() if path[-1] in self._image_names}
        named = ", ".join(f"`image_type={dtype}`" for dtype in of_images if dtype is not None)
        return f"Name the type of images after the transform: {named}." if named else ""

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        images, masks = (
            {path: data.get_item_in_path(path) for path in find_paths(data, names)}
            for names in (self._image_names, self._mask_names)
        )
        _check_sizes(self, {**images, **masks})
        kinds = {what: kind for what, kind in self._kinds_of_rows().items() if kind[0]}
        rows = {what: _joined(data, find_paths(data, kind[0]), kind[2], what) for what, kind in kinds.items()}
        groups = [path[:-1] for path in find_paths(data, self._box_names)]
        labels = {
            name: np.concatenate([data.get_item_in_path((*group, name)) for group in groups])
            for name in self._label_names
        }
        seed = int(draws["seed"])
        with kept_global_generators(seed):
            after = self._transformed(Annotated([*images.values()], [*masks.values()], rows, labels), seed)
        self._change_type(data)
        for path, array in zip((*images, *masks), (*after.images, *after.masks), strict=True):
            data.set_item_in_path(path, array)
        for what, (names, row_names, columns) in kinds.items():
            _set_rows(data, find_paths(data, names), row_names, columns, after.rows[what])
        return data


def _check_rows(search: FieldSearch, of: Sequence[FieldPath], names: Sequence[Name], what: str) -> None:
    groups = [path[:-1] for path in of]
    for path in of:
        if names and groups.count(path[:-1]) > 1:
            search.add(f"must be the only {what} in its group, since fields next to it have rows for it", path)
    for name in dict.fromkeys(names):
        if not any(isinstance(search.format.get((*group, name)), LeafFormat) for group in groups):
            search.add_missing(name, f"fields next to the {what}")


def _joined(data: SampleDataGroup, paths: Sequence[FieldPath], columns: int, what: str) -> Rows:
    """Join the boxes, or points, of several fields."""
    parts = []
    for path in paths:
        array = data.get_item_in_path(path)
        if array.ndim == 0 or array.shape[-1] < columns or (what == "boxes" and array.ndim != 2):
            raise FieldValueError(
                f"{full_path(path)}: must be {what} (N, {columns}), got the shape {array.shape}."
            )
        parts.append(_in_rows(array)[:, :columns].astype(np.float32))
    values = np.concatenate(parts)
    return Rows(values, np.arange(len(values)))


def _set_rows(
    data: SampleDataGroup, paths: Sequence[FieldPath], row_names: Sequence[Name], columns: int, rows: Rows
) -> None:
    """Set fields to the rows that came back, and drop the others in the fields next to them."""
    start = 0
    for path in paths:
        before = data.get_item_in_path(path)
        count = len(_in_rows(before))
        is_own = (rows.numbers >= start) & (rows.numbers < start + count)
        kept, values = rows.numbers[is_own] - start, rows.values[is_own]
        start += count
        if before.ndim != 2 and not np.array_equal(kept, np.arange(count)):
            raise FieldValueError(
                f"{full_path(path)}: the transform dropped {count - len(kept)} of {count} points; a field "
                f"of the shape {before.shape} cannot have fewer. Let it keep them, or give a field (N, 2)."
            )
        rounded = np.rint(values) if before.dtype.kind in "iu" else values
        changed = np.concatenate([rounded.astype(before.dtype), _in_rows(before)[kept, columns:]], axis=1)
        data.set_item_in_path(path, changed if before.ndim == 2 else changed.reshape(before.shape))
        for other in dict.fromkeys((*path[:-1], name) for name in row_names):
            if isinstance(data.format.get(other), LeafFormat):
                beside = data.get_item_in_path(other)
                if beside.ndim == 0 or len(beside) != count:
                    raise FieldValueError(
                        f"{full_path(other)}: must have a row for each of the {count} in {full_path(path)}, "
                        f"got the shape {beside.shape}."
                    )
                data.set_item_in_path(other, beside[kept])


def _in_rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _check_sizes(step: object, arrays: Mapping[FieldPath, Array]) -> None:
    sizes: dict[tuple[int, ...], FieldPath] = {}
    for path, array in arrays.items():
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
            f'{type(step).__name__} to each camera by a wrapper, e.g. `for_each("cameras", step)`.'
        )


_TARGETS = {"boxes": "bboxes", "points": "keypoints"}  # names of Albumentations


class AlbumentationsStep(ImageLibraryStep):
    """Runs a transform of Albumentations (2.x), where the samples are loaded.

    Images are ``(H, W, C)`` or clips ``(F, H, W, C)`` before and after, masks ``(H, W)`` or ``(H, W, C)``, boxes
    ``(N, 4)`` and points ``(..., 2)`` as ``bbox_params`` and ``keypoint_params`` of the ``Compose`` say (e.g.
    ``"pascal_voc"``: corners in pixels; ``"yolo"``: shares of the image), all found by name anywhere in the group
    that the step is applied to. The transform is called once with all of them. So all get the same parameters, and
    images and masks must have one size. If each camera is to get its own parameters, apply the step to each camera
    by a wrapper.

    Boxes and points that the library drops (too small, outside) are dropped, and the same rows of the fields
    ``box_row_names`` and ``point_row_names`` next to them. Fields that are named in ``label_fields`` of
    ``bbox_params`` must be next to the boxes; their rows are dropped too. Everything else that depends on the
    geometry of an image, e.g. a projection matrix, stays as it is: use the steps of this package where that
    matters.

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

    def _prepared(self, transform: Any) -> Any:
        transform = _compose(transform)
        processors = transform.processors
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
                    "`keypoint_params` must be without `label_fields`; name fields next to the points in "
                    "`point_row_names`."
                )
        return transform

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
        for what, rows in annotated.rows.items():
            given[_TARGETS[what]] = np.column_stack([rows.values, rows.numbers.astype(np.float32)])
        found = transform(**given)
        for name in (*images, *masks):
            if not isinstance(found[name], np.ndarray):
                raise StepOutputError(
                    f"{self!r}: the transform must return NumPy arrays, got {type(found[name]).__name__} for an "
                    f"image or mask. Leave the conversion to tensors (ToTensorV2) to the loader."
                )
        return attrs.evolve(
            annotated,
            images=[found[name] for name in images],
            masks=[found[name] for name in masks],
            rows={what: _numbers_apart(found[_TARGETS[what]], rows) for what, rows in annotated.rows.items()},
        )


def _compose(transform: Any) -> Any:
    """Get a copy of a transform as a ``Compose``, so that one of the user's keeps its generators and targets."""
    albumentations = needed_package("albumentations")
    if isinstance(transform, albumentations.BaseCompose | albumentations.BasicTransform):
        is_compose = isinstance(transform, albumentations.Compose)
        return copy.deepcopy(transform) if is_compose else albumentations.Compose([copy.deepcopy(transform)])
    raise SettingError(f"`transform` must be a transform of Albumentations, e.g. a `Compose`, got {transform!r}.")


def _named(arrays: Any, target: str) -> dict[str, Array]:
    """Arrays by the names under which a ``Compose`` takes them: image, image_1, ...; clips: images, ..."""
    targets = [f"{target}s" if array.ndim == 4 else target for array in arrays]
    counts = [targets[:number].count(each) for number, each in enumerate(targets)]
    return {
        f"{each}_{count}" if count else each: array
        for each, count, array in zip(targets, counts, arrays, strict=True)
    }


def _numbers_apart(found: Any, before: Rows) -> Rows:
    """Split what came back, with the numbers as the column after those that were given."""
    if not len(found):
        return Rows(before.values[:0], before.numbers[:0])  # the library forgets further columns
    array, columns = np.asarray(found), before.values.shape[1]
    return Rows(array[:, :columns].astype(np.float32), array[:, columns].astype(np.int64))


class TorchvisionStep(ImageLibraryStep):
    """Runs a transform of ``torchvision.transforms.v2``, on the CPU, where the samples are loaded.

    Images are ``(H, W, C)`` or clips ``(F, H, W, C)`` before and after, masks ``(H, W)`` or ``(H, W, C)``, boxes
    ``(N, 4)``, points ``(..., 2)``, all found by name anywhere in the group that the step is applied to. The
    transform is called once with all of them, as a dict of tensors of ``torchvision.tv_tensors``: "images",
    "masks", "boxes", "labels" (the numbers of the boxes, so that ``SanitizeBoundingBoxes`` works as it is),
    "points". So all get the same parameters, and images and masks must have one size. If each camera is to get its
    own parameters, apply the step to each camera by a wrapper.

    Boxes that the transform drops are dropped, and the same rows of the fields ``box_row_names`` next to them.
    Everything else that depends on the geometry of an image, e.g. a projection matrix, stays as it is: use the
    steps of this package where that matters.

    Random numbers: the generators of PyTorch, Python and NumPy are seeded by a draw for each sample, and
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

    def _transformed(self, annotated: Annotated, seed: int) -> Annotated:
        torch, tv_tensors = needed_package("torch"), needed_package("torchvision.tv_tensors")
        height, width = annotated.images[0].shape[-3:-1]
        given: dict[str, Any] = {"images": [], "masks": [tv_tensors.Mask(_tensor(m)) for m in annotated.masks]}
        for image in annotated.images:
            kind = tv_tensors.Video if image.ndim == 4 else tv_tensors.Image
            given["images"].append(kind(_tensor(image)))
        if "boxes" in annotated.rows:
            boxes, numbers = (torch.from_numpy(each) for each in attrs.astuple(annotated.rows["boxes"]))
            given["boxes"] = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width))
            given["labels"] = numbers
        if "points" in annotated.rows:
            points = torch.from_numpy(annotated.rows["points"].values)
            given["points"] = tv_tensors.KeyPoints(points, canvas_size=(height, width))
        found = self._transform(given)
        if not isinstance(found, dict) or found.keys() != given.keys():
            raise StepOutputError(
                f"{self!r}: the transform must return a dict of {', '.join(given)}, as it gets, got "
                f"{', '.join(map(str, found)) if isinstance(found, dict) else type(found).__name__}."
            )
        rows = dict(annotated.rows)
        if "boxes" in rows:
            rows["boxes"] = Rows(found["boxes"].numpy(), found["labels"].numpy())
            num_boxes, num_labels = len(rows["boxes"].values), len(rows["boxes"].numbers)
            if num_boxes != num_labels:
                raise StepOutputError(
                    f"{self!r}: the transform returned {num_boxes} boxes, but {num_labels} of their numbers "
                    f'("labels" in its dict). A transform that drops boxes must drop the same of these.'
                )
        if "points" in rows:
            rows["points"] = attrs.evolve(rows["points"], values=found["points"].numpy())
        return attrs.evolve(
            annotated,
            images=[self._array(i, like) for i, like in zip(found["images"], annotated.images, strict=True)],
            masks=[self._array(m, like) for m, like in zip(found["masks"], annotated.masks, strict=True)],
            rows=rows,
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
