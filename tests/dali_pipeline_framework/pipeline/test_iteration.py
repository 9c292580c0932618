"""Epochs, breaks and lengths, with real worker processes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from support import pipelines
from support.pipelines import indices, shuffled
from support.providers import IndexProvider, NumberProvider, SlowIndexProvider
from support.random_steps import each_camera
from support.refusals import assert_refused
from support.samplers import EndlessSampler, EpochSampler
from support.steps import Doubler

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition

# Epochs end and are left while several workers load.
make_iterator = functools.partial(pipelines.make_iterator, py_num_workers=2)


def permutation(epoch: int, num_batches: int = 5, seed: int = 21) -> list[list[int]]:
    order = np.random.default_rng(seed + epoch).permutation(22)
    return order[: 4 * num_batches].reshape(num_batches, 4).tolist()


@pytest.mark.parametrize(
    ("method", "num_workers"),
    [("fork", 1), ("fork", 3), ("forkserver", 3), pytest.param("spawn", 1, marks=pytest.mark.wide)],
)
def test_two_epochs_deliver_what_two_epochs_should(method: str, num_workers: int) -> None:
    data_input = shuffled(IndexProvider(22), shuffle=True)
    with make_iterator(data_input, py_start_method=method, py_num_workers=num_workers) as iterator:
        assert indices(iterator) == permutation(0)
        assert indices(iterator) == permutation(1)


@pytest.mark.parametrize(
    ("definition", "pipeline"),
    [
        ({"use_parallel_external_source": False}, {}),
        ({}, {"py_num_workers": 0}),
        ({"prefetch_queue_depth": 5}, {"prefetch_queue_depth": 3}),
        ({}, {"exec_dynamic": False}),
        ({}, {"exec_async": False}),
        ({"use_parallel_external_source": False}, {"exec_async": False, "exec_pipelined": False}),
    ],
)
def test_epochs_and_breaks_are_the_same_however_it_runs(definition: dict, pipeline: dict) -> None:
    data_input = shuffled(IndexProvider(22), shuffle=True)
    with make_iterator(data_input, definition=definition, **pipeline) as iterator:
        held = [batch["index"] for batch in iterator]
        assert [batch.tolist() for batch in held] == permutation(0)  # not overwritten by later batches
        assert indices(iterator, max_batches=2) == permutation(1)[:2]
        assert indices(iterator) == permutation(2)


@pytest.mark.parametrize("num_before_break", [1, 3, 5])
def test_a_new_loop_after_a_break_starts_the_next_epoch(num_before_break: int) -> None:
    with make_iterator(shuffled(IndexProvider(22), shuffle=True)) as iterator:
        for epoch in range(3):
            assert indices(iterator, num_before_break) == permutation(epoch)[:num_before_break]
        assert indices(iterator) == permutation(3)


def test_a_loop_that_takes_nothing_skips_nothing() -> None:
    with make_iterator(shuffled(IndexProvider(22), shuffle=True)) as iterator:
        iter(iterator)
        iter(iterator)
        assert indices(iterator) == permutation(0)
        iter(iterator)
        assert indices(iterator) == permutation(1)


def test_the_workers_load_nothing_more_for_an_abandoned_epoch() -> None:
    # 4 s for the whole epoch; the batches that are in preparation take well below one.
    data_input = shuffled(SlowIndexProvider(200), 1)
    with make_iterator(data_input, py_num_workers=1) as iterator:
        assert indices(iterator, 2) == [[0], [1]]
        loaded_before = iterator.internal_iterator.num_delivered
        assert indices(iterator, 2) == [[0], [1]]
        assert iterator.internal_iterator.num_delivered - loaded_before <= 2 + 2 + 2 + 2  # both prefetch queues


def test_next_after_the_end_keeps_raising() -> None:
    with make_iterator(shuffled(IndexProvider(8))) as iterator:
        epoch = iter(iterator)
        assert indices(epoch) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(epoch)
        epoch.reset()
        assert indices([next(epoch)]) == [[0, 1, 2, 3]]
        assert len(epoch) == len(iterator) == 2


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"definition": {"use_parallel_external_source": False}},
        {"py_start_method": "forkserver"},
        pytest.param({"py_start_method": "spawn"}, marks=pytest.mark.wide),
    ],
)
def test_epochs_and_breaks_of_an_iterable(how: dict[str, Any]) -> None:
    data_input = SamplerInputIterable(IndexProvider(10), EpochSampler())
    with make_iterator(data_input, **how) as iterator:
        assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert indices(iterator, 1) == [[1, 2, 3, 4]]
        assert indices(iterator) == [[2, 3, 4, 5], [6, 7, 8, 9]]
        assert indices(iterator) == [[3, 4, 5, 6], [7, 8, 9, 0]]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("input_class", [SamplerInputCallable, SamplerInputIterable])
def test_an_endless_stream_goes_on_after_a_break_and_loses_nothing(input_class: type, parallel: bool) -> None:
    data_input = input_class(IndexProvider(10), EndlessSampler())
    with make_iterator(
        data_input, batch_size=4, definition={"use_parallel_external_source": parallel}
    ) as iterator:
        delivered = indices(iterator, 2) + indices(iterator, 3) + indices(iterator, 1)
    assert [index for batch in delivered for index in batch] == [i % 10 for i in range(24)]


def test_a_limited_sampler_ends_and_says_why_it_cannot_go_on() -> None:
    data_input = SamplerInputCallable(IndexProvider(10), EndlessSampler(), 3, 0)
    with make_iterator(data_input) as iterator:
        assert len(iterator) == 3
        assert len(indices(iterator, 2)) == 2
        assert len(indices(iterator)) == 1  # the rest: nothing is lost by the break
        assert_refused(lambda: indices(iterator), "maximum number of iterations is used up", RuntimeError)


def test_the_length_is_that_given_or_unknown() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider(22))).get_dali_pipeline(num_threads=1)
    with DALIStructuredOutputIterator(7, pipeline, output_type="numpy") as iterator:
        assert len(iterator) == 7
        assert len(indices(iterator)) == 5
    with make_iterator(SamplerInputIterable(IndexProvider(10), EndlessSampler()), batch_size=4) as iterator:
        assert_refused(lambda: len(iterator), "Pass `num_batches_in_epoch`", TypeError)


def test_workers_can_be_started_first() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(num_threads=1, py_num_workers=2)
    for _ in range(2):
        pipeline.start_py_workers()
    pipeline.build()
    with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
        assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("steps", "factor"), [([], 1), ([each_camera(Doubler("gain"))], 2)], ids=["", "folded"])
def test_run_delivers_the_fields_in_flat_order(steps: list[Any], factor: int) -> None:
    definition = PipelineDefinition(shuffled(NumberProvider(8)), steps)
    pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    outputs = [np.asarray(output.as_tensor()) for output in pipeline.run()]
    pipeline.close()
    cameras = (f"cameras.[{camera}].{name}" for camera in range(2) for name in ("label", "gain"))
    names = definition.check_and_get_output_data_structure().field_names_flat
    assert names == ("index", "pair", "name", *cameras)
    values = dict(zip(names, outputs, strict=True))
    assert values["index"].tolist() == [0, 1, 2, 3]
    assert values["cameras.[1].gain"].tolist() == [factor * gain for gain in (0.5, 1.5, 2.5, 3.5)]
    assert values["name"].tobytes() == b"\0\0" + b"x\0" + b"xx" + b"\0\0"
    assert pipeline.max_batch_size == 4
