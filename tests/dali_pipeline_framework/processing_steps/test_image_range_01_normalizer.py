"""Images divided by 255."""

from __future__ import annotations

import numpy as np
import pytest
from step_runs import run_steps
from support.arrays import DT, gradient

from accvlab.dali_pipeline_framework.processing_steps import ImageRange01Normalizer
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

STEP = ImageRange01Normalizer("image")


@pytest.mark.parametrize("conditionals", [False, True])
def test_images_of_any_size_divided_by_255(conditionals: bool) -> None:
    images = [gradient(4, 6), gradient(3, 3, 1), np.zeros((0, 5, 3), np.uint8)]
    fields = {
        "a": {"image": (DT.UINT8, images)},
        "image": (DT.UINT8, images[::-1]),
        "index": (DT.INT64, [3, 4, 5]),
    }
    run = run_steps(STEP, fields, layouts={"a.image": "HWC"}, conditionals=conditionals)
    for image, found, other in zip(images, run["a.image"], run["image"][::-1], strict=True):
        assert found.dtype == other.dtype == np.float32
        assert found.shape == other.shape == image.shape
        assert (found == image * np.float32(1 / 255)).all()
        assert (other == found).all()
    assert [int(index) for index in run["index"]] == [3, 4, 5]
    assert run.layouts["a.image"] == "HWC"


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numbers_of_any_type(dtype: DT, run: RunWhere) -> None:
    image = gradient(4, 6).astype(NUMPY_TYPES[dtype])
    [found] = run_steps(STEP, {"image": (dtype, [image])}, run=run)["image"]
    assert found.dtype == np.float32
    assert found == pytest.approx(image.astype(np.float64) / 255, abs=1e-6)
