# SPDX-License-Identifier: Apache-2.0
"""What a loader does about samples that fail: which inputs can, and how its pipelines follow it."""

from __future__ import annotations

from ..engine.sample_faults import SampleFaults
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import QuarantineError, SettingError
from ..faults.failed_samples import FailedSamples
from ..faults.fault_policy import FaultPolicy
from ..sources.planned_input import PlannedInput
from .input_binding import LoaderInput


def check_sample_policy(bound: LoaderInput, policy: FaultPolicy) -> None:
    """Check that the input of a loader goes with a policy.

    Raises:
        SettingError: The input, its order, or its last batches do not go with it.
    """
    if policy.samples == "raise":
        return
    what = f"samples={policy.samples!r}"
    source = bound.data_input
    if not isinstance(source, PlannedInput) or bound.parts.whole is not source:
        raise SettingError(
            f"{what} of a FaultPolicy needs to know which samples form a batch: a data provider with a sampler of "
            f"this package (DataLoader(provider, ...) or SamplerInputCallable), got "
            f"{type(bound.parts.whole).__name__}."
        )
    if type(source).__call__ is not PlannedInput.__call__:
        raise SettingError(
            f"{what} of a FaultPolicy cannot load another sample in the place of one: {type(source).__name__} "
            f"loads samples in a way of its own (it defines `__call__`)."
        )
    if policy.samples == "skip":
        _require_skippable(source)


def _require_skippable(source: PlannedInput) -> None:
    sampler = source.sampler
    if sampler.has_slots or sampler.knows_sequences or not sampler.is_epoch_based:
        raise SettingError(
            f"samples='skip' leaves samples out of batches, but {type(sampler).__name__} delivers sequences, "
            f"clips or an endless stream, where each slot goes on from batch to batch. Use 'replace' (by a frame "
            f"next to it)."
        )
    if not source.delivers_partial_batches:
        raise SettingError(
            f"samples='skip' makes batches smaller, which last_batch={sampler.last_batch!r} does not allow. Use "
            f"last_batch='partial', or 'replace'."
        )


def follow_faults(pipeline: StructuredPipeline, failed: FailedSamples, bound: LoaderInput) -> None:
    """Have a pipeline, before it is started, treat samples that fail as the policy says."""
    if bound.is_read_natively or not callable(bound.data_input) or bound.parts.native:
        return
    if failed.num_excluded:
        _require_own(failed, bound.data_input)
    pipeline.sample_faults = SampleFaults(pipeline, failed)


def _require_own(failed: FailedSamples, source: PlannedInput) -> None:
    """Refuse lists of failed samples that cannot be of this data set."""
    num_samples = source.provider.get_number_of_samples()
    foreign = max(failed.not_tried)
    if foreign >= num_samples:
        raise QuarantineError(
            f"`exclude` lists sample {foreign}, but the data set has the samples 0 .. {num_samples - 1}. Was the "
            f"list made of other data?"
        )
