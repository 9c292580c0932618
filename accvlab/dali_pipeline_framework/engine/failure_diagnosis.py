# SPDX-License-Identifier: Apache-2.0
"""The samples to blame for a batch that has failed in the graph."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence

import attrs
import numpy as np
from nvidia.dali.pipeline import Pipeline

from ..limits.image_limits import claimed_size, jpeg_damage, no_image_file
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.names import format_path
from ..workers.loading import description_of
from ..workers.loading_plan import LoadingPlan
from ..workers.packing import unpacked
from ..workers.pool.pool import Batch
from ..workers.samples import DType, Flat
from .dali.texts import dali_reason, device_error, is_about_decoding, is_about_device, number_in_batch
from .transport import Delivery

_MAX_NAMED = 5


@attrs.frozen
class BatchMember:
    """A sample of the failed batch.

    Attributes:
        name: How to call it in a message.
        sample_index: Index in the data set, None if it is not known.
        number: Its number in the batch.
        flat: Its arrays, as the workers have sent them.
    """

    name: str
    sample_index: int | None
    number: int
    flat: Flat


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


@attrs.frozen
class FailureDiagnosis:
    """Looks for the culprits of a failed batch, among the samples that were handed to the graph.

    Attributes:
        loading: What was loaded.
        dtypes: NumPy types of what is sent.
        sent_paths: Paths of the fields that the workers send.
        output_format: Format of the output.
        delivery: Places of the fields in the outputs of the pipeline that failed.
        make_pipeline: Makes a pipeline for given flat samples that has only the given outputs, and only so many of
            the steps (None: all).
        step_names: The steps that have operators in the graph, with their numbers.
    """

    loading: LoadingPlan
    dtypes: Sequence[DType]
    sent_paths: Sequence[FieldPath]
    output_format: GroupFormat
    delivery: Delivery
    make_pipeline: Callable[[Sequence[Flat], Sequence[int] | None, int | None], Pipeline]
    step_names: Sequence[str]

    def find(
        self, error: Exception, batch: Batch, others: Sequence[Batch], has_passed: bool
    ) -> tuple[str, list[Culprit]]:
        """Find the culprits.

        Where all samples of a batch fail alike, and no sample of another batch passes, there are none.

        Args:
            error: What DALI raised. The sample that it names is tried first.
            batch: The batch.
            others: Other batches.
            has_passed: Whether a batch has passed before.

        Returns:
            A description in a few lines, and the culprits.

        Raises:
            DeviceError: A sample failed because of the GPU.
        """
        members = self._members(batch)
        position, element = self._place_of(number_in_batch(error), len(members))

        def failure(numbers: Sequence[int]) -> str | None:
            return self._failure_of([members[number].flat for number in numbers])

        # Each trial makes a pipeline, on a GPU in seconds: what a decoder of the CPU refuses is tried first.
        guessed = {position, *_damaged(members)} if is_about_decoding(dali_reason(error)) else {position}
        reasons = dict(_failing([*range(len(members))], failure, guessed))
        if not has_passed and len(reasons) == len(members) > 1 and len({*reasons.values()}) == 1:
            beside = [member for other in others for member in self._members(other)][:_MAX_NAMED]
            if not any(self._failure_of([member.flat]) is None for member in beside):
                line = self._culprit(members[0], reasons[0], element).line
                return (
                    f"No sample is to blame: all fail alike, and none of a batch next to them passes.\n{line}",
                    [],
                )
        culprits = [self._culprit(members[number], reason, element) for number, reason in sorted(reasons.items())]
        return self._describe(members, [culprit.line for culprit in culprits]), culprits

    def _members(self, batch: Batch) -> list[BatchMember]:
        loaded = batch.loaded
        flats = unpacked(self.loading.layout, loaded.outputs, self.dtypes, len(loaded.numbers))
        members = []
        for place, (number, flat) in enumerate(zip(loaded.numbers, flats, strict=True)):
            index = batch.index_of(place)
            name = f"slot {number}" if index is None else f"sample {index}"
            # A copy, since the memory is used again, and DALI looks at it later.
            members.append(BatchMember(name, index, number, [np.array(array) for array in flat]))
        return members

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

    def _culprit(self, member: BatchMember, found: str, element: int | None) -> Culprit:
        """Say which fields of a sample fail, and in which step; the guess is that it is those of an element."""
        places, flat = self.delivery.places, member.flat
        computed = [number for number, place in enumerate(places) if not place.is_packed]
        guessed = [number for number in computed if places[number].count > 1 and places[number].element == element]
        failing = _failing(computed, lambda outputs: self._failure_of([flat], outputs), guessed)
        all_paths = self.output_format.flat_paths
        numbers = sorted(number for number, _ in itertools.islice(failing, _MAX_NAMED + 1))
        paths = [format_path(all_paths[number]) for number in numbers]
        fields = ", ".join(paths[:_MAX_NAMED]) + (", ..." if len(paths) > _MAX_NAMED else "")
        about = description_of(self.loading.source, member.sample_index)
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
        """Say why samples fail in the graph, as the workers have sent them; None if they pass."""
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


def _damaged(members: Sequence[BatchMember]) -> Iterator[int]:
    """Find the members with image files that have no size, or damaged data."""
    has_decoder = importlib.util.find_spec("simplejpeg") is not None
    for number, member in enumerate(members):
        files = [array for array in member.flat if array.ndim == 1 and array.dtype == np.uint8]
        if any(claimed_size(file) is None or (has_decoder and jpeg_damage(file)) for file in files):
            yield number


def _failing(
    items: Sequence[int], failure: Callable[[Sequence[int]], str | None], guess: Collection[int | None] = ()
) -> Iterator[tuple[int, str]]:
    """Find those of some items that fail by themselves, in as few trials as possible.

    Args:
        items: The items.
        failure: Says why some of them fail together; None if they pass.
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
