"""Parts of a graph with other batch sizes: what of DALI they rely on, shown by DALI itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import pipeline_def, types
from nvidia.dali.pipeline import do_not_convert

from accvlab.dali_pipeline_framework.engine.dali.graph_definition import (
    BatchPart,
    SourceOutputs,
    merge,
    split,
    with_conditionals,
    without_conditionals,
)

SAMPLES = 3
SLOTS = np.repeat(np.arange(4, dtype=np.int32), SAMPLES)  # of the entries of a batch
NUMBERS = np.arange(12, dtype=np.int64)


def batches_of(define: Any, batch_size: int = 12, number: int = 1, **arguments: Any) -> list[list[np.ndarray]]:
    settings = {"num_threads": 1, "device_id": None, "seed": 4, **arguments}
    pipeline = pipeline_def(define)(batch_size=batch_size, **settings)
    return [[np.asarray(output.as_tensor()) for output in pipeline.run()] for _ in range(number)]


@pytest.mark.parametrize("exec_dynamic", [False, True])
def test_a_batch_is_split_and_merged_in_its_order(exec_dynamic: bool) -> None:
    def define() -> Any:
        slot, number = fn.external_source(lambda: (SLOTS, NUMBERS), num_outputs=2)
        first, rest = split(number, slot == 1)
        return first, rest, merge(first, rest, slot == 1)

    [[first, rest, both]] = batches_of(define, exec_dynamic=exec_dynamic)
    assert first.tolist() == [3, 4, 5]
    assert rest.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert both.tolist() == NUMBERS.tolist()


def test_outputs_are_added_to_a_source_and_those_left_out_are_not_asked_for() -> None:
    def define() -> Any:
        outputs = SourceOutputs({"source": lambda: (np.full(2, 7, np.int32), np.full(2, 0.5, np.float32))})
        _, number, factor = (outputs.add(dtype) for dtype in (types.UINT8, types.INT32, types.FLOAT))
        outputs.keep([number, factor])
        return factor, number

    [[factor, number]] = batches_of(define, batch_size=2)
    assert (factor.tolist(), number.tolist()) == ([0.5, 0.5], [7, 7])


DRAWS = {
    "uniform": lambda: fn.random.uniform(range=[0.0, 1.0]),
    "of a shape": lambda: fn.random.uniform(range=[0.0, 1.0], shape=[2, 3]),
    "of values": lambda: fn.random.uniform(values=[1.0, 2.0, 5.0]),
    "of a type": lambda: fn.random.uniform(range=[0.0, 255.0], dtype=types.UINT8),
    "normal": lambda: fn.random.normal(mean=1.0),
    "coin": lambda: fn.random.coin_flip(probability=0.3),
    "beta": lambda: fn.random.beta(alpha=1.0, beta=2.0),
    "choice": lambda: fn.random.choice(5),
    "permutation": lambda: fn.batch_permutation(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_operators_draw_in_a_part_as_if_there_were_nothing_else(name: str) -> None:
    def in_part() -> Any:
        part = BatchPart(fn.external_source(lambda: [SLOTS], num_outputs=1)[0] < 1)
        with part.defining(False, lambda node, part: None) as to_part:
            return to_part(DRAWS[name]())

    alone = batches_of(lambda: DRAWS[name](), SAMPLES, 4)
    for [one], [other] in zip(alone, batches_of(in_part, number=4), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


class Branching:
    """Uses constants, random numbers and `if` on data, which DALI rewrites."""

    def __call__(self, number: Any) -> Any:
        factor = types.Constant(np.float32(10.0), device="cpu")
        if number > 1:  # noqa: SIM108 (DALI rewrites statements only)
            changed = number * factor
        else:
            changed = fn.random.uniform(range=[5.0, 6.0]) + 0.0
        return changed + fn.cast(number, dtype=types.FLOAT) * 0.0


def test_branches_within_a_part() -> None:
    def in_part() -> Any:
        with without_conditionals() as has_conditionals:
            assert has_conditionals
            slot, number = fn.external_source(lambda: (SLOTS, NUMBERS.astype(np.float32)), num_outputs=2)
            part = BatchPart(slot < 1)
            with part.defining(True, lambda node, part: None) as to_part:
                return to_part(with_conditionals(Branching())(part.of(number)))

    defined = do_not_convert(in_part)
    [[found]] = batches_of(lambda: defined(), enable_conditionals=True)
    assert len(found) == SAMPLES
    assert found[2] == 20.0
    assert all(5.0 <= number < 6.0 for number in found[:2])
