# SPDX-License-Identifier: Apache-2.0
"""Transforms of Albumentations as a step."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from ...errors import SettingError, StepOutputError
from ...operators.array_packages import needed_package
from ..named_fields import Key, Names
from .image_library_step import Annotated, Array, ImageLibraryStep


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
