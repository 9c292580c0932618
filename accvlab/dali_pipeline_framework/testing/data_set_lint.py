# SPDX-License-Identifier: Apache-2.0
"""Tries every sample of a data set: a loader delivers each of them alone, and lists those that fail."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from nvidia.dali.types import DALIDataType

from ..checks import file_path, number
from ..draws.draw_scope import Draws
from ..errors import FrameworkError, SettingError, TooManyFailedError
from ..faults.fault_policy import FailedSample, FaultPolicy, Quarantine, summary_of
from ..limits.control_groups import num_usable_cores
from ..limits.file_limits import checked_worker_count
from ..loader.data_loader import DataLoader, run_of
from ..operators.array_packages import is_installed
from ..operators.image_arrays import DECODING_NEEDS, begins_like_image, decoded_image
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps import ArrayStep
from ..processing_steps.pipeline_step_base import naming_field
from ..providers.data_provider import DataProvider
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.names import format_path
from ..sampling import StreamingSequenceSampler
from ..sources.input_adapter import InputAdapter

_ANY_NUMBER = 2**31  # of workers that are lost
_ARE_IMAGES = "fields that are image files"


class _ImageDecoding(ArrayStep):
    """Decodes all image files of a sample: fields that are declared to be some, and others that begin like one.

    Its output is which of the fields of bytes of which nothing is declared begin like one.
    """

    array_form_needs = DECODING_NEEDS

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        are_images, output = [], self.new_output(data)
        for path, leaf in data.format.leaves.items():
            value, is_image = data.get_item_in_path(path), leaf.content.is_encoded and not leaf.content.codecs
            if _is_unknown(leaf):
                is_image = begins_like_image(value)
                are_images.append(is_image)
            if is_image:
                with naming_field(path):
                    decoded_image(value)
        output[_ARE_IMAGES] = are_images
        return output

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        output = SampleDataGroup()
        output.add_data_field(_ARE_IMAGES, DALIDataType.BOOL, ndim=1)
        return output


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
    settings: dict[str, Any] = {"steps": [_ImageDecoding()], "run": "workers"}
    if isinstance(found, DataLoader):
        run, found = run_of(found), run_of(found).definition
        settings |= {"device_id": run.pipeline.device_id, "worker_init_fn": run.settings.worker_init_fn}
        if run.num_workers:  # without worker processes, any start method goes with a GPU
            settings["start_method"] = run.settings.start_method
    if isinstance(found, PipelineDefinition):
        planned = InputAdapter(found.data_input).planned
        if planned is None:
            got = type(found.data_input).__name__
            raise SettingError(f"lint needs a data provider, to load samples one by one; the input is a {got}.")
        settings |= {"steps": found.steps, "run": found.run, "context_name": planned.context_name}
        found = planned.provider
    # Sequences of one sample, so that steps may draw along sequences.
    num_samples = found.get_number_of_samples()
    if not num_samples:
        rule = f"The data set is empty: {type(found).__name__}.get_number_of_samples() returned 0"
        raise SettingError(f"{rule}. Check its path and filters.")
    sampler = StreamingSequenceSampler(np.ones(num_samples, int), 1, shuffle=False)
    settings |= {"num_workers": num_workers, "output_type": "numpy", "ragged": "list"}
    return DataLoader(found, sampler=sampler, faults=faults, **settings)


def run_lint(
    find: Callable[[], Any],
    output: str | os.PathLike[str] | None,
    num_workers: int | None,
    say: Callable[[str], None],
    time_limit_s: float,
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
    # Refuses what cannot be written before anything is opened.
    quarantine = None if output is None else Quarantine(file_path(output, "--output"))
    faults = FaultPolicy(
        quarantine=output,
        restarts=_ANY_NUMBER,
        blocked_after=time_limit_s,
        checks_images=is_installed("simplejpeg"),
        stacks_after=None,
    )
    start_s = time.perf_counter()
    are_images: dict[int, Any] = {}
    with lint(find(), faults, count) as loader:
        num_samples, batches = len(loader), iter(loader)
        for index in _shown(range(num_samples)):
            try:
                batch = next(batches)
            except FrameworkError:
                if index not in {sample.sample_index for sample in loader.failed_samples}:
                    raise
            else:
                if _ARE_IMAGES in batch:
                    are_images[index] = batch[_ARE_IMAGES][0]
        failed = [*loader.failed_samples]
    for sample in _other_files(loader.dataset, are_images):
        failed.append(sample)
        if quarantine is not None:
            quarantine.add(sample)
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
    blueprint = provider.sample_data_structure.format
    paths = [path for path, leaf in blueprint.leaves.items() if _is_unknown(leaf)]
    hold_images = np.any([*are_images.values()], axis=0)
    for index, of_sample in are_images.items():
        for field in np.flatnonzero(hold_images & ~of_sample):
            reason = f"{format_path(paths[field])}: no image file, as other samples have there"
            yield FailedSample(index, reason, "checks", "found by lint", provider.describe_sample(index))


def _shown(samples: range) -> Iterable[int]:
    """Show a bar, where somebody looks and rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        return samples
    from rich.console import Console
    from rich.progress import track

    return track(samples, "samples", console=Console(stderr=True))
