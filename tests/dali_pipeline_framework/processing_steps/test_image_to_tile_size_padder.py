"""Images padded to multiples of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.array_samples import sample_of
from support.arrays import DT, gradient
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import ImageToTileSizePadder
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES
from accvlab.dali_pipeline_framework.testing import run_step


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
    samples = [sample_of({"image": image, "hw": np.array(hw)}) for image, hw in zip(images, sizes, strict=True)]
    layouts: Any = {"image": layout} if layout else {}
    step = ImageToTileSizePadder("image", tile)
    runs, on_arrays = run_step(step, samples, layouts=layouts), run_step(step, samples, run="workers")
    for image, (height, width), run, other in zip(images, sizes, runs, on_arrays, strict=True):
        added = [(0, 0)] * is_clip + [(0, -height % tile[1]), (0, -width % tile[0]), (0, 0)]
        for found in (run.output, other.output):
            assert found["image"].dtype == image.dtype
            np.testing.assert_array_equal(found["image"], np.pad(image, added))
            assert found["hw"].tolist() == [height, width]  # not named, not touched
        assert run.layouts.get("image", "") == layout


STEP = ImageToTileSizePadder("image", (4, 8), hw_names=["hw", "image_hw"])


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_size_fields_that_are_named_are_rounded_up(dtype: Any, run: Any) -> None:
    sizes = {"hw": np.array([(4, 6), (3, 9)], dtype), "x": {"image_hw": np.array([8, 8], dtype)}}  # of frames, too
    found = run_step(STEP, sample_of({"image": np.zeros((2, 4, 6, 3), np.uint8), **sizes}), run=run).output
    assert found["hw"].tolist() == [[8, 8], [8, 12]]
    assert found["x"]["image_hw"].tolist() == [8, 8]
    assert found["hw"].dtype == dtype


@pytest.mark.parametrize("size", [4, [[4], [6]], [4, 6, 3]])
def test_sizes_of_another_shape_are_named(size: Any) -> None:
    sample = sample_of({"image": gradient(4, 6), "hw": np.array(size), "image_hw": np.array([4, 6])})
    with pytest.raises(FieldValueError, match=r"^hw: A size must be height and width, \(2,\), got the shape \("):
        run_step(STEP, sample, run="workers")
