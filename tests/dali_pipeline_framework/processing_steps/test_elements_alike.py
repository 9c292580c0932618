"""Which public steps treat the elements of an array alike, so that their graphs are folded."""

from __future__ import annotations

import inspect

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase

# All others do. Wrappers treat elements as the step does that they apply.
NOT_ALIKE = "AlbumentationsStep ArrayStep BEVBBoxesTransformer3D LambdaStep MapStep PaddingToUniform"
NOT_ALIKE += " PipelineStepBase TorchvisionStep"


def test_all_public_steps_but_these_treat_elements_alike() -> None:
    found = {}
    for name in dir(processing_steps):
        step = getattr(processing_steps, name)
        if inspect.isclass(step) and issubclass(step, PipelineStepBase):
            found[name] = inspect.getattr_static(step, "treats_elements_alike")
    assert {name for name, is_alike in found.items() if is_alike is False} == {*NOT_ALIKE.split()}
