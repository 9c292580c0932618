"""Images padded to multiples of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT, gradient
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import ImageToTileSizePadder
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES


@settings(max_examples=examples(12, 25), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=3),
    tile=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    dtype=st.sampled_from([*NUMPY_TYPES]),
    is_clip=st.booleans(),
    has_layout=st.booleans(),
)
def test_zeros_below_and_on_the_right(
    sizes: list[tuple[int, int]], tile: tuple[int, int], dtype: DT, is_clip: bool, has_layout: bool
) -> None:
    images = [gradient(*size, phase=1).astype(NUMPY_TYPES[dtype]) for size in sizes]
    if is_clip:
        images = [np.stack([image] * 2) for image in images]
    layout = ("FHWC" if is_clip else "HWC") if has_layout else ""
    fields = {"image": (dtype, images), "hw": (DT.INT32, sizes)}
    run = run_steps(ImageToTileSizePadder("image", tile), fields, layouts={"image": layout})
    for image, (height, width), found in zip(images, sizes, run["image"], strict=True):
        added = [(0, 0)] * is_clip + [(0, -height % tile[1]), (0, -width % tile[0]), (0, 0)]
        assert found.dtype == image.dtype
        np.testing.assert_array_equal(found, np.pad(image, added))
    assert run.layouts["image"] == layout
    assert [tuple(hw) for hw in run["hw"]] == sizes  # not named, not touched


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", [DT.INT32, DT.FLOAT])
def test_size_fields_that_are_named_are_rounded_up(dtype: DT, run: RunWhere) -> None:
    fields = {
        "image": (DT.UINT8, [np.zeros((2, 4, 6, 3), np.uint8)]),
        "hw": (dtype, [[(4, 6), (3, 9)]]),  # of the frames of a clip
        "x": {"image_hw": (dtype, [(8, 8)])},
    }
    found = run_steps(ImageToTileSizePadder("image", (4, 8), hw_names=["hw", "image_hw"]), fields, run=run)
    assert found["hw"][0].tolist() == [[8, 8], [8, 12]]
    assert found["x.image_hw"][0].tolist() == [8, 8]
    assert found["hw"][0].dtype == NUMPY_TYPES[dtype]


@pytest.mark.parametrize("size", [4, [[4], [6]], [4, 6, 3]])
def test_sizes_of_another_shape_are_named(size: Any) -> None:
    fields = {"image": (DT.UINT8, [gradient(4, 6)]), "hw": (DT.INT32, [size])}
    with pytest.raises(FieldValueError, match=r"^hw: A size must be height and width, \(2,\), got the shape \("):
        run_steps(ImageToTileSizePadder("image", 4, hw_names="hw"), fields, run="workers")
