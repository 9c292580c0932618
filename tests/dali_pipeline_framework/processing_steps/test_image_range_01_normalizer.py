"""Images divided by 255."""

from __future__ import annotations

import numpy as np
import pytest
from step_runs import run_steps
from support.arrays import DT, gradient

from accvlab.dali_pipeline_framework.processing_steps import ImageRange01Normalizer
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_images_of_any_size_and_type_divided_by_255(dtype: DT, run: RunWhere) -> None:
    images = [gradient(4, 6), gradient(3, 3, 1), np.zeros((0, 5, 3), np.uint8)]
    images = [image.astype(NUMPY_TYPES[dtype]) for image in images]
    fields = {"a": {"image": (dtype, images)}, "image": (dtype, images), "index": (DT.INT64, [3, 4, 5])}
    found = run_steps(ImageRange01Normalizer("image"), fields, run=run)
    for name in ("image", "a.image"):
        for image, one in zip(images, found[name], strict=True):
            assert (one.dtype, one.shape) == (np.float32, image.shape)
            assert one == pytest.approx(image.astype(np.float64) / 255, abs=1e-6)
            assert dtype != DT.UINT8 or (one == image * np.float32(1 / 255)).all()
    assert [int(index) for index in found["index"]] == [3, 4, 5]
