"""Arguments of `PipelineDefinition` and of `get_dali_pipeline`, and what they do."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import nvidia.dali
import pytest
from nvidia.dali.pipeline import OperatorConcurrency, StreamPolicy
from support.arrays import DT
from support.draws import Drawer
from support.laws import each_value
from support.pipelines import indices, make_iterator, shuffled, worker_pids
from support.providers import IndexProvider, NumberProvider, PidProvider
from support.refusals import assert_refused
from support.samplers import EndlessSampler
from support.steps import Doubler, Noise, Renamer

from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus
from accvlab.dali_pipeline_framework.errors import SettingError, UnknownArgumentError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.limits.control_groups import num_usable_cores
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)

NO_GPU = num_usable_gpus() == 0
EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def make_pipeline(*args: Any, **kwargs: Any) -> Any:
    return PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(*args, **kwargs)


def first_output(pipeline: Any) -> np.ndarray:
    return np.asarray(pipeline.run()[0].as_tensor())


# Arguments of DALI's pipeline with values that are not the default, as far as they go together.
ARGUMENTS: list[dict[str, Any]] = [
    {
        **{"batch_size": 4, "num_threads": 3, "device_id": 0, "seed": 7, "prefetch_queue_depth": 5},
        **{"bytes_per_sample": 64, "set_affinity": True, "enable_memory_stats": True},
        **{"enable_checkpointing": True, "py_num_workers": 3, "py_start_method": "fork"},
        **{"output_dtype": [DT.INT64], "output_ndim": [0], "output_layout": [None]},
        **{"stream_policy": StreamPolicy.SINGLE, "concurrency": OperatorConcurrency.FULL},
    },
    {"exec_pipelined": False, "exec_async": False, "exec_dynamic": False, "py_num_workers": 0},
    {
        **{"py_start_method": "forkserver", "py_callback_pickler": cloudpickle, "py_num_workers": 1},
        "prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 1},
    },
]
DEPRECATED = {"max_streams": 3, "default_cuda_stream_priority": -1, "experimental_exec_dynamic": True}


class TestArgumentsOfDali:
    def test_all_are_known(self) -> None:
        names = {*inspect.signature(nvidia.dali.Pipeline.__init__).parameters} - {"self"}
        assert names == {*DEPRECATED, "checkpoint"}.union(*ARGUMENTS)  # for the latter see below

    @pytest.mark.parametrize("arguments", ARGUMENTS)
    def test_they_reach_dali(self, arguments: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline = make_pipeline(**arguments)
        names = {"batch_size": "max_batch_size", "py_callback_pickler": "_py_callback_pickler"}
        own = ("bytes_per_sample", "output_layout", "enable_checkpointing")
        names |= {name: f"_{name}" for name in own}
        for name, value in arguments.items():
            found = getattr(pipeline, names.get(name, name))
            expected = None if name == "device_id" and NO_GPU else value
            assert (found() if name in ("output_dtype", "output_ndim") else found) == expected, name
        assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        if arguments["py_num_workers"]:
            assert len(pipeline._py_pool.pids()) == arguments["py_num_workers"]
        pipeline.close()

    def test_deprecated_ones_warn_as_in_dali(self) -> None:
        for name, value in DEPRECATED.items():
            with pytest.warns(Warning, match=f"{name}.* is deprecated"):
                make_pipeline(num_threads=1, py_num_workers=0, **{name: value}).close()

    @pytest.mark.parametrize(
        "legacy",
        [
            {
                **dict.fromkeys(("batch_size", "num_threads", "device_id", "seed", "max_streams"), -1),
                "default_cuda_stream_priority": 0,
            },
            dict.fromkeys(("batch_size", "num_threads", "device_id", "seed")),
        ],
    )
    def test_ways_to_say_not_given_are_accepted_silently(self, legacy: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline = make_pipeline(py_num_workers=0, **legacy)
        assert (pipeline.max_batch_size, pipeline.device_id, pipeline.seed) == (4, None, None)
        assert pipeline.num_threads == num_usable_cores()
        assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        pipeline.close()

    @pytest.mark.parametrize(
        ("variables", "ranks"),
        [
            ({"LOCAL_WORLD_SIZE": "2"}, 2),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
            ({"SLURM_STEP_TASKS_PER_NODE": "1,2(x3)"}, 2),
            ({"LOCAL_WORLD_SIZE": "none"}, 1),
        ],
    )
    def test_ranks_of_a_machine_share_its_cores(
        self, variables: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        cores = num_usable_cores()
        if len(os.sched_getaffinity(0)) != os.cpu_count() and "LOCAL_WORLD_SIZE" not in variables:
            ranks = 1  # the launcher has divided the cores itself
        pipeline = make_pipeline(py_num_workers=0)
        assert pipeline.num_threads == max(1, cores // ranks)
        pipeline.close()

    def test_by_position_in_dali_s_order_also_as_numbers_of_numpy(self) -> None:
        pipeline = make_pipeline(np.int32(4), 3, None, np.int64(11), True, 5, True, 64, False)
        found = (pipeline.max_batch_size, pipeline.num_threads, pipeline.device_id, pipeline.seed)
        assert found == (4, 3, None, 11)
        assert (pipeline.exec_pipelined, pipeline.prefetch_queue_depth, pipeline.exec_async) == (True, 5, True)
        assert pipeline._bytes_per_sample == 64
        pipeline.close()

    def test_the_seed_makes_random_operators_repeatable(self) -> None:
        def draws(seed: int | None) -> list[float]:
            with make_iterator(shuffled(IndexProvider(8)), [Noise()], seed=seed, py_num_workers=0) as iterator:
                return [value for batch in iterator for value in batch["noise"].tolist()]

        assert draws(5) == draws(5)
        assert draws(5) != draws(6)
        assert len(set(draws(5))) == 8
        assert draws(None) != draws(None)

    @pytest.mark.parametrize(
        "how", [{"py_num_workers": 0}, {"definition": {"use_parallel_external_source": False}}]
    )
    def test_without_workers_the_input_runs_here(self, how: dict[str, Any]) -> None:
        with make_iterator(shuffled(PidProvider(8)), **{"py_num_workers": 2, **how}) as iterator:
            assert {int(pid) for batch in iterator for pid in batch["pid"]} == {os.getpid()}
            assert worker_pids() == []

    @pytest.mark.parametrize("depth", [1, np.int64(7)])
    def test_prefetch_depth_of_the_workers(self, depth: int) -> None:
        definition = {"prefetch_queue_depth": depth}
        with make_iterator(shuffled(IndexProvider(8)), definition=definition, py_num_workers=2) as iterator:
            [group] = iterator.internal_iterator._parallel_input_callbacks
            assert group.prefetch_queue_depth == max(depth, 2)  # two workers: each loads whole batches
            assert indices(iterator) == EIGHT


def test_where_conditionals_are_forgotten_step_and_remedy_are_named() -> None:
    definition = PipelineDefinition(shuffled(IndexProvider(8)), [Renamer("index", "x"), Doubler("x", above=4)])
    with pytest.raises(TypeError) as caught:
        definition.get_dali_pipeline(num_threads=1)
    if hasattr(caught.value, "__notes__"):  # Python >= 3.11
        [note] = caught.value.__notes__
        assert note.startswith("raised while step 1 (Doubler) defined its operators")
        assert "get_dali_pipeline(enable_conditionals=True)" in note
    with make_iterator(shuffled(IndexProvider(8)), definition.steps, enable_conditionals=True) as iterator:
        assert [batch["x"].tolist() for batch in iterator] == [[0, 1, 2, 3], [4, 10, 12, 14]]


class TestDebug:
    @pytest.mark.parametrize("py_num_workers", [0, 1])
    def test_runs_steps_one_by_one(self, py_num_workers: int) -> None:
        seen: list[Any] = []

        class Looker(Renamer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                if hasattr(data["index"], "get"):  # not so while DALI only looks at the graph
                    seen.append(np.asarray(data["index"].get().as_tensor()).tolist())
                return super()._process(data)

        source, steps = shuffled(IndexProvider(8)), [Looker("index", "number"), Drawer(UniformDraw("a"))]
        definition = PipelineDefinition(source, steps)
        pipeline = definition.get_dali_pipeline(debug=True, num_threads=1, py_num_workers=py_num_workers)
        blueprint = definition.check_and_get_output_data_structure()
        batches = [*DALIStructuredOutputIterator(None, pipeline, blueprint, output_type="numpy")]
        assert [batch["number"].tolist() for batch in batches] == EIGHT
        assert seen == EIGHT
        with make_iterator(source, steps, py_num_workers=0) as iterator:
            assert [batch["a"].tolist() for batch in iterator] == [batch["a"].tolist() for batch in batches]

    def test_such_a_pipeline_knows_neither_its_format_nor_a_plan(self) -> None:
        how = {"debug": True, "num_threads": 1, "py_num_workers": 0}
        words = "a pipeline that does not know its format: ... debug=True"
        assert_refused(lambda: DALIStructuredOutputIterator(None, make_pipeline(**how)), words)
        definition = PipelineDefinition(shuffled(IndexProvider(8)))
        assert_refused(lambda: definition.plan(**how), "There is no plan of a pipeline with debug=True")


def orders(num_epochs: int) -> list[list[list[int]]]:
    permutations = (np.random.default_rng(21 + epoch).permutation(20) for epoch in range(num_epochs))
    return [order.reshape(5, 4).tolist() for order in permutations]


class TestCheckpoints:
    """Batches that were only prefetched do not count as delivered."""

    @staticmethod
    def iterator(checkpoint: bytes | None = None, data_input: Any = None, **arguments: Any) -> Any:
        if checkpoint is not None:
            arguments["checkpoint"] = checkpoint
        data_input = data_input or shuffled(IndexProvider(20), shuffle=True)
        return make_iterator(data_input, enable_checkpointing=True, **arguments)

    @each_value(num_before=[0, 1, 2, 4], definition=[{}, {"use_parallel_external_source": False}])
    def test_goes_on_in_the_middle_of_an_epoch_with_random_operators(
        self, num_before: int, definition: dict[str, Any], tmp_path: Path
    ) -> None:
        def taken(batches: Any, number: int | None = None) -> list[Any]:
            return [(each["index"].tolist(), each["noise"].tolist()) for each in islice(batches, number)]

        expected, path = orders(4), tmp_path / "of_the_pipeline"
        arguments = {"definition": definition, "steps": [Noise()], "seed": 3}
        with self.iterator(**arguments) as iterator:
            assert indices(iterator) == expected[0]
            epoch = iter(iterator)
            before = taken(epoch, num_before)
            checkpoint = iterator.internal_iterator.checkpoint(str(path))
            after = taken(epoch)  # the original is not changed
        assert [index for index, _ in before + after] == expected[1]
        assert checkpoint == path.read_bytes()
        with self.iterator(checkpoint, **arguments) as iterator:
            assert taken(iterator) == after
            assert indices(iterator, 2) == expected[2][:2]
            assert indices(iterator) == expected[3]

    @pytest.mark.parametrize("num_before", [5, None])
    def test_goes_on_after_the_end_of_an_epoch(self, num_before: int | None) -> None:
        expected = orders(3)
        with self.iterator() as iterator:
            assert indices(iterator, num_before) == expected[0]
            (checkpoint,) = iterator.internal_iterator.checkpoints()
        with self.iterator(checkpoint) as iterator:
            epochs = [indices(iterator) for _ in range(3)]
        # Whether the rest of the old epoch, which is empty, is an epoch of its own is left open.
        assert [epoch for epoch in epochs if epoch][:2] == expected[1:]
        assert epochs[1] != []

    def test_of_a_sampler(self) -> None:
        def data_input() -> SamplerInputCallable:
            return SamplerInputCallable(IndexProvider(10), EndlessSampler(), None)

        with self.iterator(data_input=data_input()) as iterator:
            assert indices(iterator, 3)[-1] == [8, 9, 0, 1]
            checkpoint = iterator.internal_iterator.checkpoint()
        with self.iterator(checkpoint, data_input()) as iterator:
            assert indices(iterator, 2) == [[2, 3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_formats_are_printed_on_request_and_nothing_otherwise(
    is_wanted: bool, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    steps = [Renamer("index", "number"), None, Doubler("number")]
    definition = PipelineDefinition(shuffled(IndexProvider(8)), steps, print_sample_data_group_format=is_wanted)
    assert capfd.readouterr().out == ""
    pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=1)
    formats = (
        "Input format:\n{\n  index: DALIDataType.INT64   \n}\n\n"
        "Format after step 0:\n{\n  number: DALIDataType.INT64   \n}\n\n"
        "Format after step 1:\n{\n  number: DALIDataType.INT64   \n}\n\n"
    )
    assert capfd.readouterr().out == (formats if is_wanted else "")
    with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
        assert len([*iterator]) == 2
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


class TestDefinitions:
    def test_the_format_of_the_output_can_be_asked_for_repeatedly(self) -> None:
        class KeepingProvider(NumberProvider):
            """Has one object of its format, which stays as it is."""

            kept = NumberProvider().sample_data_structure
            sample_data_structure = property(lambda self: self.kept)

            def get_data(self, sample_index: int) -> SampleDataGroup:
                sample = self.kept.get_empty_like_self()
                sample.set_data(NumberProvider(8).get_data(sample_index).get_data())
                sample["cameras"][0]["label"] = "bus"  # through the mapping, which is still on
                return sample

        provider = KeepingProvider(8)
        before = str(provider.kept)
        definition = PipelineDefinition(shuffled(provider), [Renamer("index", "number"), Doubler("gain")])
        first = definition.check_and_get_output_data_structure()
        cameras = ("cameras.[0].label", "cameras.[0].gain", "cameras.[1].label", "cameras.[1].gain")
        assert first.field_names_flat == ("pair", "name", *cameras, "number")
        first.remove_field("number")
        assert "number" in definition.check_and_get_output_data_structure().field_names_flat
        assert definition.input_data_structure.field_names_flat[0] == "index"
        pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
        with DALIStructuredOutputIterator(None, pipeline) as iterator:
            assert next(iter(iterator))["cameras"][0]["label"].tolist() == [2, 2, 2, 2]
        assert str(provider.kept) == before

    @pytest.mark.parametrize(
        ("steps", "factor"),
        [(None, 1), ((None, None), 1), ([Doubler("index")], 2), ((Doubler("index") for _ in range(2)), 4)],
        ids=["none", "two times none", "one", "of a generator"],
    )
    def test_several_pipelines_from_one_definition(self, steps: Any, factor: int) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)), steps)
        pipelines = [definition.get_dali_pipeline(num_threads=1, py_num_workers=workers) for workers in (0, 1)]
        for pipeline in pipelines:
            with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
                assert indices(iterator) == [[factor * index for index in batch] for batch in EIGHT]


class OnlyNext:
    def __next__(self) -> Any:
        raise StopIteration


INPUT = "data_loading_callable_iterable"
OF_DEFINITIONS: list[tuple[dict[str, Any], str]] = [
    ({INPUT: [1, 2]}, "The input must have the property `used_sample_data_structure`...; list has none."),
    ({INPUT: OnlyNext()}, "The input must be a callable ... native reader ..., got OnlyNext."),
    ({INPUT: None}, "The input must be a callable ... native reader ..., got NoneType."),
    ({INPUT: IndexProvider(8)}, "IndexProvider is a data provider, which knows no order"),
    ({"preprocess_functors": Doubler("index")}, "must be a sequence of steps, got a single one: Doubler"),
    (
        {"preprocess_functors": [Doubler("index"), Doubler]},
        "Step 1 must be a PipelineStepBase, got ...(a class: create",
    ),
    ({"run": "worker"}, "`run` must be one of 'auto', 'workers', 'graph', got 'worker'"),
    ({"prefetch_queue_depth": 0}, "`prefetch_queue_depth` must be a whole number of at least 1, got 0"),
]
OF_PIPELINES: list[tuple[dict[str, Any], str]] = [
    ({"num_thread": 2}, "`num_thread` is not an argument of a DALI pipeline. Did you mean 'num_threads'?"),
    ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, got 0"),
    ({"prefetch_queue_depth": {"cpu_size": 0}}, "`prefetch_queue_depth` must be ... got 0"),
    ({"py_start_method": "x"}, "`py_start_method` must be 'fork', 'spawn' or 'forkserver', got 'x'"),
    ({"exec_pipelined": False}, "`exec_pipelined=False` does not work with worker processes"),
    ({"py_callback_pickler": pickle}, "`py_callback_pickler` has no use with forked workers"),
    ({"decoder_options": 0.5}, "`decoder_options` must be a dict, got 0.5"),
    ({"decoder_options": {"hw_decoder_load": 2}}, "`hw_decoder_load` must be in [0, 1], got 2"),
    ({"decoder_options": {"preallocate_width_hint": -1}}, "`preallocate_width_hint` must be ... got -1"),
    (
        {"decoder_options": {"hw_decoder_laod": 0.5}},
        "`decoder_options` takes hw_decoder_load, preallocate_height_hint, preallocate_width_hint, got "
        "'hw_decoder_laod'. Did you mean 'hw_decoder_load'?",
    ),
]


@pytest.mark.parametrize(("arguments", "words"), OF_DEFINITIONS)
def test_a_definition_refuses_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    assert_refused(lambda: PipelineDefinition(**{INPUT: shuffled(IndexProvider(8)), **arguments}), words)


@pytest.mark.parametrize(("arguments", "words"), OF_PIPELINES)
def test_a_pipeline_refuses_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    assert_refused(lambda: make_pipeline(**arguments), words)


def test_a_pipeline_refuses_wrong_positions_and_names() -> None:
    words = "`batch_size` was given twice, by position and by name"
    assert_refused(lambda: make_pipeline(4, batch_size=4), words)
    assert_refused(lambda: make_pipeline(*[None] * 30), "get_dali_pipeline takes at most 24 arguments, got 30")
    error = assert_refused(lambda: make_pipeline(num_thread=2), "", UnknownArgumentError)
    assert isinstance(error, SettingError)
    assert isinstance(error, TypeError)  # as in DALI
