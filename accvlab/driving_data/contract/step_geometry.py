# SPDX-License-Identifier: Apache-2.0
"""Whether steps keep boxes on their objects: a disc that is drawn at the center of a box must stay there."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PipelineStepBase, SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import (
    ENCODED_NAME,
    image_size,
    needed_package,
    numbers_name,
    step_name,
)
from accvlab.dali_pipeline_framework.testing import run_step

_Array = npt.NDArray[Any]

_RADIUS = 0.04  # of the disc, parts of the smaller side of the image
_LARGEST_SHIFT = 0.03  # parts of the diagonal of the image


@attrs.frozen
class Measured:
    """What came out of a measure.

    Attributes:
        count: How many discs were found again.
        problem: Where the first that is not at its box has left it: step, camera, how far they are apart, and what
            to do; empty where all are at their boxes.
        failures: Of each sample that could not be measured, why.
    """

    count: int
    problem: str
    failures: Sequence[str]


def where_boxes_part(samples: Iterable[SampleDataGroup], steps: Sequence[PipelineStepBase]) -> Measured:
    """Draw a disc at the center of a box of each image, run the steps, and look where disc and box are then.

    In a window, the disc is the same in all frames, and is looked for in the last.

    Args:
        samples: Samples of a provider of driving data, or of windows of one, in the order of its frames.
        steps: The steps of a loader.
    """
    count, failures = 0, []
    for number, sample in enumerate(samples):
        try:
            drawn = _with_discs(sample)
            found, problem = _shifts(sample, steps, number, drawn) if drawn else (0, "")
        except Exception as error:  # of any step
            failures.append(f"{type(error).__name__}: {error}")
            continue
        count += found
        if problem:
            # The first step after which they are apart.
            for last in range(1, len(steps)):
                with contextlib.suppress(Exception):  # images may not be decoded yet
                    _, earlier = _shifts(sample, steps[:last], number, drawn)
                    if earlier:
                        return Measured(count, _told(steps, last - 1, earlier), failures)
            return Measured(count, _told(steps, len(steps) - 1, problem), failures)
    return Measured(count, "", failures)


def _told(steps: Sequence[PipelineStepBase], position: int, problem: str) -> str:
    inner = steps[position]
    while inner.inner_step is not None:
        inner = inner.inner_step
    settings = [f"`{name}`" for name in inspect.signature(type(inner)).parameters if "proj" in name]
    advice = "A step that moves pixels must change their matrices, and one that moves boxes those of the cameras"
    named = f": name them ({', '.join(settings)})" * bool(settings)
    return f"after step {position}, {step_name(steps[position])}: {problem}. {advice}{named}."


def _with_discs(sample: SampleDataGroup) -> list[int]:
    """Replace the images by black ones with a white disc at the center of a box; returns cameras that have one."""
    cv2 = needed_package("cv2")
    drawn = []
    for number, camera in enumerate(sample["cameras"].values()):
        if numbers_name("image") in camera.format.names:
            rule = "nothing can be drawn in an encoded video"
            raise FieldValueError(f"cameras[{number}].image: {rule}. Let the provider decode it for this check.")
        image = _last(camera["image"], 3)
        is_file = image.ndim == 1
        height, width = image_size(image) if is_file else image.shape[:2]
        radius = max(2, round(_RADIUS * min(height, width)))
        places = _projected(camera, sample["boxes"])
        is_inside = ((places > 2 * radius) & (places < [width - 2 * radius, height - 2 * radius])).all(axis=1)
        picture = np.zeros((height, width, 3), np.uint8)
        if is_inside.any():
            x, y = places[is_inside][0]
            cv2.circle(picture, (round(x - 0.5), round(y - 0.5)), radius, (255, 255, 255), -1)
            drawn.append(number)
        _put(camera, cv2.imencode(".png", picture)[1] if is_file else picture)
    return drawn


def _put(camera: SampleDataGroup, picture: _Array) -> None:
    """Replace the image of a camera, or all of its window."""
    image = camera["image"]
    if isinstance(image, SampleDataGroup):
        files = image[ENCODED_NAME]
        for frame in files:
            files[frame] = picture
    else:
        camera["image"] = np.broadcast_to(picture, (*image.shape[: image.ndim - picture.ndim], *picture.shape))


def _last(value: Any, ndim: int) -> _Array:
    """A field that has some dimensions, or the last of its window."""
    while isinstance(value, SampleDataGroup):
        *_, value = value.values()
    values: _Array = np.asarray(value)
    return np.asarray(values[-1]) if values.ndim > ndim else values


def _projected(camera: SampleDataGroup, boxes: SampleDataGroup) -> _Array:
    """Where the centers of boxes are in an image, ``(N, 2)``; NaN behind the camera."""
    matrix = _last(camera["intrinsics"], 2)[:3, :3] @ _last(camera["camera_from_reference"], 2)[:3]
    points = _last(boxes["centers"], 2).astype(np.float64).reshape(-1, 3) @ matrix[:, :3].T + matrix[:, 3]
    depth = np.where(points[:, 2:] > 0.1, points[:, 2:], np.nan)
    return np.asarray(points[:, :2] / depth)


def _shifts(
    sample: SampleDataGroup, steps: Sequence[PipelineStepBase], seed: int, drawn: Sequence[int]
) -> tuple[int, str]:
    """How many discs are found again, and the first that is not at a box."""
    output = run_step(steps, sample.get_copy(), seed=seed, run="auto").output
    cameras = [*output["cameras"].values()]
    found = [(number, cameras[number], _disc(_last(cameras[number]["image"], 3))) for number in drawn]
    places = {number: _projected(camera, output["boxes"]) for number, camera, _ in found}
    count = 0
    for number, _, disc in found:
        if disc is None:
            continue
        count += 1
        place, hw = disc
        off = np.linalg.norm(places[number] - place, axis=1)
        nearest = int(np.nanargmin(off)) if np.isfinite(off).any() else 0
        if not off[nearest] <= max(_LARGEST_SHIFT * np.hypot(*hw), 3):
            x, y = place
            u, v = places[number][nearest]
            return count, (
                f"in cameras[{number}].image the center of a box is at ({x:.0f}, {y:.0f}), but its matrices put "
                f"the nearest box at ({u:.0f}, {v:.0f}), {off[nearest]:.0f} pixels off"
            )
    return count, ""


def _disc(image: _Array) -> tuple[_Array, tuple[int, int]] | None:
    """The middle of the disc in an image, x and y, and the size of the image; None where it is not seen whole."""
    values = image.astype(np.float64)
    if values.ndim != 3:
        return None
    values = values.mean(axis=0 if values.shape[0] in (1, 3) and values.shape[2] not in (1, 3) else 2)
    values = np.abs(values - np.median(values))
    is_disc = values > values.max() / 2
    rows, columns = np.nonzero(is_disc)
    height, width = values.shape
    is_cut = len(rows) and (
        not 0 < rows.min() <= rows.max() < height - 1 or not 0 < columns.min() <= columns.max() < width - 1
    )
    if values.max() < 1e-3 or is_cut or not 4 <= len(rows) < values.size / 4:
        return None
    return np.array([columns.mean() + 0.5, rows.mean() + 0.5]), (height, width)
