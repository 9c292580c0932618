"""Mean and standard deviation taken off images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT, gradient
from support.laws import examples
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework.processing_steps import ImageMeanStdDevNormalizer
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
NUMBERS = [dtype for dtype in NUMPY_TYPES if dtype != DT.BOOL]


def reference(image: np.ndarray, mean: Any = MEAN, std: Any = STD) -> np.ndarray:
    return (image.astype(np.float64) - np.asarray(mean, np.float64)) / np.asarray(std, np.float64)


@settings(max_examples=examples(40, 100), deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_channels=st.integers(1, 4),
    is_scalar=st.tuples(st.booleans(), st.booleans()),
    input_type=st.sampled_from([*NUMPY_TYPES]),
    output_type=st.one_of(st.just(DT.FLOAT), st.sampled_from(NUMBERS)),
    is_chw=st.booleans(),
    run=st.sampled_from(["graph", "workers"]),
)
def test_the_formula(
    seed: int,
    num_channels: int,
    is_scalar: tuple[bool, bool],
    input_type: DT,
    output_type: DT,
    is_chw: bool,
    run: RunWhere,
) -> None:
    generator = np.random.default_rng(seed)
    shapes = [(*generator.integers(1, 7, 2), num_channels) for _ in range(3)]
    images = [
        generator.integers(0, 128 if input_type == DT.INT8 else 256, shape).astype(NUMPY_TYPES[input_type])
        for shape in shapes
    ]
    mean = float(generator.uniform(-10, 1000)) if is_scalar[0] else generator.uniform(-10, 1000, num_channels)
    std = float(generator.uniform(0.1, 60)) if is_scalar[1] else generator.uniform(0.1, 60, num_channels)
    layout = "CHW" if is_chw else ""
    step = ImageMeanStdDevNormalizer("image", mean, std, output_type, output_layout=layout)
    batch = run_steps(step, {"image": (input_type, images)}, run=run)
    dtype = np.dtype(NUMPY_TYPES[output_type])
    for image, found in zip(images, batch["image"], strict=True):
        expected = reference(image, mean, std)
        expected = expected.transpose(2, 0, 1) if is_chw else expected
        assert found.dtype == dtype
        if dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == np.float16 else 1e-5, atol=1e-3)
        else:
            limits = np.iinfo(dtype)
            assert np.abs(found - np.clip(expected, limits.min, limits.max)).max() <= 0.502


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_settings_for_images_in_0_1_are_applied_as_given(run: RunWhere) -> None:
    image = np.array([0, 1, 128, 255], np.uint8).reshape(2, 2, 1)
    step = ImageMeanStdDevNormalizer("image", 0.5, 0.5)
    message = r"values 0\.\.1, but the values are 0\.\.255\. Multiply .* 255"
    with pytest.warns(UserWarning, match=message) as caught:
        [found] = run_steps(step, {"image": (DT.UINT8, [image])}, run=run)["image"]
    assert found.ravel().tolist() == [-1, 1, 255, 509]
    assert len(of_product(caught)) == 1


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
    [found] = run_steps(step, {"image": (DT.UINT8, [gradient(4, 6)])})["image"]
    np.testing.assert_allclose(found, reference(gradient(4, 6), MEAN, 2), atol=1e-4)


def test_transposed_on_the_way() -> None:
    step = ImageMeanStdDevNormalizer("image", MEAN, STD, output_layout="CHW")
    run = run_steps(step, {"image": (DT.UINT8, [gradient(4, 6)])}, layouts={"image": "HWC"})
    assert run.layouts["image"] == "CHW"
    step = ImageMeanStdDevNormalizer("image", MEAN, STD, DT.FLOAT16, output_layout="FCHW")
    clip = np.stack([gradient(4, 6, phase) for phase in range(3)])
    run = run_steps(step, {"image": (DT.UINT8, [clip])}, layouts={"image": "FHWC"})
    np.testing.assert_allclose(run["image"][0], reference(clip).transpose(0, 3, 1, 2), atol=1e-2)
