# SPDX-License-Identifier: Apache-2.0
"""What a recipe is made of: a provider, an order, steps, and the form of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..errors import SettingError
from ..loader.data_loader import DataLoader
from ..pipeline.output_conversion import RaggedArgument
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..providers.data_provider import DataProvider
from ..sampling.random_access_sampler import RandomAccessSampler
from ..sources.sampler_input_callable import SamplerInputCallable

_OWN = ("stack_arrays", "ragged", "post_process_func", "steps", "sampler", "shuffle", "context_name")


@attrs.frozen(kw_only=True)
class Recipe:
    """The data of a model: all that makes its batches, each part to be looked at or replaced (`attrs.evolve`).

    Attributes:
        data_provider: What is loaded.
        sampler: The order.
        steps: The processing steps.
        collate: Brings a batch of the loader, with one tensor per field of an array, into the form of the model.
        ragged: What differs in shape between samples: lists of tensors.
        context_name: Name of the group that tells where a sample stands; None for none.
    """

    data_provider: DataProvider
    sampler: RandomAccessSampler
    steps: tuple[PipelineStepBase, ...]
    collate: Callable[[Any], Any]
    ragged: Mapping[str, str] = attrs.field(factory=dict)
    context_name: str | None = None

    def definition(self, batch_size: int, **arguments: Any) -> PipelineDefinition:
        """Make the definition of the pipeline, without `collate`.

        Args:
            batch_size: Samples per batch, all shards together.
            **arguments: Further arguments of `PipelineDefinition`.
        """
        data_input = SamplerInputCallable(
            self.data_provider, self.sampler.with_settings(total_batch_size=batch_size)
        )
        return PipelineDefinition(data_input, [*self.steps], **arguments)

    def loader(self, batch_size: int, **arguments: Any) -> DataLoader:
        """Make the loader.

        Args:
            batch_size: Samples per batch on this shard.
            **arguments: Further arguments of `DataLoader`, e.g. ``num_workers``, ``shard``, ``seed``.

        Raises:
            SettingError: An argument belongs to the recipe, or is refused by the loader.
        """
        for name in _OWN:
            if name in arguments:
                raise SettingError(
                    f"`{name}` is set by the recipe. To change it, change the recipe (`attrs.evolve`), or make a "
                    f"DataLoader of its parts."
                )
        ragged: RaggedArgument = dict(self.ragged) if self.ragged else "raise"  # type: ignore[assignment]
        return DataLoader(
            self.data_provider,
            batch_size,
            steps=[*self.steps],
            sampler=self.sampler,
            context_name=self.context_name,
            stack_arrays=True,
            ragged=ragged,
            post_process_func=self.collate,
            **arguments,
        )


def require_fields(provider: DataProvider, model: str, needed: Mapping[str, str]) -> None:
    """Refuse a provider that lacks fields.

    Args:
        provider: The provider.
        model: Name of the model.
        needed: Name of a field or group of samples, or a path with points, and the setting of the provider that
            makes it.

    Raises:
        SettingError: The provider lacks some; all are named.
    """
    format = provider.sample_data_structure.format
    missing = {name: how for name, how in needed.items() if format.get(tuple(name.split("."))) is None}
    if missing:
        lines = "\n".join(f"  - {name}: {how}" for name, how in missing.items())
        raise SettingError(f"{type(provider).__name__} lacks what {model} needs:\n{lines}")
