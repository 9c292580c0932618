"""An input that knows where its samples stand, and steps that draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.draws import RandomDraw
from accvlab.dali_pipeline_framework.draws.keyed_draws import SamplePlace
from accvlab.dali_pipeline_framework.inputs import CallableBase
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from support.array_samples import group_of
from support.pipelines import make_iterator

DT = types.DALIDataType


class SequenceInput(CallableBase):
    """Delivers the samples of ``order`` (default: all) in each epoch; sample ``i`` has two cameras.

    Samples are numbered through the sequences, whose lengths are given. ``"scene"`` is the sequence, as text.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (4, 3, 5),
        batch_size: int = 3,
        order: Sequence[int] | None = None,
        shard: tuple[int, int] = (0, 1),
        tells: str = "place",
    ) -> None:
        self.sequence_of = [number for number, length in enumerate(lengths) for _ in range(length)]
        full = [*range(sum(lengths))] if order is None else [*order]
        self.order = full[shard[0] :: shard[1]]
        self.visits = [full[: position * shard[1] + shard[0]].count(i) for position, i in enumerate(self.order)]
        self._batch_size = batch_size
        self.tells = tells

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, scene=DT.STRING, cameras=(group_of(gain=DT.FLOAT), 2))

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        if sample_info.idx_in_epoch >= len(self.order):
            raise StopIteration
        sample = self.used_sample_data_structure
        index = self.order[sample_info.idx_in_epoch]
        sample["index"] = index
        sample["scene"] = "scene " + "abc"[self.sequence_of[index]]
        for camera in sample["cameras"].values():
            camera["gain"] = 1.0
        return tuple(sample.get_data())

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        position = sample_info.idx_in_epoch
        if position >= len(self.order) or self.tells in ("nothing", "index"):
            return None
        if self.tells == "trouble":
            raise LookupError("the plan is gone")
        index = self.order[position]
        unknown = self.tells == "no sequences" or (self.tells == "few sequences" and index > 0)
        sequence = -1 if unknown else self.sequence_of[index]
        return SamplePlace(
            epoch=sample_info.epoch_idx,
            batch=sample_info.iteration,
            slot=sample_info.idx_in_batch,
            sample_index=index,
            sequence=sequence,
            visit=self.visits[position],
        )

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        return self.order[sample_info.idx_in_epoch] if self.tells == "index" else None

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @property
    def length(self) -> int:
        return len(self.order) // self._batch_size

    @property
    def num_batches_per_epoch(self) -> int:
        return self.length


class Drawer(PipelineStepBase):
    """Adds its draws to the group that it is applied to, as fields named ``prefix`` and the name of the draw."""

    def __init__(self, *draws: RandomDraw, prefix: str = "", name: str | None = None) -> None:
        self.draws = draws
        self.prefix = prefix
        self.random_name = name

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return self.draws

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for draw in self.draws:
            data.add_data_field(self.prefix + draw.name, draw.dtype)
            data[self.prefix + draw.name] = self.draw(draw.name)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for draw in self.draws:
            data_empty.add_data_field(self.prefix + draw.name, draw.dtype)
        return data_empty


class OtherDrawer(Drawer):
    """The same by another name."""


def flatten(nested: dict[Any, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{below}": inner for below, inner in flatten(value).items()})
        else:
            flat[str(name)] = value
    return flat


def drawn(data_input: Any, steps: Sequence[Any], epochs: int = 1, **arguments: Any) -> dict[tuple[int, int], Any]:
    """(epoch, sample) -> values of all fields; in this process unless told otherwise."""
    samples: dict[tuple[int, int], Any] = {}
    with make_iterator(data_input, steps, **{"py_num_workers": 0, "num_threads": 1, **arguments}) as iterator:
        for epoch in range(epochs):
            for batch in iterator:
                fields = flatten(batch)
                for slot, index in enumerate(fields["index"].tolist()):
                    values = {name: np.asarray(field[slot]).tolist() for name, field in fields.items()}
                    assert (
                        samples.setdefault((epoch, index), values) == values
                    )  # or seen twice, with the same draws
    return samples


def column(samples: dict[tuple[int, int], Any], name: str, epoch: int = 0) -> list[Any]:
    return [values[name] for (of_epoch, _), values in sorted(samples.items()) if of_epoch == epoch]
