# SPDX-License-Identifier: Apache-2.0
"""Parts of an input, several inputs joined into one, and epochs of native readers."""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from nvidia.dali.data_node import DataNode

from ..checks import setting_error
from ..errors import SettingError
from ..providers.data_provider import summary
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.names import Name
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts
from .input_bases import InputBase, Source
from .shards import Shard, shard_of_input


@attrs.frozen
class ReaderEpochs:
    """The epochs of one shard of a reader, as arithmetic.

    DALI's readers never end. Shard ``k`` of ``n`` holds the samples ``[N * k // n, N * (k + 1) // n)``, and in
    epoch ``e`` a reader reads shard ``(k + e) % n``, or with ``stick_to_shard`` always its own. With
    ``pad_last_batch`` the reader itself fills the last batch of a shard, so that all shards make equally many
    batches and an epoch begins with a batch; ``"drop"``, ``"pad"`` and ``"partial"`` build on that. Without it
    (the policy ``"wrap"``) the samples are one stream without end, of which an epoch is as many batches.

    Attributes:
        num_samples: Samples of all shards.
        shard_id: Number of the shard.
        num_shards: Number of shards.
        is_stuck: Whether the reader keeps to its shard.
        batch_size: Samples per batch on this shard.
        last_batch: Handling of a last batch that is not full.
    """

    num_samples: int
    shard_id: int
    num_shards: int
    is_stuck: bool
    batch_size: int
    last_batch: LastBatch

    def __attrs_post_init__(self) -> None:
        """Check that an epoch has a batch."""
        if self.last_batch == "drop" and self.num_batches(0) == 0:
            raise SettingError(
                f"An epoch must have at least one batch: the reader has {self.num_samples} sample(s) for "
                f"{self.num_shards} shard(s) with batches of {self.batch_size} and last_batch='drop'. Use a "
                f"smaller batch, more data, or last_batch='pad'."
            )

    def shard_size(self, epoch: int) -> int:
        """Number of samples that the reader has in an epoch."""
        shard = self.shard_id if self.is_stuck else (self.shard_id + epoch) % self.num_shards
        return self.num_samples * (shard + 1) // self.num_shards - self.num_samples * shard // self.num_shards

    @property
    def num_made(self) -> int:
        """Number of batches that the reader makes per epoch."""
        largest = -(-self.num_samples // self.num_shards)
        return -(-largest // self.batch_size)

    def num_batches(self, epoch: int) -> int:
        """Number of batches that are delivered in an epoch."""
        if self.last_batch == "drop":
            return self.num_samples // self.num_shards // self.batch_size
        return -(-self.shard_size(epoch) // self.batch_size) if self.last_batch == "partial" else self.num_made

    def num_valid(self, epoch: int, batch: int) -> int:
        """Count the samples to deliver of a batch that the reader makes; 0 for one that is discarded."""
        if batch >= self.num_batches(epoch):
            return 0
        if self.last_batch == "partial":
            return min(self.shard_size(epoch) - batch * self.batch_size, self.batch_size)
        return self.batch_size

    @property
    def sample_counts(self) -> SampleCounts:
        """Sample counts of an epoch, over all shards; with ``"wrap"`` for the first epoch."""
        num_batches, num_delivered = self.num_made, self.num_samples
        if self.last_batch == "drop":
            num_batches = self.num_batches(0)
            num_delivered = num_batches * self.batch_size * self.num_shards
        num_slots = num_batches * self.batch_size * self.num_shards
        return SampleCounts.of_slots(self.last_batch, num_batches, num_slots, self.num_samples, num_delivered)


CODECS_ON_CPU = ("vp8", "vp9", "mjpeg")
"""The codecs that DALI decodes without a GPU."""


class NativeInput(InputBase):
    """An input whose samples are made by operators of DALI in the graph; there are no workers.

    Attributes:
        operator_name: Name of the operator within `nvidia.dali.fn`, e.g. ``"readers.file"``.
        is_resumable: Whether DALI's checkpoints have the positions of the operators.
        is_joinable: Whether it can be joined with other inputs, which needs batches that are always full.
        ragged_advice: What to do where samples of a batch have different shapes, for the error about that.
        place_advice: How to get the place of a sample, for the error where a context is requested.
    """

    operator_name: str
    is_resumable: bool = False
    is_joinable: bool = True
    ragged_advice: str = ""
    place_advice: str = "Use a data provider with a sampler."

    @property
    def length(self) -> int | None:
        """None: the number of samples is known only to a pipeline that was built (`DataLoader` does so)."""
        return None

    def advice(self, reason: str) -> str:
        """Advise on what to do where DALI cannot set the operator up, given its reason; may be empty."""
        return ""

    def reading_one_ahead(self) -> NativeInput | None:
        """Get the same input, which reads no more than one batch ahead; None where it does so already."""
        return None

    @abstractmethod
    def define(self, name: str, seed: int) -> Sequence[DataNode]:
        """Define the operators in the current pipeline.

        Args:
            name: Name for the operator that reads.
            seed: Seed of the pipeline.

        Returns:
            The data fields, in the order of the blueprint.
        """

    @abstractmethod
    def begin(self, name: str, pipeline: Any) -> NativeRun:
        """Start to count the batches of the operator of that name in a pipeline that was built."""


class NativeRun(ABC):
    """Position of a native input in a pipeline.

    Attributes:
        epochs: How many batches its epochs have, or None where they are not known before their end.
        epoch: The running epoch, from 0.
        is_awaited: Whether batches may take long to arrive, so that batches that are ready must not wait until the
            next one is begun.
    """

    epochs: ReaderEpochs | None = None
    epoch: int = 0
    is_awaited: bool = False

    @abstractmethod
    def begin_batch(self) -> None:
        """Count another batch, which is about to be made.

        Raises:
            StopIteration: The epoch has no more.
        """

    def is_ready(self) -> bool:
        """Whether a batch can be begun (or the end be known) without waiting."""
        return True

    def wait(self) -> None:
        """Wait until a batch can be begun; may be interrupted, and called again."""
        return

    def begin_epoch(self) -> None:
        """Begin the next epoch; a stream has none."""
        return

    def continue_at(self, epoch: int, num_begun: int) -> None:
        """Continue after a checkpoint of an epoch of which ``num_begun`` batches were received."""
        return

    def num_valid(self, batch: int) -> int | None:
        """Count the samples to deliver of a batch of the running epoch.

        Returns:
            Their number, 0 for a batch that is thrown away; None for all.
        """
        return None

    def describe_batch(self, batch: int) -> str:
        """Describe the content of one of the last batches, counted from the start; a sentence, or empty."""
        return ""

    def close(self) -> None:
        """Free resources; the pipeline was closed."""
        return


class JoinedInput(InputBase):
    """Several inputs in one pipeline: any number of native readers, and at most one callable or iterable.

    A sample has one group per input::

        JoinedInput({"front": VideoReader(...), "ego": SamplerInputCallable(provider, sampler)})

        front
          frames: UINT8
        ego
          pose: FLOAT

    With a callable or iterable, its epochs are those of the pipeline, and the readers continue, each as one
    endless stream: they do not know where an epoch begins. Without one, all readers must have the same number of
    samples, shards, and policy; all have the same seed, so that readers over the same number of
    samples stay in step also where they shuffle.
    """

    def __init__(self, inputs: Mapping[Name, Source]) -> None:
        """Join inputs.

        Args:
            inputs: The inputs by the names of their groups.

        Raises:
            SettingError: There is no input, more than one is a callable or iterable, or there is no reader.
        """
        if not isinstance(inputs, Mapping) or not inputs:
            raise setting_error("inputs", "a dict with at least one input", inputs)
        self._inputs = dict(inputs)
        others = [name for name, each in self._inputs.items() if not isinstance(each, NativeInput)]
        for name, each in self._inputs.items():
            if not hasattr(each, "used_sample_data_structure"):
                raise setting_error(f"inputs[{name!r}]", "a native reader, a callable or an iterable", each)
            if isinstance(each, NativeInput) and not each.is_joinable and len(self._inputs) > 1:
                why = "makes batches of its own sizes, so that it cannot be joined with other inputs"
                raise SettingError(f"Input {name!r}, a {type(each).__name__}, {why}.")
        if len(others) > 1:
            raise SettingError(
                f"At most one input can be a callable or an iterable, since its epochs are those of the pipeline; "
                f"got {', '.join(map(repr, others))}. Join their providers instead."
            )
        if len(others) == len(self._inputs):
            raise SettingError("At least one input must be a native reader; others need no JoinedInput.")
        self._main = others[0] if others else None
        _ = self.used_sample_data_structure  # raises for names that are not valid

    def __repr__(self) -> str:
        """Return the inputs by name."""
        inputs = ", ".join(f"{name!r}: {summary(each)}" for name, each in self._inputs.items())
        return f"{type(self).__name__}({{{inputs}}})"

    @property
    def inputs(self) -> dict[Name, Source]:
        """The inputs by name, in the order of their groups."""
        return dict(self._inputs)

    @property
    def main(self) -> Source:
        """The callable or iterable, or None."""
        return None if self._main is None else self._inputs[self._main]

    def with_inputs(self, changed: Mapping[Name, Source]) -> JoinedInput:
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
        """Length of the callable or iterable, else None."""
        return None if self.main is None else self.main.length

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch that the callable or iterable is set up for, or None."""
        return getattr(self.main, "batch_size", None)

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the callable or iterable has epochs; readers always have."""
        return getattr(self.main, "has_epochs", True)


@attrs.frozen(eq=False)
class InputPart:
    """A part of an input.

    Attributes:
        path: Path of its group in the sample; empty for the whole sample.
        source: The callable, iterable or native input.
    """

    path: FieldPath
    source: Source

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

    whole: Source
    parts: Sequence[InputPart]

    @staticmethod
    def of(data_input: Source) -> InputParts:
        """Split an input into its parts."""
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
        """The shard that the input delivers, or None where no part of it has one."""
        for part in self.parts:
            with contextlib.suppress(SettingError):  # an attribute of this name may mean something else
                shard = shard_of_input(part.source)
                if shard is not None:
                    return shard
        return None

    def with_main(self, source: Source) -> Source:
        """Get the input with another callable or iterable in place of its own."""
        return source if self.main is None else self.with_sources({self.main: source}).whole

    def with_sources(self, sources: Mapping[InputPart, Source]) -> InputParts:
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
