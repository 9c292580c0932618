"""Which arrays of a format are folded, and to how many elements."""

from __future__ import annotations

import pytest
from nvidia.dali.types import DALIDataType
from support.array_samples import group_of

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.folded_formats import FoldedFormat

FLOAT = DALIDataType.FLOAT


def frames_of_cameras() -> SampleDataGroup:
    """Two frames of three cameras, and two lidars."""
    frame = group_of(time=FLOAT, cameras=(group_of(image=FLOAT, matrix=FLOAT), 3))
    return group_of(index=FLOAT, frames=(frame, 2), lidars=(group_of(points=FLOAT), 2))


FRAMES, CAMERAS, LIDARS = ("frames",), ("frames", 0, "cameras"), ("lidars",)


@pytest.mark.parametrize(
    ("most", "lengths"),
    [
        (1, {}),
        (2, {FRAMES: 2, LIDARS: 2}),
        (5, {FRAMES: 2, LIDARS: 2}),
        (6, {FRAMES: 2, CAMERAS: 3, LIDARS: 2}),
    ],
)
def test_arrays_of_at_most_so_many_elements_are_folded(most: int, lengths: dict[object, int]) -> None:
    assert dict(FoldedFormat.of(frames_of_cameras().format, most).lengths) == lengths


def test_each_element_has_its_flat_position() -> None:
    leaves = FoldedFormat.of(frames_of_cameras().format, 6).leaves
    assert [(leaf.path, leaf.level.lengths, tuple(leaf.members)) for leaf in leaves] == [
        (("index",), (), (0,)),
        (("frames", 0, "time"), (2,), (1, 8)),
        (("frames", 0, "cameras", 0, "image"), (2, 3), (2, 4, 6, 9, 11, 13)),
        (("frames", 0, "cameras", 0, "matrix"), (2, 3), (3, 5, 7, 10, 12, 14)),
        (("lidars", 0, "points"), (2,), (15, 16)),
    ]
