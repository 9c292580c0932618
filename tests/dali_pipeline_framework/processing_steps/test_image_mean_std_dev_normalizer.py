"""Mean and standard deviation taken off images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_runs import assert_forms_agree
from support.array_samples import sample_of
from support.arrays import DT, gradient
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import ImageMeanStdDevNormalizer
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES
from accvlab.dali_pipeline_framework.testing import run_step

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
NUMBERS = [dtype for dtype in NUMPY_TYPES if dtype != DT.BOOL]


def reference(image: np.ndarray, mean: Any = MEAN, std: Any = STD) -> np.ndarray:
    return (image.astype(np.float64) - np.asarray(mean, np.float64)) / np.asarray(std, np.float64)


@settings(max_examples=examples(25, 100), deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_channels=st.integers(1, 4),
    is_scalar=st.tuples(st.booleans(), st.booleans()),
    input_type=st.sampled_from([*NUMPY_TYPES]),
    output_type=st.one_of(st.just(DT.FLOAT), st.sampled_from(NUMBERS)),
    is_chw=st.booleans(),
    is_clip=st.booleans(),
)
@example(0, 3, (False, False), DT.UINT8, DT.FLOAT16, True, True)  # by a table
def test_the_formula(
    seed: int,
    num_channels: int,
    is_scalar: tuple[bool, bool],
    input_type: DT,
    output_type: DT,
    is_chw: bool,
    is_clip: bool,
) -> None:
    generator = np.random.default_rng(seed)
    frames = "F" * is_clip
    shapes = [(2,) * is_clip + (*generator.integers(0, 7, 2), num_channels) for _ in range(3)]
    largest = 127 if input_type == DT.INT8 else 255
    images = [
        generator.integers(0, largest, shape, endpoint=True).astype(NUMPY_TYPES[input_type]) for shape in shapes
    ]
    mean = float(generator.uniform(-10, 1000)) if is_scalar[0] else generator.uniform(-10, 1000, num_channels)
    std = float(generator.uniform(0.1, 60)) if is_scalar[1] else generator.uniform(0.1, 60, num_channels)
    step = ImageMeanStdDevNormalizer(
        "image", mean, std, output_type, output_layout=f"{frames}CHW" if is_chw else ""
    )
    runs = assert_forms_agree(step, images, f"{frames}HWC")
    dtype = np.dtype(NUMPY_TYPES[output_type])
    for image, run in zip(images, runs, strict=True):
        expected, found = reference(image, mean, std), run.output["image"]
        expected = np.moveaxis(expected, -1, -3) if is_chw else expected
        assert found.dtype == dtype
        if dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == np.float16 else 1e-5, atol=1e-3)
        else:
            limits = np.iinfo(dtype)
            assert np.abs(found - np.clip(expected, limits.min, limits.max)).max(initial=0) <= 0.502


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (tuple(MEAN), np.array(2.0)),
        (np.array(MEAN), np.float32(2)),
        (np.array(MEAN, np.float32).reshape(1, 1, 3), [2, 2, 2]),
    ],
)
def test_numbers_sequences_and_arrays_mean_the_same(mean: Any, std: Any) -> None:
    step = ImageMeanStdDevNormalizer("image", mean, std)
    found = run_step(step, sample_of({"image": gradient(4, 6)})).output["image"]
    np.testing.assert_allclose(found, reference(gradient(4, 6), MEAN, 2), atol=1e-4)
