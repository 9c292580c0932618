# SPDX-License-Identifier: Apache-2.0
"""The samples to blame for a batch that has failed in the graph."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ..errors import text_of
from ..limits.image_limits import no_image_file
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.names import format_path
from ..sources.input_adapter import InputAdapter
from .control_block import ControlBlock
from .dali.texts import dali_reason, device_error, is_about_decoding, is_about_device, number_in_batch
from .samples import Array, Flat, of_step
from .tolerant_loading import description_of
from .transport import Delivery
from .worker_process import pass_on_interrupt
from .worker_source import CallableSource, IterableSource, infos_of_batch

_MAX_NAMED = 5


@attrs.frozen
class BatchMember:
    """A sample of the failed batch.

    Attributes:
        name: How to call it in a message.
        sample_index: Index in the data set, None where it is not known.
        load: Loads it again, as a flat tuple.
        slot: Its slot in the batch.
    """

    name: str
    sample_index: int | None
    load: Callable[[], Sequence[Array]]
    slot: int = 0


@attrs.frozen
class Culprit:
    """A sample that fails.

    Attributes:
        member: The sample.
        line: Sample, fields, reason and step, for a message.
        reason: The reason and the step.
    """

    member: BatchMember
    line: str
    reason: str


class BatchFaults(Protocol):
    """What follows the samples that fail in a pipeline."""

    def find(self, error: Exception, epoch: int, batch: int, batch_in_all: int) -> tuple[str, list[Culprit]]:
        """Find the culprits of a batch that failed in the graph; see `FailureDiagnosis.find`."""

    def received(self, num_samples: int) -> None:
        """Note that a batch of that many samples was received."""

    def close(self) -> None:
        """Free what it holds."""


@attrs.frozen
class FailureDiagnosis:
    """Looks for the culprits of a failed batch.

    Attributes:
        source: What workers call: it loads samples again, as they have sent them.
        control: Memory in which workers note the samples of a batch.
        sent_paths: Paths of the fields that the workers send.
        output_format: Format of the output.
        delivery: Places of the fields in the outputs of the pipeline that failed.
        make_pipeline: Makes a pipeline for given flat samples that has only the given outputs, and only so many of
            the steps (None: all).
        step_names: The steps that have operators in the graph, with their numbers.
    """

    source: CallableSource | IterableSource
    control: ControlBlock
    sent_paths: Sequence[FieldPath]
    output_format: GroupFormat
    delivery: Delivery
    make_pipeline: Callable[[Sequence[Flat], Sequence[int] | None, int | None], Pipeline]
    step_names: Sequence[str]

    def find(
        self,
        error: Exception,
        epoch: int,
        batch: int,
        batch_in_all: int,
        members: Sequence[BatchMember] | None = None,
        most: int | None = _MAX_NAMED + 1,
    ) -> tuple[str, list[Culprit]]:
        """Find the culprits.

        Where all samples of a batch fail alike, and no sample of the batch next to it passes, there are none.

        Args:
            error: What DALI raised. The sample that it names is tried first.
            epoch: Epoch of the batch.
            batch: The batch in it.
            batch_in_all: The batch since the start.
            members: The samples of the batch; None: those that the input loads for it.
            most: Find no more than so many: each takes a while. None: all.

        Returns:
            A description in a few lines, and the culprits.

        Raises:
            DeviceError: A sample failed because of the GPU.
        """
        if members is None:
            members = self._members(epoch, batch, batch_in_all)
        if not members:
            return "Which samples form the batch is not known, since the input does not report it.", []
        flats, reasons = self._loaded_again(members)
        position, element = self._place_of(number_in_batch(error), len(members))

        def failure(numbers: Sequence[int]) -> str | None:
            return self._failure_of([flats[number] for number in numbers])

        failing = _failing([*flats], failure, [position])
        reasons.update(itertools.islice(failing, None if most is None else max(0, most - len(reasons))))
        if len(reasons) == len(members) > 1 and len({*reasons.values()}) == 1:
            step = -1 if batch else 1
            if not self._any_passes(self._members(epoch, batch + step, batch_in_all + step)[:_MAX_NAMED]):
                line = self._culprit(members[0], flats.get(0), reasons[0], element).line
                return (
                    f"No sample is to blame: all fail alike, and none of a batch next to them passes.\n{line}",
                    [],
                )
        culprits = [
            self._culprit(members[number], flats.get(number), reason, element)
            for number, reason in sorted(reasons.items())
        ]
        return self._describe(members, [culprit.line for culprit in culprits]), culprits

    def _loaded_again(self, members: Sequence[BatchMember]) -> tuple[dict[int, Flat], dict[int, str]]:
        """Load samples; get the arrays of some by number, and why the others could not be loaded."""
        flats: dict[int, Flat] = {}
        reasons = {}
        for number, member in enumerate(members):
            try:
                flats[number] = [np.ascontiguousarray(array) if array.ndim else array for array in member.load()]
            except BaseException as error:
                pass_on_interrupt(error)
                cause = of_step(error)
                reasons[number] = f"could not be loaded again: {type(cause).__name__}: {text_of(cause)}"
        return flats, reasons

    def _any_passes(self, members: Sequence[BatchMember]) -> bool:
        flats, _ = self._loaded_again(members)
        return any(self._failure_of([flat]) is None for flat in flats.values())

    def _place_of(self, number: int | None, num_samples: int) -> tuple[int | None, int | None]:
        """Sample and element of an entry of the graph's batch, if the operator has worked on folded arrays."""
        layout = self.delivery.layout
        if number is None or layout is None:
            return number, None
        if layout.is_by_sample:
            return divmod(number, layout.num_slots)
        element, sample = divmod(number, num_samples)
        return sample, element

    def _describe(self, members: Sequence[BatchMember], culprits: Sequence[str]) -> str:
        if not culprits:
            return (
                f"The batch holds {', '.join(member.name for member in members)}. Each of them passes alone, so "
                f"the failure is about the batch as a whole (e.g. samples whose shapes do not go together)."
            )
        more = ["  - and others"] if len(culprits) > _MAX_NAMED else []
        return "\n".join(["To blame:", *culprits[:_MAX_NAMED], *more])

    def _members(self, epoch: int, batch: int, batch_in_all: int) -> list[BatchMember]:
        data_input, size = self.source.data_input, self.source.batch_size
        if callable(data_input):
            members = (self._member_of_callable(data_input, epoch, batch, slot) for slot in range(size))
            if not InputAdapter(data_input).delivers_partial_batches:
                return list(members)
            return [member for member in members if member.sample_index is not None]
        indices = self.control.recorded_batch(batch_in_all)
        load = getattr(data_input, "load_sample", None)
        if indices is None or load is None:
            return []
        infos = infos_of_batch(batch_in_all, len(indices), size)
        return [
            BatchMember(f"sample {index}", index, functools.partial(self.source.load_again, load, index, info))
            for index, info in zip(indices, infos, strict=True)
        ]

    def _member_of_callable(self, data_input: Any, epoch: int, batch: int, slot: int) -> BatchMember:
        info = types.SampleInfo(batch * self.source.batch_size + slot, slot, batch, epoch)
        index = InputAdapter(data_input).sample_index(info)
        name = f"slot {slot}" if index is None else f"sample {index}"
        return BatchMember(name, index, functools.partial(self.source.load_again, data_input, info, info))

    def _culprit(self, member: BatchMember, flat: Flat | None, found: str, element: int | None) -> Culprit:
        """Say which fields of a sample fail, and in which step; the guess is that it is those of an element."""
        if flat is None:
            return Culprit(member, f"  - {member.name}: {found}", found)
        places = self.delivery.places
        computed = [number for number, place in enumerate(places) if not place.is_packed]
        guessed = [number for number in computed if places[number].count > 1 and places[number].element == element]
        failing = _failing(computed, lambda outputs: self._failure_of([flat], outputs), guessed)
        all_paths = self.output_format.flat_paths
        numbers = sorted(number for number, _ in itertools.islice(failing, _MAX_NAMED + 1))
        paths = [format_path(all_paths[number]) for number in numbers]
        fields = ", ".join(paths[:_MAX_NAMED]) + (", ..." if len(paths) > _MAX_NAMED else "")
        about = description_of(InputAdapter(self.source.data_input), member.sample_index)
        where = f"{member.name}{f' ({about})' if about else ''}{', field ' if paths else ''}{fields}"
        reason = f"{found}{self._step_of(flat, found)}{self._no_image_file(flat, found, paths)}"
        return Culprit(member, f"  - {where}: {reason}", reason)

    def _step_of(self, flat: Flat, reason: str) -> str:
        """Say which step fails for the same reason when it is the last one."""
        low, high = 0, len(self.step_names)  # fails with `high` steps, not with `low`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._failure_of([flat], None, middle) == reason else (middle, high)
        return f" [in step {self.step_names[high - 1]}]" if high else ""

    def _no_image_file(self, flat: Flat, reason: str, failing: Sequence[str]) -> str:
        """Say that images which could not be decoded are no files."""
        if not is_about_decoding(reason):
            return ""
        arrays = {format_path(path): array for path, array in zip(self.sent_paths, flat, strict=False)}
        found = (no_image_file(arrays[path]) for path in failing if path in arrays)
        return next((f"; {problem}" for problem in found if problem), "")

    def _failure_of(
        self, flats: Sequence[Flat], outputs: Sequence[int] | None = None, num_steps: int | None = None
    ) -> str | None:
        """Say why samples fail in the graph, as the workers have sent them; None where they pass."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DALI's, about inputs that do not reach the only output
            try:
                self.make_pipeline(flats, outputs, num_steps).run()
            except Exception as error:
                if is_about_device(error):
                    raise device_error("A sample of the batch", error) from None
                # It counts in a batch of one here.
                return dali_reason(error).replace("sample #0", "the sample")
        return None


def _failing(
    items: Sequence[int], failure: Callable[[Sequence[int]], str | None], guess: Collection[int | None] = ()
) -> Iterator[tuple[int, str]]:
    """Find those of some items that fail by themselves, in as few trials as possible.

    Args:
        items: The items.
        failure: Says why some of them fail together; None where they pass.
        guess: Items that are tried first. Without any, halves are tried, and halves of these.

    Yields:
        Each item, and why it fails.
    """
    first = [item for item in items if item in guess] or [*items[: len(items) // 2]]
    for part in (first, [item for item in items if item not in first]):
        reason = failure(part) if part else None
        if reason is not None and len(part) == 1:
            yield part[0], reason
        elif reason is not None:
            yield from _failing(part, failure)
