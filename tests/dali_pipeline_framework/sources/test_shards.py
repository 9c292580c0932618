"""Which part of the data set a process loads: the value, and where it is found."""

from __future__ import annotations

import logging
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.sources import shards
from accvlab.dali_pipeline_framework.sources.shards import Shard, detect_shard

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
STEP = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}
ALONE = (0, 1, "single process")

SetVariables = Callable[[dict[str, str]], None]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> SetVariables:
    """Sets environment variables; no launcher has set any, and torch and JAX are not imported."""
    for name in [*os.environ]:
        if name in TORCHRUN or name.startswith(("SLURM_", "OMPI_", "ACCELERATE_", "PARALLELISM_CONFIG_")):
            monkeypatch.delenv(name)
    for name in ("torch", "jax", "jax._src.distributed", "accelerate.state"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def set_variables(values: dict[str, str]) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_variables


def found(source: Any = "auto") -> tuple[int, int, str]:
    shard = detect_shard(source)
    return shard.shard_id, shard.num_shards, shard.source


# --- the value ------------------------------------------------------------------------------------------


def test_a_shard_is_a_value_whatever_its_source() -> None:
    shard = Shard(np.int64(1), np.uint8(4), "elsewhere")
    assert (shard.shard_id, shard.num_shards, shard.source) == (1, 4, "elsewhere")
    assert {type(shard.shard_id), type(shard.num_shards)} == {int}
    assert {shard, Shard(1, 4)} == {shard}
    assert len({shard, Shard(1, 5), Shard(0, 4)}) == 3
    assert repr(Shard(1, 4)) == "Shard(shard_id=1, num_shards=4, source='given')"
    with pytest.raises(AttributeError):
        shard.shard_id = 2


@pytest.mark.parametrize(
    ("shard_id", "num_shards", "message"),
    [
        (4, 4, "`shard_id` must be in [0, 3] with `num_shards=4`, got 4"),
        (-1, 4, "`shard_id` must be a whole number of at least 0, got -1."),
        (0, 0, "`num_shards` must be a whole number of at least 1, got 0."),
        ("0", 1, "`shard_id` must be a whole number of at least 0, got '0'."),
        (True, 2, "`shard_id` must be a whole number of at least 0, got True."),
    ],
)
def test_what_is_no_shard_is_refused(shard_id: Any, num_shards: Any, message: str) -> None:
    assert_refused(lambda: Shard(shard_id, num_shards), message)


# --- variables of launchers -----------------------------------------------------------------------------

FOUND: list[tuple[dict[str, str], tuple[int, int, str]]] = [
    (TORCHRUN, (1, 4, "torchrun")),
    (OPENMPI, (2, 3, "openmpi")),
    (STEP, (5, 6, "slurm")),
    ({"RANK": " 0 ", "WORLD_SIZE": "1"}, (0, 1, "torchrun")),
    # A task counts the tasks of its step: one task in an allocation of eight.
    ({**STEP, "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1, "slurm")),
    ({"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8, "slurm")),
    # Just the two, passed on into a container.
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8, "slurm")),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8, "slurm")),
]


@pytest.mark.parametrize(("values", "expected"), FOUND)
def test_a_launcher_is_found(variables: SetVariables, values: dict[str, str], expected: Any) -> None:
    assert found() == ALONE
    assert not {"torch", "jax"} & sys.modules.keys()  # they are not imported for it
    variables(values)
    assert found() == found(expected[2]) == expected


def test_of_several_launchers_the_one_closest_to_the_program_counts(variables: SetVariables) -> None:
    # Each is started by the next: SLURM starts one daemon of Open MPI per node, and that starts the ranks.
    for values, expected in reversed(FOUND[:3]):
        variables(values)
        assert found() == expected
    for _, expected in FOUND[:3]:
        assert found(expected[2]) == expected


@pytest.mark.parametrize("source", ["accelerate", "torch", "torchrun", "openmpi", "slurm", "jax"])
def test_a_source_that_is_asked_for_must_be_there(variables: SetVariables, source: Any) -> None:
    for values, expected in FOUND[:3]:
        if expected[2] != source:
            variables(values)
    words = f"`source='{source}'` is requested, but ..., or use `source='auto'`."
    assert_refused(lambda: detect_shard(source), words)


def test_an_unknown_source_is_refused() -> None:
    sources = "'auto', 'accelerate', 'torch', 'torchrun', 'openmpi', 'slurm', 'jax'"
    words = f"`source` must be one of {sources}, got 'mpi'. Did you mean 'openmpi'?"
    assert_refused(lambda: detect_shard("mpi"), words)


@pytest.mark.parametrize(
    "values",
    [
        {"SLURM_JOB_ID": "71", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"},  # a batch script
        {"SLURM_JOB_ID": "71", "SLURM_NTASKS": "8"},  # the shell of `salloc`
    ],
)
def test_what_srun_did_not_start_is_no_task_of_slurm(variables: SetVariables, values: dict[str, str]) -> None:
    variables(values)
    assert found() == ALONE
    assert_refused(lambda: detect_shard("slurm"), "not a task of a SLURM step ...: start the program with `srun`")


TOGETHER = (
    "RANK and WORLD_SIZE must be set together, but {} is not. Set both or neither, or make the Shard yourself."
)
NO_NUMBER = "The variable {} must be a whole number of at least 0, got {!r}."
TOO_LARGE = "RANK must be less than WORLD_SIZE (ranks are counted from 0), got RANK={0} and WORLD_SIZE={0}."


@pytest.mark.parametrize("is_auto", [True, False])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"RANK": "1"}, TOGETHER.format("RANK='1' is set and WORLD_SIZE")),
        ({"WORLD_SIZE": "4"}, TOGETHER.format("WORLD_SIZE='4' is set and RANK")),
        ({"RANK": "one", "WORLD_SIZE": "4"}, NO_NUMBER.format("RANK", "one")),
        ({"RANK": "1", "WORLD_SIZE": ""}, NO_NUMBER.format("WORLD_SIZE", "")),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, NO_NUMBER.format("RANK", "-1")),
        ({"RANK": "4", "WORLD_SIZE": "4"}, TOO_LARGE.format(4)),
        ({"RANK": "0", "WORLD_SIZE": "0"}, TOO_LARGE.format(0)),
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"}, "SLURM_NTASKS='8' is set and SLURM_PROCID is not"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, "SLURM_STEP_NUM_TASKS='8' is set and SLURM_PROCID is not"),
        ({"SLURM_PROCID": "1"}, "SLURM_PROCID='1' is set and SLURM_NTASKS is not"),
        ({**STEP, "SLURM_PROCID": "6"}, "SLURM_PROCID must be less than SLURM_STEP_NUM_TASKS ...=6 and ...=6"),
        # Task 0 with these would look like a batch script.
        ({"SLURM_JOB_ID": "71", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, "SLURM_PROCID='3' says that this is a"),
    ],
)
def test_variables_that_make_no_sense_are_refused(
    variables: SetVariables, is_auto: bool, values: dict[str, str], message: str
) -> None:
    variables(values)
    source: Any = "auto" if is_auto else "torchrun" if TORCHRUN.keys() & values else "slurm"
    assert_refused(lambda: detect_shard(source), message)


