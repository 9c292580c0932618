# SPDX-License-Identifier: Apache-2.0
"""Tries every sample of a data set: a loader delivers each of them alone, and lists those that fail."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from nvidia.dali.types import DALIDataType

from ..checks import file_path, number
from ..draws.draw_scope import Draws
from ..errors import FrameworkError, SettingError, TooManyFailedError
from ..faults.fault_policy import FailedSample, FailedSamples, FaultPolicy, Quarantine, summary_of
from ..limits.control_groups import num_usable_cores
from ..limits.file_limits import checked_worker_count
from ..loader.data_loader import DataLoader, run_of
from ..operators.array_packages import is_installed
from ..operators.image_arrays import DECODING_NEEDS, begins_like_image, decoded_image
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps import ArrayStep, UnneededFieldRemover
from ..processing_steps.pipeline_step_base import PipelineStepBase, naming_field
from ..providers.data_provider import DataProvider
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.names import format_path
from ..sampling.plans.tracks import PlannedBatch
from ..sampling.random_access_sampler import RandomAccessSampler
from ..sources.input_adapter import InputAdapter

DEFAULT_TIME_LIMIT_S = 300.0  # a remote file is tried several times, for a minute each
_ANY_NUMBER = 2**31  # of workers that are lost
_PLACE, _ARE_IMAGES = "place of the sample", "fields that are image files"


class _EachOnce(RandomAccessSampler):
    """Every sample once, alone, in a sequence of its own, so that steps may draw along sequences."""

    knows_sequences = True

    def __init__(self, num_samples: int) -> None:
        super().__init__(1)
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        return self._num_samples

    def num_batches(self, epoch: int) -> int:
        return self._num_samples

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        return PlannedBatch([batch], sequence=batch, frame=0)


class _ImageDecoding(ArrayStep):
    """Decodes all image files of a sample: fields that are declared to be some, and others that begin like one.

    Adds the field ``_ARE_IMAGES``: which of the fields of bytes of which nothing is declared begin like one.
    """

    array_form_needs = DECODING_NEEDS

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        are_images = []
        for path, leaf in zip(data.format.flat_paths, data.format.flat_leaves, strict=True):
            value, is_image = data.get_item_in_path(path), leaf.content.is_encoded and not leaf.content.codecs
            if _is_unknown(leaf):
                is_image = begins_like_image(value)
                are_images.append(is_image)
            if is_image:
                with naming_field(path):
                    decoded_image(value)
        self.format_after(data)[_ARE_IMAGES] = are_images
        return data

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field(_ARE_IMAGES, DALIDataType.BOOL, ndim=1)
        return data_empty


def _is_unknown(leaf: LeafFormat) -> bool:
    is_bytes = leaf.dtype == DALIDataType.UINT8 and leaf.ndim in (None, 1)
    return is_bytes and leaf.content.is_encoded is None


def lint(
    found: DataProvider | PipelineDefinition | DataLoader, faults: FaultPolicy, num_workers: int
) -> DataLoader:
    """Make a loader that tries each sample once, in a batch of its own.

    The samples of a provider are loaded and checked, and their image files are decoded. To those of a definition
    or a loader its steps are applied. Its processes start as those of a loader do, with its ``worker_init_fn``.

    Args:
        found: What is tried.
        faults: Handling of what fails.
        num_workers: Number of processes.

    Raises:
        SettingError: Its samples come from no data provider.
    """
    settings: dict[str, Any]
    if isinstance(found, DataProvider):
        provider = found
        names = provider.sample_data_structure.contained_top_level_field_names
        steps: list[PipelineStepBase] = [_ImageDecoding(), UnneededFieldRemover(names)]
        settings = {"run": "workers", "context_name": _PLACE}
    else:
        run = run_of(found) if isinstance(found, DataLoader) else None
        definition = run.definition if run is not None else cast(PipelineDefinition, found)
        data_input = found.bound_input if isinstance(found, DataLoader) else definition.data_input
        planned = InputAdapter(data_input).planned
        if planned is None:
            got = type(definition.data_input).__name__
            raise SettingError(f"lint needs a data provider, to load samples one by one; the input is a {got}.")
        provider, steps = planned.provider, list(definition.steps)
        settings = {"run": definition.run, "context_name": planned.context_name}
        if run is not None:
            settings |= {"device_id": run.pipeline.device_id, "worker_init_fn": run.settings.worker_init_fn}
            if run.num_workers:  # without worker processes, any start method goes with a GPU
                settings["start_method"] = run.settings.start_method
    sampler = _EachOnce(provider.get_number_of_samples())
    settings |= {"num_workers": num_workers, "output_type": "numpy", "ragged": "list"}
    return DataLoader(provider, steps=steps, sampler=sampler, faults=faults, **settings)


def run_lint(
    find: Callable[[], Any],
    output: str | os.PathLike[str] | None,
    num_workers: int | None,
    say: Callable[[str], None],
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
) -> None:
    """Try all samples of a provider, definition or loader, and say what fails.

    Args:
        find: Gets it.
        output: File to which a line is added for each sample that fails.
        num_workers: Number of processes; None: the usable cores.
        say: Prints a line.
        time_limit_s: Seconds after which a sample counts as one that does not end.

    Raises:
        TooManyFailedError: A sample has failed; the message sums up.
        SettingError: There is no data provider.
        QuarantineError: The file cannot be written.
    """
    time_limit_s = number(time_limit_s, "--timeout", above=0)
    count = num_usable_cores()
    if num_workers is not None:
        count = checked_worker_count(num_workers, "--workers", at_least=1)
    if output is not None:
        Quarantine(file_path(output, "--output"))  # refuses what cannot be written before anything is opened
    faults = FaultPolicy(
        samples="replace",
        quarantine=output,
        restarts=_ANY_NUMBER,
        blocked_after=time_limit_s,
        checks_images=is_installed("simplejpeg"),
        stacks_after=None,
    )
    start_s = time.perf_counter()
    with _unlogged_faults(), lint(find(), faults, count) as loader, _progress(len(loader)) as progress:
        num_samples, batches = len(loader), iter(loader)
        are_images: dict[int, Any] = {}
        for _ in range(num_samples):
            try:
                batch: Any = next(batches, {})
                if _ARE_IMAGES in batch:
                    are_images[int(batch[_PLACE]["sample_index"][0])] = batch[_ARE_IMAGES][0]
            except FrameworkError as error:  # no other sample is left; the loader goes on behind it
                blamed = {getattr(error, "sample_index", None), *(getattr(error, "sample_indices", None) or ())}
                if not blamed & {sample.sample_index for sample in loader.failed_samples}:
                    raise
            progress()
        failed = [*loader.failed_samples, *_other_files(loader.dataset, are_images)]
    for sample in failed[len(loader.failed_samples) :] if output is not None else ():
        Quarantine(str(output)).add(sample)
    failed.sort(key=lambda sample: sample.sample_index)
    passed_s = time.perf_counter() - start_s
    say(
        f"{num_samples} samples tried in {passed_s:.1f} s by {count} processes: "
        f"{num_samples / passed_s:.1f} samples/s"
    )
    if failed:
        written = "" if output is None else f"\nThey are listed in {output}."
        raise TooManyFailedError(f"{summary_of(failed)}{written}")
    say("All can be loaded and decoded.")


def _other_files(provider: Any, are_images: Mapping[int, Any]) -> Iterator[FailedSample]:
    """In a field of which nothing is declared all must be image files where one begins like one."""
    if not are_images:
        return
    blueprint = provider.sample_data_structure.format
    paths = [
        path for path, leaf in zip(blueprint.flat_paths, blueprint.flat_leaves, strict=True) if _is_unknown(leaf)
    ]
    hold_images = np.any([*are_images.values()], axis=0)
    for index, of_sample in are_images.items():
        for field in np.flatnonzero(hold_images & ~of_sample):
            reason = f"{format_path(paths[field])}: no image file, as other samples have there"
            yield FailedSample(index, reason, "checks", "found by lint", provider.describe_sample(index))


@contextlib.contextmanager
def _unlogged_faults() -> Iterator[None]:
    """Keep the samples that take the place of failed ones out of the log: the summary lists all that failed."""
    logger = logging.getLogger(FailedSamples.__module__)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _progress(num_samples: int) -> Iterator[Callable[[], object]]:
    """A bar, where somebody looks and rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("samples", total=num_samples)
        yield lambda: bar.advance(task)
