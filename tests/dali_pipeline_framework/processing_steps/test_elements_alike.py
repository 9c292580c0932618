"""Which public steps treat the elements of an array alike, so that their graphs are folded."""

from __future__ import annotations

import inspect

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase

# All others do. Wrappers treat elements as the step does that they apply.
NOT_ALIKE = "AlbumentationsStep ArrayStep BEVBBoxesTransformer3D LambdaStep MapStep PaddingToUniform"
NOT_ALIKE += " PipelineStepBase TorchvisionStep"


def test_all_public_steps_but_these_treat_elements_alike() -> None:
    public = {name: getattr(processing_steps, name) for name in processing_steps.__all__}
    steps = {name: it for name, it in public.items() if inspect.isclass(it) and issubclass(it, PipelineStepBase)}
    alike = {name: inspect.getattr_static(step, "treats_elements_alike") for name, step in steps.items()}
    assert {name for name, is_alike in alike.items() if is_alike is False} == {*NOT_ALIKE.split()}
