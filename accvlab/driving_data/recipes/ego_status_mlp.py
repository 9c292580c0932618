# SPDX-License-Identifier: Apache-2.0
"""The data of NAVSIM's baseline that sees nothing: the state of the vehicle, and its trajectory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import SampleDataGroup, checks

from ..datasets.driving.driving_fields import DrivingFieldSettings
from ..datasets.navsim.navsim_provider import NavsimProvider
from . import recipe_parts as parts
from .recipe import FrameQueues, Recipe
from .recipe_parts import DT
from .transfuser import agent_batch, navsim_provider


@attrs.frozen(kw_only=True)
class EgoStatusSettings(parts.RecipeSettings):
    """The settings for NAVSIM's ``EgoStatusMLPAgent``; the defaults are its own.

    Batches, of B scenes::

        features
            ego_status      (B, 8) float32           velocity (2), acceleration (2), command (4)
        targets
            trajectory      (B, poses, 3) float64    x, y, heading, each 0.5 s
        token, scene        B texts
        place               position of the sample

    In evaluation, there is a trajectory if scenes have at least ``num_poses`` future frames.

    Attributes:
        num_poses: Poses of the trajectory, 0.5 s apart.
    """

    model = "EgoStatusMLP"
    num_poses: int = parts.setting(8, checks.whole_number, at_least=1)

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `NavsimProvider`: it needs none; ``sensors={}`` and ``boxes=False`` load nothing else."""
        return {}


class EgoStatusSamples(FrameQueues):
    """States and trajectories of the scenes of a `NavsimProvider`, computed for a batch at once."""

    _provider: NavsimProvider

    def __init__(
        self, provider: NavsimProvider, settings: EgoStatusSettings, extra_fields: Sequence[str] = ()
    ) -> None:
        """Wrap the provider of the scenes; for extra fields, each sample of it is loaded."""
        super().__init__(provider)
        self._num_poses = settings.num_poses
        self._has_poses = settings.num_poses <= provider.scene_filter.num_future_frames
        self._extra_fields = parts.extra_names(extra_fields)

    def frames_of(self, sample_index: int) -> list[int]:
        """Numbers of the frames of a sample: the current one."""
        return [sample_index]

    def get_number_of_samples(self) -> int:
        """Get the number of scenes."""
        return self._provider.get_number_of_samples()

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample."""
        sample, given = SampleDataGroup(), self._provider.sample_data_structure.format
        fields: dict[str, Any] = {"ego_status": (DT.FLOAT, 1)}
        if self._has_poses:
            fields["trajectory"] = (DT.FLOAT64, 2)
        parts.add_fields(sample, {**fields, **{name: given.at((name,)) for name in self._names}})
        return sample

    @property
    def _names(self) -> tuple[str, ...]:
        return (*parts.NAMES, *self._extra_fields)

    def describe_sample(self, sample_index: int) -> str:
        """Describe the scene."""
        return self._provider.describe_sample(sample_index)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample."""
        return next(self.load_batch([sample_index], [0]))

    @property
    def loads_batches(self) -> bool:
        """Always: those of a batch cost little more than one of them."""
        return True

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load samples."""
        history, future = self._provider.ego_columns(sample_indices).values()
        states = [history[name][:, -1] for name in ("velocities", "accelerations", "commands")]
        columns = [np.concatenate(states, axis=1).astype(np.float32)]
        if self._has_poses:
            columns.append(future["poses"][:, : self._num_poses])
        names = self._provider.names_of(sample_indices)
        for row, sample_index in enumerate(sample_indices):
            sample = self.new_sample()
            values: list[Any] = [column[row] for column in columns]
            values += [np.frombuffer(name, np.uint8) for name in names[row]]
            if self._extra_fields:
                given = self._provider.get_data(sample_index)
                for name in self._extra_fields:
                    value = given[name]
                    values += value.get_data() if isinstance(value, SampleDataGroup) else [value]
            sample.set_data(values)
            yield sample


def _source(provider: NavsimProvider, settings: EgoStatusSettings, **of_samples: Any) -> EgoStatusSamples:
    navsim_provider(provider, settings, of_samples["is_training"])
    return EgoStatusSamples(provider, settings, of_samples["extra_fields"])


def _chain(request: parts.Request) -> parts.Chain:
    return parts.Chain([], [], [])


EGO_STATUS_MLP = Recipe(
    settings=EgoStatusSettings,
    chain=_chain,
    as_batch=agent_batch,
    source=_source,
    can_reduce=False,
    needs_cameras=False,
)
"""The recipe of the baseline that sees nothing but the state of the vehicle."""
