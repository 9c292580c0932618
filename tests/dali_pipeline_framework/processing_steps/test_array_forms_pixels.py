"""Steps that change pixels of arrays: roundings, memory, and images that cannot be changed.

That arrays become what images in a graph become is in the law of each step, and in the contract of all.
"""

from __future__ import annotations

import numpy as np
from step_runs import assert_forms_agree
from support.array_samples import sample_of

from accvlab.dali_pipeline_framework.processing_steps import AxesLayoutSetter, GridMasker, PhotoMetricDistorter


def test_levels_at_which_roundings_differ() -> None:
    """Halves are rounded away from 0 by DALI, and to even numbers by OpenCV."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    half = PhotoMetricDistorter(
        "image", [0, 0], [0, 0], [0.5, 0.5], [1, 1], prob_contrast_aug=1, prob_swap_channels=0
    )
    [run] = assert_forms_agree(half, [levels])
    assert (run.output["image"] == (levels.astype(int) + 1) // 2).all()


def test_what_is_not_changed_is_not_copied() -> None:
    image = np.full((6, 8, 3), 9, np.uint8)
    for step in (
        GridMasker("image", prob=0),
        PhotoMetricDistorter("image", [-9, 9], [-9, 9], [0.5, 1], [0.5, 1], *[1e-30] * 5),
        AxesLayoutSetter("image", "HWC"),
    ):
        sample = sample_of({"image": image})
        assert np.shares_memory(step(sample)["image"], sample["image"]), step
