# SPDX-License-Identifier: Apache-2.0
"""The parts of an input: what workers load, and what operators of DALI read."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..errors import SettingError
from ..sample_data import FieldPath
from .joined_input import JoinedInput
from .native_input import NativeInput
from .shards import Shard, shard_of_input


@attrs.frozen(eq=False)
class InputPart:
    """A part of an input.

    Attributes:
        path: Path of its group in the sample; empty where it is the whole sample.
        source: The callable, iterable or native input.
    """

    path: FieldPath
    source: Any

    @property
    def is_native(self) -> bool:
        """Whether operators of DALI read it."""
        return isinstance(self.source, NativeInput)

    @property
    def operator_name(self) -> str:
        """Name for the operator of a native input; checkpoints know it by this name."""
        return "_".join(["reader", *map(str, self.path)])


@attrs.frozen
class InputParts:
    """The parts of an input.

    Attributes:
        whole: The input.
        parts: Its parts, in the order of the fields of a sample.
    """

    whole: Any
    parts: Sequence[InputPart]

    @staticmethod
    def of(data_input: Any) -> InputParts:
        """Take an input apart."""
        if isinstance(data_input, JoinedInput):
            return InputParts(data_input, [InputPart((name,), each) for name, each in data_input.inputs.items()])
        return InputParts(data_input, [InputPart((), data_input)])

    @property
    def main(self) -> InputPart | None:
        """The part that workers load, or None."""
        return next((part for part in self.parts if not part.is_native), None)

    @property
    def native(self) -> list[InputPart]:
        """The parts that operators of DALI read."""
        return [part for part in self.parts if part.is_native]

    @property
    def has_callable(self) -> bool:
        """Whether there is a part that workers load at any position."""
        return self.main is not None and callable(self.main.source)

    @property
    def shard(self) -> Shard | None:
        """The shard that the input delivers, or None where no part of it tells."""
        for part in self.parts:
            with contextlib.suppress(SettingError):  # an attribute of this name may mean something else
                shard = shard_of_input(part.source)
                if shard is not None:
                    return shard
        return None

    def with_main(self, source: Any) -> Any:
        """Get the input with another callable or iterable in the place of its own."""
        return source if self.main is None else self.with_sources({self.main: source}).whole

    def with_sources(self, sources: Mapping[InputPart, Any]) -> InputParts:
        """Get the same parts, some of them with other sources."""
        if isinstance(self.whole, JoinedInput):
            changed = {part.path[0]: source for part, source in sources.items()}
            return InputParts.of(self.whole.with_inputs(changed))
        return InputParts.of(sources[self.parts[0]])

    def main_field_paths(self) -> list[FieldPath]:
        """Paths, in the sample, of the fields of the part that workers load."""
        if self.main is None:
            return []
        paths = self.main.source.used_sample_data_structure.format.flat_paths
        return [(*self.main.path, *path) for path in paths]
