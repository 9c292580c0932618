"""Each random step: a record of its draws, applied again, gives the same bits; and its key is honoured."""

from __future__ import annotations

import importlib
import inspect
import itertools
from typing import Any

import pytest
from support.random_steps import RANDOM_STEPS, each_camera, rig

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.sample_data import FieldKey
from accvlab.dali_pipeline_framework.testing import StepRun, run_step, sample_differences

KEYS: dict[str, Any] = {
    "sample": "sample",
    "rig": "rig",
    "sequence": "sequence",
    "sequence-rig": "sequence-rig",
    "field": ("scene",),
    "field-rig": FieldKey("scene", shared=True),
}
SCENES = ["a", "a", "b", "b"]
# Samples whose draws must be the same.
ALIKE = {
    "sample": [],
    "rig": [],
    "sequence": [[0, 1, 2, 3]],
    "sequence-rig": [[0, 1, 2, 3]],
    "field": [[0, 1], [2, 3]],
    "field-rig": [[0, 1], [2, 3]],
}


def drawn(run: StepRun) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in run.draws.items()}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", RANDOM_STEPS)
def test_a_record_applied_again_and_the_key(name: str, key: str) -> None:
    step = each_camera(RANDOM_STEPS[name](KEYS[key]))
    samples = [rig(scene) for scene in SCENES]
    runs = run_step(step, samples, seed=3)

    # Replayed in batches of another size, in another order, with another seed.
    for numbers in ([3, 1, 0], [2]):
        again = run_step(
            step,
            [samples[number] for number in numbers],
            draws=[runs[number].draws for number in numbers],
            seed=4,
        )
        for number, replayed in zip(numbers, again, strict=True):
            assert sample_differences(runs[number].output, replayed.output) == []
            assert drawn(replayed) == drawn(runs[number])
    # Made as far as they are needed: a coin may fall on the same side again.
    others = (run_step(step, samples[0], seed=seed) for seed in range(4, 20))
    assert any(sample_differences(runs[0].output, other.output) for other in others)

    # The key: which samples, and which cameras, get the same.
    for one, two in itertools.combinations(range(4), 2):
        alike = any({one, two} <= {*group} for group in ALIKE[key])
        assert (drawn(runs[one]) == drawn(runs[two])) == alike
        if alike:
            assert runs[one].output["cameras"] == runs[two].output["cameras"]
    is_shared = key.endswith("rig")
    assert [*runs[0].draws] != []
    assert all(("/cameras[" in draw) != is_shared for draw in runs[0].draws)
    both_cameras = (run.output["cameras"] for run in itertools.chain(runs, () if is_shared else others))
    assert all(both[0] == both[1] for both in both_cameras) == is_shared


def test_all_random_steps_are_among_them() -> None:
    random = set()
    for name in processing_steps.__all__:
        step = getattr(processing_steps, name)
        module = importlib.import_module(step.__module__)
        is_step = inspect.isclass(step) and issubclass(step, PipelineStepBase)
        if is_step and ("declare_draws" in vars(step) or "fn.random" in inspect.getsource(module)):
            random.add(name)
    assert random - {"PipelineStepBase"} == RANDOM_STEPS.keys()
