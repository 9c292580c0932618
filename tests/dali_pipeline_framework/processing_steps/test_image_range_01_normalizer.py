"""Images divided by 255."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.array_samples import sample_of
from support.arrays import DT, gradient

from accvlab.dali_pipeline_framework.processing_steps import ImageRange01Normalizer
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES
from accvlab.dali_pipeline_framework.testing import run_step


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_images_of_any_size_and_type_divided_by_255(dtype: DT, run: Any) -> None:
    images = [gradient(4, 6), gradient(3, 3, 1), np.zeros((0, 5, 3), np.uint8)]
    images = [image.astype(NUMPY_TYPES[dtype]) for image in images]
    samples = [sample_of({"a": {"image": image}, "image": image, "other": image}) for image in images]
    for image, each in zip(images, run_step(ImageRange01Normalizer("image"), samples, run=run), strict=True):
        for found in (each.output["image"], each.output["a"]["image"]):
            assert (found.dtype, found.shape) == (np.float32, image.shape)
            assert found == pytest.approx(image.astype(np.float64) / 255, abs=1e-6)
            assert dtype != DT.UINT8 or (found == image * np.float32(1 / 255)).all()
        np.testing.assert_array_equal(each.output["other"], image)