# --- torch.distributed, JAX and Accelerate --------------------------------------------------------------


class FakeDistributed:
    """Stands for `torch.distributed`."""

    def __init__(self, available: bool = True, initialised: bool = True) -> None:
        self.available, self.initialised = available, initialised

    def is_available(self) -> bool:
        return self.available

    def __getattr__(self, name: str) -> Any:
        # A build of torch without the package has nothing but `is_available`.
        if not self.available:
            raise AttributeError(name)
        values = {"is_initialized": self.initialised, "get_rank": 3, "get_world_size": 7}
        return lambda: values[name]


def jax_state(client: Any = None) -> Any:
    """Stands for `jax._src.distributed`."""
    state = types.SimpleNamespace(client=client, process_id=2, num_processes=5)
    return types.SimpleNamespace(global_state=state)


def accelerate_state(config: Any = None, **process: int) -> Any:
    """Stands for `accelerate.state`."""
    shared = {"parallelism_config": config} if process else {}
    return types.SimpleNamespace(
        PartialState=types.SimpleNamespace(_shared_state=process),
        AcceleratorState=types.SimpleNamespace(_shared_state=shared),
    )


def torch_with(distributed: Any) -> Any:
    return types.SimpleNamespace(distributed=distributed)


# Module: what is in its place before it is initialised, what an error then says, what is there afterwards, and the
# shard. A module that is being imported has nothing yet; None: it must not be imported.
MODULES: dict[str, tuple[list[Any], str, Any, tuple[int, int, str]]] = {
    "torch": (
        [torch_with(FakeDistributed(available=False)), torch_with(FakeDistributed(initialised=False))],
        "call `torch.distributed.init_process_group` first",
        torch_with(FakeDistributed()),
        (3, 7, "torch"),
    ),
    "jax._src.distributed": (
        [jax_state()],
        "call `jax.distributed.initialize` first",
        jax_state(object()),
        (2, 5, "jax"),
    ),
    "accelerate.state": (
        [accelerate_state()],
        "no `Accelerator` was made: create it before the loader",
        accelerate_state(process_index=5, num_processes=6),
        (5, 6, "accelerate"),
    ),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_framework_counts_once_it_is_initialised(
    module: str, variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, words, initialised, expected = MODULES[module]
    source: Any = expected[2]
    for absent in (*before, types.SimpleNamespace(), None):
        monkeypatch.setitem(sys.modules, module, absent)
        assert found() == ALONE
        assert_refused(lambda: detect_shard(source), words)
    monkeypatch.setitem(sys.modules, module, initialised)
    assert found() == found(source) == expected
    variables(TORCHRUN)
    assert found() == ((1, 4, "torchrun") if source == "jax" else expected)


def test_an_accelerator_of_one_process_leaves_others_to_count(
    variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate.state", accelerate_state(process_index=0, num_processes=1))
    assert (found(), found("accelerate")) == (ALONE, (0, 1, "accelerate"))
    variables(TORCHRUN)
    assert found() == (1, 4, "torchrun")


def test_groups_of_accelerate_that_load_the_same_samples_are_refused(
    variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = types.SimpleNamespace(non_data_parallel_size=2)
    state = accelerate_state(peers, process_index=1, num_processes=6)
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    words = "groups of 2 or more processes load the same samples. ... shard=(mesh.get_local_rank('dp_shard')"
    for source in ("auto", "accelerate"):
        assert_refused(lambda source=source: detect_shard(source), words)
    monkeypatch.setitem(sys.modules, "accelerate.state", accelerate_state())
    variables({**TORCHRUN, "PARALLELISM_CONFIG_TP_SIZE": "3", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2"})
    assert found() == (1, 4, "torchrun")
    variables({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"})
    assert_refused(detect_shard, "groups of 3 or more processes")


# --- the log --------------------------------------------------------------------------------------------


def test_what_was_taken_is_logged_once(variables: SetVariables, caplog: pytest.LogCaptureFixture) -> None:
    variables({"OMPI_COMM_WORLD_RANK": "21", "OMPI_COMM_WORLD_SIZE": "31"})  # which no other test has
    with caplog.at_level(logging.INFO, logger=shards.__name__):
        for source in ("auto", "auto", "openmpi"):
            detect_shard(source)
        variables({"RANK": "31", "WORLD_SIZE": "41"})
        detect_shard()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.INFO, "This process loads shard 21 of 31 (source: openmpi)."),
        (logging.INFO, "This process loads shard 31 of 41 (source: torchrun)."),
    ]
