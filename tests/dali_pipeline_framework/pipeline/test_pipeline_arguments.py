"""Arguments of `PipelineDefinition` and of `get_dali_pipeline`, and what they do."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import nvidia.dali
import pytest
from nvidia.dali.pipeline import OperatorConcurrency, StreamPolicy
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.pipelines import indices, make_iterator, shuffled, worker_pids
from support.providers import IndexProvider, NumberProvider, PidProvider
from support.refusals import assert_refused
from support.samplers import EndlessSampler, EpochSampler
from support.steps import Doubler, Noise, Renamer

from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus
from accvlab.dali_pipeline_framework.errors import GraphError, SettingError, UnknownArgumentError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SamplerInputIterable
from accvlab.dali_pipeline_framework.limits.control_groups import num_usable_cores
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder

NO_GPU = num_usable_gpus() == 0
EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def make_pipeline(*args: Any, **kwargs: Any) -> Any:
    return PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(*args, **kwargs)


def first_output(pipeline: Any) -> np.ndarray:
    return np.asarray(pipeline.run()[0].as_tensor())


# Per argument of DALI's pipeline: a value that is not the default, further arguments that it needs, and a
# question about the pipeline with the answer to expect.
ARGUMENTS: dict[str, tuple[Any, dict[str, Any], Callable[[Any], Any], Any]] = {
    "batch_size": (4, {}, lambda pipeline: pipeline.max_batch_size, 4),
    "num_threads": (3, {}, lambda pipeline: pipeline.num_threads, 3),
    "device_id": (0, {}, lambda pipeline: pipeline.device_id, None if NO_GPU else 0),
    "seed": (7, {}, lambda pipeline: pipeline.seed, 7),
    "exec_pipelined": (False, {"py_num_workers": 0}, lambda pipeline: pipeline.exec_pipelined, False),
    "prefetch_queue_depth": (5, {}, lambda pipeline: pipeline.prefetch_queue_depth, 5),
    "exec_async": (False, {}, lambda pipeline: pipeline.exec_async, False),
    "bytes_per_sample": (64, {}, lambda pipeline: pipeline._bytes_per_sample, 64),
    "set_affinity": (True, {}, lambda pipeline: pipeline.set_affinity, True),
    "enable_memory_stats": (True, {}, lambda pipeline: pipeline.enable_memory_stats, True),
    "enable_checkpointing": (True, {}, lambda pipeline: len(pipeline.checkpoint()) > 20, True),
    "checkpoint": (
        "made",
        {"enable_checkpointing": True},
        lambda pipeline: (pipeline.build(), pipeline.is_restored_from_checkpoint)[1],
        True,
    ),
    "py_num_workers": (3, {}, lambda pipeline: (pipeline.build(), len(pipeline._py_pool.pids()))[1], 3),
    "py_start_method": ("spawn", {}, lambda pipeline: pipeline.py_start_method, "spawn"),
    "py_callback_pickler": (
        cloudpickle,
        {"py_start_method": "forkserver"},
        lambda pipeline: pipeline._py_callback_pickler,
        cloudpickle,
    ),
    "output_dtype": (DT.INT64, {}, lambda pipeline: pipeline.output_dtype(), [DT.INT64]),
    "output_ndim": (0, {}, lambda pipeline: pipeline.output_ndim(), [0]),
    "output_layout": ([None], {}, lambda pipeline: pipeline._output_layout, [None]),
    "exec_dynamic": (False, {}, lambda pipeline: pipeline.exec_dynamic, False),
    "stream_policy": (StreamPolicy.SINGLE, {}, lambda pipeline: pipeline.stream_policy, StreamPolicy.SINGLE),
    "concurrency": (OperatorConcurrency.FULL, {}, lambda pipeline: pipeline.concurrency, OperatorConcurrency.FULL),
}
DEPRECATED = {
    "max_streams": (3, "The `max_streams` is deprecated and has no effect"),
    "default_cuda_stream_priority": (-1, "The `default_cuda_stream_priority` is deprecated and has no effect"),
    "experimental_exec_dynamic": (True, "experimental_exec_dynamic is deprecated, please use exec_dynamic"),
}


SLOW = ("py_callback_pickler", "py_start_method")  # they start the fork server, as many other tests do


class TestArgumentsOfDali:
    def test_the_tables_cover_them_all(self) -> None:
        names = [*inspect.signature(nvidia.dali.Pipeline.__init__).parameters][1:]
        assert sorted(names) == sorted([*ARGUMENTS, *DEPRECATED])

    @pytest.mark.parametrize(
        "name", [pytest.param(each, marks=pytest.mark.wide if each in SLOW else ()) for each in ARGUMENTS]
    )
    def test_each_reaches_dali(self, name: str) -> None:
        value, further, question, answer = ARGUMENTS[name]
        if name == "checkpoint":
            maker = make_pipeline(enable_checkpointing=True, num_threads=1)
            value = maker.checkpoint()
            maker.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline = make_pipeline(**{"num_threads": 1, **further, name: value})
        try:
            assert question(pipeline) == answer
            assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        finally:
            pipeline.close()

    @pytest.mark.parametrize("name", DEPRECATED)
    def test_deprecated_ones_warn_as_in_dali(self, name: str) -> None:
        value, message = DEPRECATED[name]
        with pytest.warns(Warning, match=message):
            pipeline = make_pipeline(num_threads=1, py_num_workers=0, **{name: value})
        assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        pipeline.close()

    @pytest.mark.parametrize(
        "legacy",
        [
            {"batch_size": -1},
            {"num_threads": -1},
            {"device_id": -1},
            {"seed": -1},
            {"max_streams": -1},
            {"default_cuda_stream_priority": 0},
            {"batch_size": None, "num_threads": None, "device_id": None, "seed": None},
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

    def test_numpy_numbers_are_numbers(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(), 4), prefetch_queue_depth=np.int64(3))
        arguments = {"batch_size": 4, "num_threads": 2, "py_num_workers": 1, "prefetch_queue_depth": 3, "seed": 7}
        pipeline = definition.get_dali_pipeline(**{name: np.int32(value) for name, value in arguments.items()})
        assert (pipeline.max_batch_size, pipeline.num_threads, pipeline.seed) == (4, 2, 7)
        assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        pipeline.close()

    @pytest.mark.parametrize(
        ("variables", "ranks"),
        [
            ({"LOCAL_WORLD_SIZE": "2"}, 2),
            ({"LOCAL_WORLD_SIZE": "1000"}, None),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
            ({"SLURM_STEP_TASKS_PER_NODE": "1,2(x3)"}, 2),
            ({"LOCAL_WORLD_SIZE": "none"}, 1),
        ],
    )
    def test_ranks_of_a_machine_share_its_cores(
        self, variables: dict[str, str], ranks: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        cores = num_usable_cores()
        if len(os.sched_getaffinity(0)) != os.cpu_count() and "LOCAL_WORLD_SIZE" not in variables:
            ranks = 1  # the launcher has divided the cores itself
        pipeline = make_pipeline(py_num_workers=0)
        assert pipeline.num_threads == (1 if ranks is None else max(1, cores // ranks))
        pipeline.close()

    def test_by_position_in_dali_s_order(self) -> None:
        pipeline = make_pipeline(4, 3, None, 11, True, 5, True, 64, False)
        found = (pipeline.max_batch_size, pipeline.num_threads, pipeline.device_id, pipeline.seed)
        assert found == (4, 3, None, 11)
        assert (pipeline.exec_pipelined, pipeline.prefetch_queue_depth, pipeline.exec_async) == (True, 5, True)
        assert pipeline._bytes_per_sample == 64
        pipeline.close()

    def test_by_position_and_by_name_is_refused(self) -> None:
        with pytest.raises(SettingError, match="`batch_size` was given twice, by position and by name"):
            make_pipeline(4, batch_size=4)

    def test_separate_queues(self) -> None:
        pipeline = make_pipeline(num_threads=1, prefetch_queue_depth={"cpu_size": 3, "gpu_size": 1})
        assert pipeline.prefetch_queue_depth == {"cpu_size": 3, "gpu_size": 1}
        assert (pipeline.cpu_queue_size, pipeline.gpu_queue_size) == (3, 1)
        assert first_output(pipeline).tolist() == [0, 1, 2, 3]
        assert pipeline.prefetch_queue_depth == {"cpu_size": 3, "gpu_size": 1}
        pipeline.close()

    @pytest.mark.parametrize("wrong", [{"output_dtype": DT.FLOAT}, {"output_ndim": 2}, {"output_layout": "HW"}])
    def test_what_the_output_must_be_is_checked(self, wrong: dict[str, Any]) -> None:
        with (
            make_iterator(shuffled(IndexProvider(8)), **wrong) as iterator,
            pytest.raises(GraphError, match="in the output_idx=0 does not match"),
        ):
            next(iter(iterator))

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

    @pytest.mark.parametrize("depth", [1, 2, 7])
    def test_prefetch_depth_of_the_workers(self, depth: int) -> None:
        definition = {"prefetch_queue_depth": depth}
        with make_iterator(shuffled(IndexProvider(8)), definition=definition, py_num_workers=2) as iterator:
            [group] = iterator.internal_iterator._parallel_input_callbacks
            assert group.prefetch_queue_depth == max(depth, 2)  # two workers: each loads whole batches
            assert indices(iterator) == EIGHT
            assert indices(iterator) == EIGHT


class TestConditionals:
    def test_a_branch_per_sample(self) -> None:
        with make_iterator(
            shuffled(IndexProvider(8)), [Doubler("index", above=4)], enable_conditionals=True
        ) as iterator:
            assert indices(iterator) == [[0, 1, 2, 3], [4, 10, 12, 14]]
            assert indices(iterator, 1) == [[0, 1, 2, 3]]

    def test_steps_without_branches_do_not_need_them(self) -> None:
        for arguments in ({}, {"enable_conditionals": True}):
            with make_iterator(shuffled(IndexProvider(8)), [Doubler("index")], **arguments) as iterator:
                assert indices(iterator) == [[0, 2, 4, 6], [8, 10, 12, 14]]

    def test_forgetting_them_names_step_and_remedy(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)), [Renamer("index", "x"), Doubler("x", above=4)])
        with pytest.raises(TypeError) as caught:
            definition.get_dali_pipeline(num_threads=1)
        if hasattr(caught.value, "__notes__"):  # Python >= 3.11
            [note] = caught.value.__notes__
            assert note.startswith("raised while step 1 (Doubler) defined its operators")
            assert "get_dali_pipeline(enable_conditionals=True)" in note


class TestDebug:
    @pytest.mark.parametrize("py_num_workers", [0, 1])
    def test_runs_steps_one_by_one(self, py_num_workers: int) -> None:
        seen: list[Any] = []

        class Looker(Renamer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                if hasattr(data["index"], "get"):  # not so while DALI only looks at the graph
                    seen.append(np.asarray(data["index"].get().as_tensor()).tolist())
                return super()._process(data)

        definition = PipelineDefinition(shuffled(IndexProvider(8)), [Looker("index", "number")])
        pipeline = definition.get_dali_pipeline(debug=True, num_threads=1, py_num_workers=py_num_workers)
        blueprint = definition.check_and_get_output_data_structure()
        iterator = DALIStructuredOutputIterator(None, pipeline, blueprint, output_type="numpy")
        assert [batch["number"].tolist() for batch in iterator] == EIGHT
        assert seen == EIGHT

    def test_the_iterator_needs_a_blueprint(self) -> None:
        pipeline = make_pipeline(debug=True, num_threads=1, py_num_workers=0)
        with pytest.raises(SettingError, match=r"a pipeline that does not know its format: .* debug=True"):
            DALIStructuredOutputIterator(None, pipeline, output_type="numpy")

    def test_debug_false_is_the_default(self) -> None:
        pipeline = make_pipeline(debug=False, num_threads=1, py_num_workers=0)
        with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
            assert indices(iterator) == EIGHT


def orders(num_epochs: int, num_samples: int = 20) -> list[list[list[int]]]:
    permutations = (np.random.default_rng(21 + epoch).permutation(num_samples) for epoch in range(num_epochs))
    return [order[: num_samples // 4 * 4].reshape(-1, 4).tolist() for order in permutations]


class TestCheckpoints:
    """Batches that were only prefetched do not count as delivered."""

    @staticmethod
    def iterator(checkpoint: bytes | None = None, data_input: Any = None, **arguments: Any) -> Any:
        if checkpoint is not None:
            arguments["checkpoint"] = checkpoint
        data_input = data_input or shuffled(IndexProvider(20), shuffle=True)
        return make_iterator(data_input, enable_checkpointing=True, **arguments)

    @pytest.mark.parametrize("definition", [{}, {"use_parallel_external_source": False}], ids=["workers", "here"])
    @pytest.mark.parametrize("num_before", [0, 1, 2, 4])
    def test_goes_on_in_the_middle_of_an_epoch(self, num_before: int, definition: dict[str, Any]) -> None:
        expected = orders(4)
        with self.iterator(definition=definition) as iterator:
            assert indices(iterator) == expected[0]
            if num_before:
                assert indices(iterator, num_before) == expected[1][:num_before]
            else:
                iter(iterator)
            checkpoint = iterator.internal_iterator.checkpoint()
        with self.iterator(checkpoint, definition=definition) as iterator:
            assert indices(iterator) == expected[1][num_before:]
            assert indices(iterator, 2) == expected[2][:2]
            assert indices(iterator) == expected[3]

    @pytest.mark.parametrize("num_before", [5, None])
    def test_goes_on_after_the_end_of_an_epoch(self, num_before: int | None) -> None:
        expected = orders(3)
        with self.iterator() as iterator:
            assert indices(iterator, num_before) == expected[0]
            checkpoint = iterator.internal_iterator.checkpoint()
        with self.iterator(checkpoint) as iterator:
            epochs = [indices(iterator) for _ in range(3)]
        # Whether the rest of the old epoch, which is empty, is an epoch of its own is left open.
        assert [epoch for epoch in epochs if epoch][:2] == expected[1:]
        assert epochs[1] != []

    def test_going_on_does_not_change_the_original(self) -> None:
        expected = orders(1)[0]
        with self.iterator() as iterator:
            epoch = iter(iterator)
            delivered = indices(epoch, 2)
            iterator.internal_iterator.checkpoint()
            assert delivered + indices(epoch) == expected

    def test_random_operators_go_on_too(self) -> None:
        data_input = shuffled(IndexProvider(16))
        arguments = {"steps": [Noise()], "enable_checkpointing": True, "seed": 3}
        with make_iterator(data_input, **arguments) as iterator:
            expected = [batch["noise"].tolist() for batch in iterator]
        with make_iterator(data_input, **arguments) as iterator:
            epoch = iter(iterator)
            assert [next(epoch)["noise"].tolist() for _ in range(2)] == expected[:2]
            checkpoint = iterator.internal_iterator.checkpoint()
        with make_iterator(data_input, **arguments, checkpoint=checkpoint) as iterator:
            assert [batch["noise"].tolist() for batch in iterator] == expected[2:]

    def test_can_be_written_to_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "loader.checkpoint"
        with self.iterator() as iterator:
            indices(iterator, 3)
            iterator.internal_iterator.checkpoint(str(path))
        with self.iterator(path.read_bytes()) as iterator:
            assert indices(iterator) == orders(1)[0][3:]

    def test_of_a_sampler(self) -> None:
        def data_input() -> SamplerInputCallable:
            return SamplerInputCallable(IndexProvider(10), EndlessSampler(), None)

        with self.iterator(data_input=data_input()) as iterator:
            assert indices(iterator, 3)[-1] == [8, 9, 0, 1]
            checkpoint = iterator.internal_iterator.checkpoint()
        with self.iterator(checkpoint, data_input()) as iterator:
            assert indices(iterator, 2) == [[2, 3, 4, 5], [6, 7, 8, 9]]

    def test_an_iterable_warns_as_in_dali(self) -> None:
        data_input = SamplerInputIterable(IndexProvider(10), EpochSampler())
        with pytest.warns(UserWarning, match="DALI doesn't capture state of such 'source'"):
            iterator = self.iterator(data_input=data_input)
        iterator.close()

    def test_the_samples_of_a_batch_that_fails_are_named_after_going_on(self) -> None:
        images = [encoded_image(gradient(8, 8))] * 20
        images[14] = images[14][:40]
        data_input = shuffled(ArrayProvider({"index": (DT.INT64, [*range(20)]), "image": (DT.UINT8, images)}))
        steps = [ImageDecoder("image", use_device_mixed=False)]
        with self.iterator(data_input=data_input, steps=steps) as iterator:
            assert len(indices(iterator, 2)) == 2
            checkpoint = iterator.internal_iterator.checkpoint()
        with self.iterator(checkpoint, data_input, steps=steps) as iterator:
            epoch = iter(iterator)
            assert next(epoch)["index"].tolist() == [8, 9, 10, 11]
            with pytest.raises(GraphError, match=r"Batch 3 of epoch 0 .* It holds the samples 12, 13, 14, 15\."):
                next(epoch)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"enable_checkpointing": True, "checkpoint": b"garbage"}, "Failed to deserialize checkpoint"),
            ({"checkpoint": b"garbage"}, "`enable_checkpointing` was not specified"),
        ],
    )
    def test_what_cannot_be_restored_is_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(RuntimeError, match=message):
            make_iterator(shuffled(IndexProvider(8)), **arguments)

    def test_without_the_argument_there_are_none(self) -> None:
        pipeline = make_pipeline(num_threads=1, py_num_workers=0)
        with pytest.raises(RuntimeError, match="checkpointing"):
            pipeline.checkpoint()
        pipeline.close()


class TestPrinting:
    FORMATS = (
        "Input format:\n{\n  index: DALIDataType.INT64   \n}\n\n"
        "Format after step 0:\n{\n  number: DALIDataType.INT64   \n}\n\n"
        "Format after step 1:\n{\n  number: DALIDataType.INT64   \n}\n\n"
    )

    def definition(self, **arguments: Any) -> PipelineDefinition:
        steps = [Renamer("index", "number"), None, Doubler("number")]
        return PipelineDefinition(shuffled(IndexProvider(8)), steps, **arguments)

    def test_of_formats_on_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        definition = self.definition(print_sample_data_group_format=True)
        assert capsys.readouterr().out == ""
        pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
        assert capsys.readouterr().out == self.FORMATS
        pipeline.run()
        assert capsys.readouterr().out == ""
        pipeline.close()

    def test_of_nothing_otherwise(
        self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        pipeline = self.definition().get_dali_pipeline(num_threads=1, py_num_workers=1)
        with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
            assert len([*iterator]) == 2
        assert capfd.readouterr() == ("", "")
        assert caplog.records == []


class TestFormatOfTheOutput:
    def test_can_be_asked_for_repeatedly(self) -> None:
        data_input = shuffled(NumberProvider(8))
        before = str(data_input.used_sample_data_structure)
        definition = PipelineDefinition(data_input, [Renamer("index", "number"), Doubler("gain")])
        first = definition.check_and_get_output_data_structure()
        second = definition.check_and_get_output_data_structure()
        assert first is not second
        cameras = ("cameras.[0].label", "cameras.[0].gain", "cameras.[1].label", "cameras.[1].gain")
        assert first.field_names_flat == ("pair", "name", *cameras, "number")
        assert second.field_names_flat == first.field_names_flat
        first.remove_field("number")
        assert "number" in definition.check_and_get_output_data_structure().field_names_flat
        assert str(data_input.used_sample_data_structure) == before
        assert definition.input_data_structure.field_names_flat[0] == "index"
        assert str(NumberProvider().sample_data_structure) == str(NumberProvider().sample_data_structure)

    def test_a_blueprint_object_that_the_provider_keeps_is_left_as_it_is(self) -> None:
        class KeepingProvider(NumberProvider):
            def __init__(self) -> None:
                super().__init__(8)
                self.kept = super().sample_data_structure

            @property
            def sample_data_structure(self) -> SampleDataGroup:
                return self.kept

            def get_data(self, sample_index: int) -> SampleDataGroup:
                sample = self.kept.get_empty_like_self()
                filled = NumberProvider.get_data(NumberProvider(8), sample_index)
                sample.set_data(filled.get_data())
                sample["cameras"][0]["label"] = "bus"  # through the mapping, which is still on
                return sample

        provider = KeepingProvider()
        before = str(provider.kept)
        with make_iterator(shuffled(provider), [Renamer("index", "number")]) as iterator:
            batches = [*iterator]
        assert batches[0]["cameras"][0]["label"].tolist() == [2, 2, 2, 2]
        assert str(provider.kept) == before
        assert provider.kept.field_names_flat[0] == "index"

    def test_several_pipelines_from_one_definition(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)), [Doubler("index")])
        pipelines = [definition.get_dali_pipeline(num_threads=1, py_num_workers=workers) for workers in (0, 1)]
        iterators = [DALIStructuredOutputIterator(None, pipeline, output_type="numpy") for pipeline in pipelines]
        for iterator in iterators:
            with iterator:
                assert indices(iterator) == [[0, 2, 4, 6], [8, 10, 12, 14]]

    @pytest.mark.parametrize("steps", [None, [], [None], (None, None)])
    def test_without_steps(self, steps: Any) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)), steps)
        assert definition.check_and_get_output_data_structure().field_names_flat == ("index",)
        pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
        with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
            assert indices(iterator) == EIGHT

    def test_steps_from_a_generator(self) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(8)), (Doubler("index") for _ in range(2)))
        for _ in range(2):
            pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
            assert first_output(pipeline).tolist() == [0, 4, 8, 12]
            pipeline.close()


class OnlyNext:
    def __next__(self) -> Any:
        raise StopIteration


INPUT = "data_loading_callable_iterable"
NO_DEPTH = "`prefetch_queue_depth` must be a whole number of at least 1, got {}"
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
    *(({"prefetch_queue_depth": depth}, NO_DEPTH.format(depth)) for depth in (0, -1, 2.0, None, True)),
]
OF_PIPELINES: list[tuple[dict[str, Any], str]] = [
    ({"num_thread": 2}, "`num_thread` is not an argument of a DALI pipeline. Did you mean 'num_threads'?"),
    ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, got 0"),
    ({"batch_size": "4"}, "`batch_size` must be a whole number of at least 1, got '4'"),
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


def test_unknown_arguments_are_type_errors_as_in_dali() -> None:
    error = assert_refused(lambda: make_pipeline(num_thread=2), "", UnknownArgumentError)
    assert isinstance(error, SettingError)
    assert isinstance(error, TypeError)
    assert str(error) == OF_PIPELINES[0][1]
