# SPDX-License-Identifier: Apache-2.0
"""Base class of steps that work on NumPy arrays only."""

from __future__ import annotations

from abc import abstractmethod

from ...errors import NotSupportedError
from ...sample_data import SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ..pipeline_step_base import PipelineStepBase


class ArrayStep(PipelineStepBase):
    """A step in NumPy, OpenCV or whatever works on arrays: one sample goes in, one sample comes out.

    It runs where the samples are loaded, in the worker processes, before the graph. So it cannot follow a step
    that has a form for the graph only.

    The values are NumPy arrays of one sample, without a batch axis; text is its bytes, uint8. They are read-only:
    a field is changed by setting it to another array. The output format is that of the input, unless the step
    overrides ``_check_and_adjust_data_format_input_to_output``; what comes out must have the declared types.

    Example::

        class Noise(ArrayStep):
            def declare_draws(self, data_empty):
                return [UniformDraw("strength", 0, 10)]

            def _process_arrays(self, data):
                image = data["image"]
                noise = np.random.normal(0, self.draw("strength"), image.shape)
                data["image"] = np.clip(image + noise, 0, 255).astype(np.uint8)
                return data
    """

    @abstractmethod
    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        """Apply the step to a sample of arrays. ``data`` may be changed and returned, not the arrays in it."""

    @property
    def has_graph_form(self) -> bool:
        """Whether a derived class has one, too."""
        return type(self)._process is not ArrayStep._process

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        raise NotSupportedError(
            f"{type(self).__name__} works on arrays only, so it cannot be part of a graph. Give it to a "
            f"`DataLoader` or a `PipelineDefinition`, which run it in the worker processes."
        )

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty
