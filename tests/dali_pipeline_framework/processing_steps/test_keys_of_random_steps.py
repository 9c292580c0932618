"""Each random step has a key for its draws, which says what gets the same ones."""

from __future__ import annotations

import pytest
from support.random_steps import RANDOM_STEPS, each_camera, rig, used_fields

from accvlab.dali_pipeline_framework.testing import StepRun, run_step


def drawn(run: StepRun) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in run.draws.items()}


@pytest.mark.parametrize("name", RANDOM_STEPS)
def test_the_key_tells_which_samples_and_cameras_get_the_same(name: str) -> None:
    samples = [rig("a", used_fields(name))] * 2  # frames of one sequence, of two cameras each
    one, other = run_step(each_camera(RANDOM_STEPS[name]("sample")), samples, seed=3)
    of_cameras = {number: {k: v for k, v in drawn(one).items() if f"/cameras[{number}]" in k} for number in (0, 1)}
    assert {**of_cameras[0], **of_cameras[1]} == drawn(one) != drawn(other)
    assert [*of_cameras[0].values()] != [*of_cameras[1].values()]
    one, other = run_step(each_camera(RANDOM_STEPS[name]("sequence-rig")), samples, seed=3)
    assert drawn(one) == drawn(other) != {}
    assert not any("/cameras[" in draw for draw in one.draws)
    first, *others = (camera for run in (one, other) for camera in run.output["cameras"].values())
    assert all(camera == first for camera in others)
