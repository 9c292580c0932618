# SPDX-License-Identifier: Apache-2.0
"""Native readers beside each other, and beside an input that is loaded by workers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ..errors import SettingError
from ..providers.summary import summary
from ..sample_data import SampleDataGroup
from ..sample_data.names import Name
from .input_base import InputBase
from .native_input import NativeInput


class JoinedInput(InputBase):
    """Several inputs in one pipeline: any number of native readers, and at most one callable or iterable.

    A sample has one group per input::

        JoinedInput({"front": VideoReader(...), "ego": SamplerInputCallable(provider, sampler)})

        front
          frames: UINT8
        ego
          pose: FLOAT

    With a callable or iterable, its epochs are those of the pipeline, and the readers just go on, each as one
    stream without end: they are not told where an epoch begins. Without one, all readers must have the same
    number of samples, shards, and policy; all have the same seed, so that readers over the same number of
    samples stay in step also where they shuffle.
    """

    def __init__(self, inputs: Mapping[Name, Any]) -> None:
        """Join inputs.

        Args:
            inputs: The inputs by the names of their groups.

        Raises:
            SettingError: There is no input, more than one is a callable or iterable, or there is no reader.
        """
        if not isinstance(inputs, Mapping) or not inputs:
            raise SettingError(f"`inputs` must be a dict with at least one input, got {inputs!r}.")
        self._inputs = dict(inputs)
        others = [name for name, each in self._inputs.items() if not isinstance(each, NativeInput)]
        for name, each in self._inputs.items():
            if not hasattr(each, "used_sample_data_structure"):
                rule = "must be a native reader, a callable or an iterable"
                raise SettingError(f"Input {name!r} {rule}, got {type(each).__name__}.")
            if isinstance(each, NativeInput) and not each.is_joinable and len(self._inputs) > 1:
                raise SettingError(
                    f"Input {name!r}, a {type(each).__name__}, makes batches of its own sizes, so that no other "
                    f"input can stand beside it."
                )
        if len(others) > 1:
            raise SettingError(
                f"At most one input can be a callable or an iterable, since its epochs are those of the pipeline; "
                f"got {', '.join(map(repr, others))}. Join their providers instead."
            )
        if len(others) == len(self._inputs):
            raise SettingError(
                "At least one input must be a native reader; a callable alone needs no JoinedInput."
            )
        self._main = others[0] if others else None
        _ = self.used_sample_data_structure  # complains about names

    def __repr__(self) -> str:
        """Return the inputs by name."""
        inputs = ", ".join(f"{name!r}: {summary(each)}" for name, each in self._inputs.items())
        return f"{type(self).__name__}({{{inputs}}})"

    @property
    def inputs(self) -> dict[Name, Any]:
        """The inputs by name, in the order of their groups."""
        return dict(self._inputs)

    @property
    def main(self) -> Any:
        """The callable or iterable, or None."""
        return None if self._main is None else self._inputs[self._main]

    @property
    def readers(self) -> dict[Name, NativeInput]:
        """The native readers by name."""
        return {name: each for name, each in self._inputs.items() if isinstance(each, NativeInput)}

    def with_inputs(self, changed: Mapping[Name, Any]) -> JoinedInput:
        """Get a copy with other inputs under some of the names."""
        joined = copy.copy(self)
        joined._inputs = {**self._inputs, **changed}
        return joined

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples: one group per input."""
        blueprint = SampleDataGroup()
        for name, each in self._inputs.items():
            blueprint.add_data_group_field(name, each.used_sample_data_structure)
        return blueprint

    @property
    def length(self) -> int | None:
        """What the callable or iterable says, else None."""
        return None if self.main is None else self.main.length

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch that the callable or iterable is set up for, or None."""
        return getattr(self.main, "batch_size", None)

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the callable or iterable has epochs; readers always have."""
        return getattr(self.main, "has_epochs", True)
