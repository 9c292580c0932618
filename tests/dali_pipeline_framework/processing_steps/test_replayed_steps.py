"""Each random step: a record of its draws, applied again, gives the same bits; and its key is honoured."""

from __future__ import annotations

import itertools
from typing import Any

from support.laws import each_value
from support.random_steps import RANDOM_STEPS, each_camera, random_steps_of, rig, used_fields

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.draws import FieldKey
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import StepRun, run_step

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


def samples_for(name: str) -> list[SampleDataGroup]:
    return [rig(scene, used_fields(name)) for scene in SCENES]


@each_value(name=RANDOM_STEPS, key=KEYS)
def test_the_key_tells_which_samples_and_cameras_get_the_same(name: str, key: str) -> None:
    step = each_camera(RANDOM_STEPS[name](KEYS[key]))
    samples = samples_for(name)
    runs = run_step(step, samples, seed=3)
    for one, two in itertools.combinations(range(4), 2):
        alike = any({one, two} <= {*group} for group in ALIKE[key])
        assert (drawn(runs[one]) == drawn(runs[two])) == alike
        if alike:
            assert runs[one].output["cameras"] == runs[two].output["cameras"]
    is_shared = key.endswith("rig")
    assert [*runs[0].draws] != []
    assert all(("/cameras[" in draw) != is_shared for draw in runs[0].draws)
    others = (run_step(step, samples[0], seed=seed) for seed in range(4, 20 * (not is_shared)))
    both_cameras = (run.output["cameras"] for run in itertools.chain(runs, others))
    assert all(both[0] == both[1] for both in both_cameras) == is_shared


def test_all_random_steps_are_among_them() -> None:
    elsewhere = {"AlbumentationsStep", "ArrayStep", "MapStep", "PipelineStepBase", "TorchvisionStep"}
    assert random_steps_of(processing_steps) - elsewhere == RANDOM_STEPS.keys()
