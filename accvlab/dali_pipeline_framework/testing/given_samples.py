# SPDX-License-Identifier: Apache-2.0
"""An input that delivers given samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvidia.dali import types

from ..draws.draw_records import DrawRecord
from ..draws.sample_place import SamplePlace
from ..errors import SettingError
from ..sample_data import SampleDataGroup
from ..sample_data.dtypes import get_dali_type_for_numpy_type as dali_type
from ..sample_data.format_problems import describe_difference
from ..sources.callable_base import CallableBase

REPLAYED = "replayed draws"


class GivenSamples(CallableBase):
    """Delivers the given samples as one batch: the frames of one sequence, in this order.

    With records, each sample also has a group named ``REPLAYED`` with the numbers of its record.

    Attributes:
        samples: The samples.
        records: For each of them the draws to replay; None where they are drawn.
    """

    def __init__(self, samples: Sequence[SampleDataGroup], records: Sequence[DrawRecord] | None = None) -> None:
        """Take filled samples of one format, and optionally a record of draws for each.

        Raises:
            SettingError: If there is no sample, one is not a `SampleDataGroup`, or their formats differ.
        """
        if not samples:
            raise SettingError("At least one sample must be given.")
        for number, sample in enumerate(samples):
            if not isinstance(sample, SampleDataGroup):
                raise SettingError(f"Sample {number} must be a SampleDataGroup, got {type(sample).__name__}.")
            if not sample.type_matches(samples[0]):
                raise SettingError(
                    f"All samples must have the same format, but sample {number} differs from sample 0:\n"
                    f"{describe_difference(samples[0].format, sample.format)}"
                )
        self.batch_size = len(samples)
        self.samples = samples
        self.records = records

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Format of the first sample, and of the draws."""
        blueprint = self.samples[0].get_empty_like_self()
        if self.records is not None:
            group = SampleDataGroup()
            for name, value in self.records[0].items():
                group.add_data_field(name, dali_type(value.dtype))
            blueprint.add_data_group_field(REPLAYED, group)
        return blueprint

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Return the flat values of a sample, and of its record."""
        number = sample_info.idx_in_epoch
        if number >= len(self.samples):
            raise StopIteration
        flat = tuple(self.samples[number].get_data())
        return flat if self.records is None else (*flat, *self.records[number].values())

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Return the position of the sample."""
        number: int = sample_info.idx_in_epoch
        return number

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Return the place of the sample: a frame of the only sequence."""
        number = sample_info.idx_in_epoch
        return SamplePlace(
            epoch=sample_info.epoch_idx, batch=0, slot=number, sample_index=number, sequence=0, frame=number
        )

    @property
    def length(self) -> int:
        """Number of batches: one."""
        return 1
