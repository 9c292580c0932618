"""Mean and standard deviation taken off images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT, gradient
from support.laws import examples, spread
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework.processing_steps import ImageMeanStdDevNormalizer
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
NUMBERS = [dtype for dtype in NUMPY_TYPES if dtype != DT.BOOL]


def reference(image: np.ndarray, mean: Any = MEAN, std: Any = STD) -> np.ndarray:
    return (image.astype(np.float64) - np.asarray(mean, np.float64)) / np.asarray(std, np.float64)


@settings(max_examples=examples(10, 25), deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_channels=st.integers(1, 4),
    is_scalar=st.tuples(st.booleans(), st.booleans()),
    conditionals=st.booleans(),
)
def test_the_formula(seed: int, num_channels: int, is_scalar: tuple[bool, bool], conditionals: bool) -> None:
    generator = np.random.default_rng(seed)
    images = [
        generator.integers(0, 256, (*generator.integers(1, 7, 2), num_channels), dtype=np.uint8) for _ in range(3)
    ]
    mean = float(generator.uniform(-10, 1000)) if is_scalar[0] else generator.uniform(-10, 1000, num_channels)
    std = float(generator.uniform(0.1, 60)) if is_scalar[1] else generator.uniform(0.1, 60, num_channels)
    step = ImageMeanStdDevNormalizer("image", mean, std)
    for image, found in zip(
        images, run_steps(step, {"image": (DT.UINT8, images)}, conditionals=conditionals)["image"], strict=True
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, reference(image, mean, std), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", [DT.UINT8, DT.FLOAT])
def test_a_mean_far_off_and_a_small_deviation(dtype: DT, run: RunWhere) -> None:
    image = gradient(8, 8).astype(NUMPY_TYPES[dtype])
    [found] = run_steps(ImageMeanStdDevNormalizer("image", 1000, 0.1), {"image": (dtype, [image])}, run=run)[
        "image"
    ]
    np.testing.assert_allclose(found, reference(image, 1000, 0.1), rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_settings_for_images_in_0_1_are_applied_as_given(run: RunWhere) -> None:
    image = np.array([0, 1, 128, 255], np.uint8).reshape(2, 2, 1)
    step = ImageMeanStdDevNormalizer("image", 0.5, 0.5)
    with pytest.warns(
        UserWarning, match=r"values 0\.\.1, but the values are 0\.\.255\. Multiply .* 255"
    ) as caught:
        [found] = run_steps(step, {"image": (DT.UINT8, [image])}, run=run)["image"]
    assert found.ravel().tolist() == [-1, 1, 255, 509]
    assert len(of_product(caught)) == 1


@pytest.mark.parametrize("run", ["graph", "workers"])
@spread("output_type", NUMBERS, 8)
def test_every_output_type_is_produced_and_declared(output_type: DT, run: RunWhere) -> None:
    images = [gradient(4, 6), gradient(3, 5, 2)]
    step = ImageMeanStdDevNormalizer("image", [120, 110, 100], [2, 3, 1], output_type)
    batch = run_steps(step, {"image": (DT.UINT8, images)}, run=run)
    for image, found in zip(images, batch["image"], strict=True):
        expected = reference(image, [120, 110, 100], [2, 3, 1])
        assert found.dtype == NUMPY_TYPES[output_type]
        if output_type in (DT.FLOAT, DT.FLOAT16, DT.FLOAT64):
            np.testing.assert_allclose(
                found, expected, rtol=1e-3 if output_type == DT.FLOAT16 else 1e-6, atol=1e-5
            )
        else:
            limits = np.iinfo(NUMPY_TYPES[output_type])
            assert np.abs(found - np.clip(expected, limits.min, limits.max)).max() <= 0.5001


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_input_of_any_type(dtype: DT, run: RunWhere) -> None:
    image = gradient(4, 6).astype(NUMPY_TYPES[dtype])
    [found] = run_steps(ImageMeanStdDevNormalizer("image", MEAN, STD), {"image": (dtype, [image])}, run=run)[
        "image"
    ]
    np.testing.assert_allclose(found, reference(image), atol=1e-5)


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("mean", [MEAN, tuple(MEAN), np.array(MEAN), np.array(MEAN, np.float32).reshape(1, 1, 3)])
@pytest.mark.parametrize("std", [2, np.array(2.0), np.float32(2), [2, 2, 2], np.array([2, 2, 2])])
def test_numbers_sequences_and_arrays_mean_the_same(mean: Any, std: Any, run: RunWhere) -> None:
    step = ImageMeanStdDevNormalizer("image", mean, std)
    [found] = run_steps(step, {"image": (DT.UINT8, [gradient(4, 6)])}, run=run)["image"]
    np.testing.assert_allclose(found, reference(gradient(4, 6), MEAN, 2), atol=1e-4)


def test_transposed_on_the_way() -> None:
    step = ImageMeanStdDevNormalizer("image", MEAN, STD, output_layout="CHW")
    run = run_steps(step, {"image": (DT.UINT8, [gradient(4, 6)])}, layouts={"image": "HWC"})
    np.testing.assert_allclose(run["image"][0], reference(gradient(4, 6)).transpose(2, 0, 1), atol=1e-5)
    assert run.layouts["image"] == "CHW"
    step = ImageMeanStdDevNormalizer("image", MEAN, STD, DT.FLOAT16, output_layout="FCHW")
    clip = np.stack([gradient(4, 6, phase) for phase in range(3)])
    run = run_steps(step, {"image": (DT.UINT8, [clip])}, layouts={"image": "FHWC"})
    np.testing.assert_allclose(run["image"][0], reference(clip).transpose(0, 3, 1, 2), atol=1e-2)
