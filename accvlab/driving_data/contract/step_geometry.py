# SPDX-License-Identifier: Apache-2.0
"""Whether steps keep boxes on their objects: a disc that is drawn at the center of a box must stay there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PipelineStepBase, SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.extension import image_size, needed_package
from accvlab.dali_pipeline_framework.testing import run_step

_Array = npt.NDArray[Any]

_RADIUS = 0.04  # of the disc, parts of the smaller side of the image
_LARGEST_SHIFT = 0.03  # parts of the diagonal of the image


def where_boxes_part(samples: Iterable[SampleDataGroup], steps: Sequence[PipelineStepBase]) -> tuple[int, str]:
    """Draw a disc at the center of a box of each image, run the steps, and look where disc and box are then.

    Args:
        samples: Samples of a provider of driving data, in the order of its frames.
        steps: The steps of a loader.

    Returns:
        How many discs were found again, and where the first that is not at its box has left it: step, camera, and
        how far they are apart; empty where all are at their boxes.
    """
    count = 0
    for number, sample in enumerate(samples):
        drawn = _with_discs(sample)
        if not drawn:
            continue
        found, problem = _shifts(sample, steps, number, drawn)
        if problem:
            # The first step after which they are apart.
            for last in range(1, len(steps)):
                _, earlier = _shifts(sample, steps[:last], number, drawn)
                if earlier:
                    return count + found, f"after step {last - 1}, {_named(steps[last - 1])}: {earlier}"
            return count + found, f"after step {len(steps) - 1}, {_named(steps[-1])}: {problem}"
        count += found
    return count, ""


def _named(step: PipelineStepBase) -> str:
    """Class of a step, and of the step that it wraps."""
    return " of ".join(dict.fromkeys(re.findall(r"\b([A-Z]\w+)\(", repr(step))[:2]))


def _with_discs(sample: SampleDataGroup) -> list[int]:
    """Replace the images by black ones with a white disc at the center of a box; returns cameras that have one."""
    cv2 = needed_package("cv2")
    drawn = []
    for number, camera in enumerate(sample["cameras"].values()):
        image = camera["image"]
        is_file = isinstance(image, np.ndarray) and image.ndim == 1
        if not is_file and not (isinstance(image, np.ndarray) and image.ndim == 3):
            continue
        height, width = image_size(image) if is_file else image.shape[:2]
        radius = max(2, round(_RADIUS * min(height, width)))
        places = _projected(camera, sample["boxes"])
        is_inside = ((places > 2 * radius) & (places < [width - 2 * radius, height - 2 * radius])).all(axis=1)
        picture = np.zeros((height, width, 3), np.uint8)
        if is_inside.any():
            x, y = places[is_inside][0]
            cv2.circle(picture, (round(x - 0.5), round(y - 0.5)), radius, (255, 255, 255), -1)
            drawn.append(number)
        camera["image"] = cv2.imencode(".png", picture)[1] if is_file else picture
    return drawn


def _projected(camera: SampleDataGroup, boxes: SampleDataGroup) -> _Array:
    """Where the centers of boxes are in an image, ``(N, 2)``; NaN behind the camera."""
    matrix = np.asarray(camera["intrinsics"])[:3, :3] @ np.asarray(camera["camera_from_reference"])[:3]
    points = np.asarray(boxes["centers"], np.float64).reshape(-1, 3) @ matrix[:, :3].T + matrix[:, 3]
    depth = np.where(points[:, 2:] > 0.1, points[:, 2:], np.nan)
    return np.asarray(points[:, :2] / depth)


def _shifts(
    sample: SampleDataGroup, steps: Sequence[PipelineStepBase], seed: int, drawn: Sequence[int]
) -> tuple[int, str]:
    """How many discs are found again, and the first that is not at a box."""
    try:
        output = run_step(steps, sample.get_copy(), seed=seed, run="auto").output
        cameras = [*output["cameras"].values()]
        found = [(number, cameras[number], _disc(cameras[number]["image"])) for number in drawn]
        boxes = output["boxes"]
        places = {number: _projected(camera, boxes) for number, camera, _ in found}
    except (FrameworkError, LookupError, ValueError):  # the steps make something else of the sample
        return 0, ""
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


def _disc(image: Any) -> tuple[_Array, tuple[int, int]] | None:
    """The middle of the disc in an image, x and y, and the size of the image; None where it is not seen whole."""
    values = np.asarray(image, np.float64)
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
