"""What tests of steps that change images have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from affine_reference import constant_draws
from step_runs import run_step

from accvlab.dali_pipeline_framework.processing_steps import PhotoMetricDistorter


def changed(step: Any, image: np.ndarray, **fields: np.ndarray) -> dict[Any, Any]:
    """The sample after a step whose random numbers are at 0.3 of their ranges."""
    with constant_draws(0.3):
        return run_step(step, [{"image": image, **fields}])[0]


def distorter(**ranges: float) -> PhotoMetricDistorter:
    """A step that does one thing only, always."""
    none = {"brightness": 0.0, "hue": 0.0, "contrast": 1.0, "saturation": 1.0}
    limits = {f"min_max_{name}": [value, value] for name, value in {**none, **ranges}.items()}
    probs = {f"prob_{name}_aug": float(name in ranges) for name in none}
    return PhotoMetricDistorter("image", **limits, **probs, prob_swap_channels=0)
