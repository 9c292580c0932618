# SPDX-License-Identifier: Apache-2.0
"""Labels of KITTI tracking: objects in coordinates of the rectified camera 0, and boxes in images of camera 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from ..driving.driving_index import Box2dColumns, BoxColumns, first_column
from .kitti_sequences import KittiSequence
from .text_files import read_text

Float64Array = npt.NDArray[np.float64]

DONT_CARE = "DontCare"
LABELLED_CAMERA = "image_02"
CATEGORIES = ("Car", "Van", "Truck", "Pedestrian", "Person", "Cyclist", "Tram", "Misc")
# By KITTI's number: whether the edge of the image cuts an object off.
ATTRIBUTES = ("not_truncated", "partly_truncated", "largely_truncated")
# By KITTI's number: fully visible, partly occluded, largely occluded, unknown.
_VISIBILITIES = (4, 3, 1, 0)
# A box has x along the length, y to the left, z up; at rotation_y 0, x is the x of the camera.
_CAMERA_FROM_BOX = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])


@attrs.frozen
class Label:
    """One line.

    Attributes:
        frame: Place of the frame in its sequence.
        track: Number of the object; -1 for none.
        category: Name.
        truncation: 0 to 2.
        occlusion: 0 to 3.
        box: ``x1, y1, x2, y2``, pixels.
        size: Length, width, height.
        location: Center of the lower face in coordinates of the rectified camera 0.
        rotation_y: Angle about the y axis of that camera, which points down.
    """

    frame: int
    track: int
    category: str
    truncation: int
    occlusion: int
    box: tuple[float, ...]
    size: tuple[float, ...]
    location: tuple[float, ...]
    rotation_y: float


def read_labels(path: Path, numbers: Sequence[int]) -> list[Label]:
    """Read the labels of a sequence with these numbers of frames; those of a frame stand together.

    Raises:
        FileError: A line is not as it should be, or is of a frame that is not there.
    """
    place_of = {number: place for place, number in enumerate(numbers)}
    labels = []
    for line_number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        where = f"Line {line_number} of {str(path)!r}"
        try:
            if len(words) not in (17, 18):
                raise ValueError(f"there must be 17 values, got {len(words)}")
            values = [float(word) for word in words[3:17]]
            if not np.isfinite(values).all():
                raise ValueError("values must be finite")
            label = Label(
                frame=int(words[0]),
                track=int(words[1]),
                category=words[2],
                truncation=int(values[0]),
                occlusion=int(values[1]),
                box=tuple(values[3:7]),
                size=(values[9], values[8], values[7]),
                location=tuple(values[10:13]),
                rotation_y=values[13],
            )
            if not -1 <= label.track < 2**31:
                raise ValueError(f"the track must be a number from -1 to 2**31 - 1, got {words[1]}")
            if label.category != DONT_CARE and min(label.size) <= 0:
                raise ValueError(f"height, width and length must be above 0, got {words[10:13]}")
        except ValueError as error:
            raise FileError(f"{where} is no label: {error}. It is {line[:120]!r}.") from None
        if label.frame not in place_of:
            raise FileError(
                f"{where} is of frame {label.frame}, which the sequence does not have: its frames are "
                f"{numbers[0]} to {numbers[-1]}."
            )
        labels.append(attrs.evolve(label, frame=place_of[label.frame]))
    return sorted(labels, key=lambda label: label.frame)


def categories_of(labels: Sequence[Sequence[Label]]) -> list[str]:
    """Names of the categories: those of KITTI, and others that occur."""
    found = {label.category for of_sequence in labels for label in of_sequence}
    return [*CATEGORIES, *sorted(found - {*CATEGORIES, DONT_CARE})]


def box_columns(
    labels: Sequence[Sequence[Label]],
    sequences: Sequence[KittiSequence],
    rectified_from_base: Sequence[Float64Array],
    categories: Sequence[str],
    cameras: Sequence[str],
) -> tuple[BoxColumns, Box2dColumns | None]:
    """Make the columns of the labels of all sequences."""
    number_of = {name: number for number, name in enumerate(categories)}
    objects: list[Label] = []
    centers, rotations = [], []
    counts: list[int] = []
    boxes, projections, depths, classes, box_rows = [], [], [], [], []
    counts_2d: list[int] = []
    for of_sequence, sequence, pose in zip(labels, sequences, rectified_from_base, strict=True):
        base_from_rectified = poses.inverse(pose)
        of_frames: list[list[Label]] = [[] for _ in sequence.numbers]
        for label in of_sequence:
            of_frames[label.frame].append(label)
        for of_frame in of_frames:
            counts.append(sum(label.category != DONT_CARE for label in of_frame))
            for label in of_frame:
                row, center = -1, np.zeros(3)
                if label.category != DONT_CARE:
                    row = len(objects)
                    objects.append(label)
                    center = poses.moved(base_from_rectified, np.array(label.location) - [0, label.size[2] / 2, 0])
                    centers.append(center)
                    rotations.append(base_from_rectified[:, :3] @ _about_y(label.rotation_y) @ _CAMERA_FROM_BOX)
                if LABELLED_CAMERA in cameras:
                    x1, y1, x2, y2 = label.box
                    projection, depth = np.array([(x1 + x2) / 2, (y1 + y2) / 2]), -1.0
                    if row >= 0:
                        in_camera = poses.moved(sequence.camera_from_base[LABELLED_CAMERA], center)
                        depth = float(in_camera[2])
                        if depth > 0:
                            projected = sequence.intrinsics[LABELLED_CAMERA] @ in_camera
                            projection = projected[:2] / projected[2]
                    boxes.append(label.box)
                    projections.append(projection)
                    depths.append(depth)
                    classes.append(number_of.get(label.category, -1))
                    box_rows.append(row)
            counts_2d += [len(of_frame) if camera == LABELLED_CAMERA else 0 for camera in cameras]
    columns = BoxColumns(
        first=first_column(counts),
        center=np.array(centers, np.float64).reshape(-1, 3),
        size=np.array([label.size for label in objects], np.float64).reshape(-1, 3),
        rotation=poses.quaternion_of_rotation(np.array(rotations, np.float64).reshape(-1, 3, 3)),
        velocity=np.full((len(objects), 3), np.nan),
        category=np.array([number_of[label.category] for label in objects], np.int32),
        instance=np.array([label.track for label in objects], np.int64),
        attribute=np.array(
            [label.truncation if 0 <= label.truncation < len(ATTRIBUTES) else -1 for label in objects], np.int32
        ),
        visibility=np.array(
            [_VISIBILITIES[label.occlusion] if 0 <= label.occlusion <= 3 else 0 for label in objects], np.int32
        ),
    )
    if LABELLED_CAMERA not in cameras:
        return columns, None
    return columns, Box2dColumns(
        first=first_column(counts_2d),
        box=np.array(boxes, np.float64).reshape(-1, 4),
        center=np.array(projections, np.float64).reshape(-1, 2),
        depth=np.array(depths, np.float64),
        category=np.array(classes, np.int32),
        box_row=np.array(box_rows, np.int64),
    )


def _about_y(angle: float) -> Float64Array:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])
