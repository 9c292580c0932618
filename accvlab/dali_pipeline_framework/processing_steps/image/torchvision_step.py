# SPDX-License-Identifier: Apache-2.0
"""Transforms of torchvision as a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import choice
from ...errors import StepOutputError
from ...operators.array_packages import needed_package
from ..named_fields import Key, Names
from .image_library_step import Annotated, Array, ImageLibraryStep

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
