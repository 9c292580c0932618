"""What tests of steps that change images have in common."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from affine_reference import constant_draws
from step_runs import run_step
from support.arrays import DT, ArrayProvider

from accvlab.dali_pipeline_framework.processing_steps import PhotoMetricDistorter, PipelineStepBase


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


def assert_format_pickle_and_repr(make: Callable[[str], PipelineStepBase]) -> None:
    """Check a step that keeps the format of images of uint8, and refuses those of whole numbers, by their name."""
    step = make("image")
    blueprint = ArrayProvider({"image": (DT.UINT8, [])}).sample_data_structure
    assert step.check_input_data_format_and_set_output_data_format(blueprint).type_matches(blueprint)
    with pytest.raises(KeyError, match="No occurrences of images found"):
        make("img").check_input_data_format_and_set_output_data_format(blueprint)
    wrong = ArrayProvider({"image": (DT.INT32, [])}).sample_data_structure
    with pytest.raises(ValueError, match="image: must be UINT8"):
        step.check_input_data_format_and_set_output_data_format(wrong)
    assert repr(pickle.loads(pickle.dumps(step))) == repr(step)
    assert repr(step).startswith(f"{type(step).__name__}(image_names=('image',)")
