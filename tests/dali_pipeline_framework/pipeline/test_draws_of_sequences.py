"""Random draws with samplers that play sequences."""

from __future__ import annotations

import pytest
from support.draws import Drawer, column, drawn
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler


class TestStreamingSequenceSampler:
    LENGTHS = (5, 3, 4, 7, 3)
    STEPS = (Drawer(UniformDraw("a"), UniformDraw("s", key="sequence")),)

    def streamed(self, batch_size: int, shard: int = 0, num_shards: int = 1) -> SamplerInputCallable:
        sampler = StreamingSequenceSampler(self.LENGTHS, batch_size, seed=3, last_batch="partial")
        return SamplerInputCallable(IndexProvider(22), sampler, shard_id=shard, num_shards=num_shards)

    def test_numbers_depend_on_sample_and_sequence_only(self) -> None:
        expected = drawn(self.streamed(1), self.STEPS, 2)
        assert len(expected) == 44
        sequences = [number for number, length in enumerate(self.LENGTHS) for _ in range(length)]
        for epoch in range(2):
            found = column(expected, "s", epoch)
            assert len({*found}) == 5
            assert len({*zip(found, sequences, strict=True)}) == 5
            assert len({*column(expected, "a", epoch)}) == 22
        for batch_size, workers in ((2, 2), (4, 1)):  # the last batches of an epoch are smaller
            assert drawn(self.streamed(batch_size), self.STEPS, 2, py_num_workers=workers) == expected
        shards = [drawn(self.streamed(2, shard, 2), self.STEPS, 2) for shard in range(2)]
        assert shards[0] | shards[1] == expected

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_continue_where_a_loader_stopped(self, num_workers: int) -> None:
        expected = drawn(self.streamed(2), self.STEPS, 2, seed=8)
        with self.loader(1) as loader:
            batches = iter(loader)
            for _ in range(3):
                next(batches)
            state = loader.state_dict()
        found: dict[tuple[int, int], float] = {}
        with self.loader(num_workers) as loader:
            loader.load_state_dict(state)
            for epoch in range(2):
                for batch in loader:
                    for index, value in zip(batch["index"].tolist(), batch["a"].tolist(), strict=True):
                        found[epoch, index] = value
        assert len(found) == 44 - 6
        assert found == {key: expected[key]["a"] for key in found}

    def loader(self, num_workers: int) -> DataLoader:
        return DataLoader(
            self.streamed(2),
            steps=self.STEPS,
            run="graph",
            num_workers=num_workers,
            num_threads=1,
            seed=8,
            start_method="fork",
            output_type="numpy",
        )
