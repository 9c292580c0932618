"""Which part of the data set a process loads: the value, and where it is found."""

from __future__ import annotations

import logging
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child_processes import run_python
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.sources import shards
from accvlab.dali_pipeline_framework.sources.shards import Shard, detect_shard

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
STEP = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}
SOURCES = ("accelerate", "torch", "torchrun", "openmpi", "slurm", "jax")

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
    assert shard == Shard(1, 4)
    assert hash(shard) == hash(Shard(1, 4))
    assert shard != Shard(1, 5)
    assert shard != Shard(0, 4)
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


def test_a_process_without_a_launcher_is_alone(variables: SetVariables) -> None:
    assert found() == (0, 1, "single process")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (TORCHRUN, (1, 4, "torchrun")),
        (OPENMPI, (2, 3, "openmpi")),
        (STEP, (5, 6, "slurm")),
        ({"RANK": " 0 ", "WORLD_SIZE": "1"}, (0, 1, "torchrun")),
    ],
)
def test_a_launcher_is_found(
    variables: SetVariables, values: dict[str, str], expected: tuple[int, int, str]
) -> None:
    variables(values)
    assert found() == found(expected[2]) == expected


def test_of_several_launchers_the_one_closest_to_the_program_counts(variables: SetVariables) -> None:
    # Each is started by the next: SLURM starts one daemon of Open MPI per node, and that starts the ranks.
    variables(STEP)
    assert found() == (5, 6, "slurm")
    variables(OPENMPI)
    assert found() == (2, 3, "openmpi")
    variables(TORCHRUN)
    assert found() == (1, 4, "torchrun")
    assert found("openmpi") == (2, 3, "openmpi")
    assert found("slurm") == (5, 6, "slurm")


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_asked_for_must_be_there(variables: SetVariables, source: Any) -> None:
    others = {"torchrun": TORCHRUN, "openmpi": OPENMPI, "slurm": STEP}
    for other, values in others.items():
        if other != source:
            variables(values)
    assert_refused(
        lambda: detect_shard(source), f"`source='{source}'` is requested, but ..., or use `source='auto'`."
    )


def test_an_unknown_source_is_refused() -> None:
    words = (
        "`source` must be one of 'auto', 'accelerate', 'torch', 'torchrun', 'openmpi', 'slurm', 'jax', got 'mpi'. "
        "Did you mean 'openmpi'?"
    )
    assert_refused(lambda: detect_shard("mpi"), words)


HALF_SET = (
    "RANK and WORLD_SIZE must be set together, but {} is not. Set both or neither, or make the Shard yourself."
)
NO_NUMBER = "The variable {} must be a whole number of at least 0, got {!r}."
TOO_LARGE = "RANK must be less than WORLD_SIZE (ranks are counted from 0), got RANK={0} and WORLD_SIZE={0}."


@pytest.mark.parametrize("source", ["auto", "torchrun"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"RANK": "1"}, HALF_SET.format("RANK='1' is set and WORLD_SIZE")),
        ({"WORLD_SIZE": "4"}, HALF_SET.format("WORLD_SIZE='4' is set and RANK")),
        ({"RANK": "one", "WORLD_SIZE": "4"}, NO_NUMBER.format("RANK", "one")),
        ({"RANK": "1", "WORLD_SIZE": ""}, NO_NUMBER.format("WORLD_SIZE", "")),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, NO_NUMBER.format("RANK", "-1")),
        ({"RANK": "4", "WORLD_SIZE": "4"}, TOO_LARGE.format(4)),
        ({"RANK": "0", "WORLD_SIZE": "0"}, TOO_LARGE.format(0)),
    ],
)
def test_variables_that_make_no_sense_are_refused(
    variables: SetVariables, source: Any, values: dict[str, str], message: str
) -> None:
    variables(values)
    assert_refused(lambda: detect_shard(source), message)


# --- SLURM ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"SLURM_JOB_ID": "71", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"},  # a batch script
        {"SLURM_JOB_ID": "71", "SLURM_NTASKS": "8"},  # the shell of `salloc`
    ],
)
def test_what_srun_did_not_start_is_no_task_of_slurm(variables: SetVariables, values: dict[str, str]) -> None:
    variables(values)
    assert found() == (0, 1, "single process")
    assert_refused(lambda: detect_shard("slurm"), "not a task of a SLURM step ...: start the program with `srun`")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # One task in an allocation of eight.
        ({**STEP, "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1, "slurm")),
        ({"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8, "slurm")),
        # Just the two, passed on into a container.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8, "slurm")),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8, "slurm")),
    ],
)
def test_a_task_counts_the_tasks_of_its_step(
    variables: SetVariables, values: dict[str, str], expected: tuple[int, int, str]
) -> None:
    variables(values)
    assert found() == found("slurm") == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"}, "SLURM_NTASKS='8' is set and SLURM_PROCID is not"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, "SLURM_STEP_NUM_TASKS='8' is set and SLURM_PROCID is not"),
        ({"SLURM_PROCID": "1"}, "SLURM_PROCID='1' is set and SLURM_NTASKS is not"),
        ({**STEP, "SLURM_PROCID": "6"}, "SLURM_PROCID must be less than SLURM_STEP_NUM_TASKS ...=6 and ...=6"),
        # Task 0 with these would look like a batch script.
        ({"SLURM_JOB_ID": "71", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, "SLURM_PROCID='3' says that this is a"),
    ],
)
def test_half_of_slurm_is_refused(variables: SetVariables, values: dict[str, str], message: str) -> None:
    variables(values)
    for source in ("auto", "slurm"):
        assert_refused(lambda source=source: detect_shard(source), message)


# --- torch.distributed and JAX --------------------------------------------------------------------------


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
        return {"is_initialized": lambda: self.initialised, "get_rank": lambda: 3, "get_world_size": lambda: 7}[
            name
        ]


def test_torch_counts_once_it_is_initialised(variables: SetVariables, monkeypatch: pytest.MonkeyPatch) -> None:
    variables({**TORCHRUN, **OPENMPI, **STEP})
    for absent in (
        types.SimpleNamespace(distributed=FakeDistributed(available=False)),
        types.SimpleNamespace(distributed=FakeDistributed(initialised=False)),
        types.SimpleNamespace(),  # is being imported
        None,  # must not be imported
    ):
        monkeypatch.setitem(sys.modules, "torch", absent)
        assert found() == (1, 4, "torchrun")
        assert_refused(lambda: detect_shard("torch"), "call `torch.distributed.init_process_group` first")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(distributed=FakeDistributed()))
    assert found() == found("torch") == (3, 7, "torch")


def test_jax_counts_once_it_is_initialised(variables: SetVariables, monkeypatch: pytest.MonkeyPatch) -> None:
    state = types.SimpleNamespace(client=None, process_id=0, num_processes=1)
    for absent in (types.SimpleNamespace(global_state=state), types.SimpleNamespace(), None):
        monkeypatch.setitem(sys.modules, "jax._src.distributed", absent)
        assert found() == (0, 1, "single process")
        assert_refused(lambda: detect_shard("jax"), "call `jax.distributed.initialize` first")
    state = types.SimpleNamespace(client=object(), process_id=2, num_processes=5)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", types.SimpleNamespace(global_state=state))
    assert found() == found("jax") == (2, 5, "jax")
    variables(STEP)
    assert found() == (5, 6, "slurm")


def accelerate_state(config: Any = None, **process: int) -> Any:
    """Stands for `accelerate.state`."""
    shared = {"parallelism_config": config} if process else {}
    return types.SimpleNamespace(
        PartialState=types.SimpleNamespace(_shared_state=process),
        AcceleratorState=types.SimpleNamespace(_shared_state=shared),
    )


def test_accelerate_counts_once_there_is_an_accelerator(
    variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for absent in (accelerate_state(), types.SimpleNamespace(), None):
        monkeypatch.setitem(sys.modules, "accelerate.state", absent)
        words = "no `Accelerator` was made: create it before the loader"
        assert_refused(lambda: detect_shard("accelerate"), words)
    monkeypatch.setitem(sys.modules, "accelerate.state", accelerate_state(process_index=0, num_processes=1))
    assert (found(), found("accelerate")) == ((0, 1, "single process"), (0, 1, "accelerate"))
    variables(TORCHRUN)
    assert found() == (1, 4, "torchrun")
    state = accelerate_state(None, process_index=5, num_processes=6)
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    assert found() == (5, 6, "accelerate")


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


RANK_OF_A_GROUP = """
import datetime, os, sys
import torch.distributed
from accvlab.dali_pipeline_framework.sources.shards import detect_shard

path = sys.argv[1]
child = os.fork()  # to import PyTorch takes longer than the rest
rank = int(child > 0)
before = detect_shard()
torch.distributed.init_process_group(
    "gloo", init_method="file://" + path, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
)
if child:  # is the second to write
    torch.distributed.barrier()
print(before, detect_shard(), detect_shard("torch"), sep="; ", flush=True)
if not child:
    torch.distributed.barrier()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(status)
"""


@pytest.mark.wide
def test_two_processes_of_torch_distributed_get_two_shards(tmp_path: Path, variables: SetVariables) -> None:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    ended = run_python(RANK_OF_A_GROUP, tmp_path / "rendezvous", stderr=None, env=environment)
    assert ended.returncode == 0
    alone = "Shard(shard_id=0, num_shards=1, source='single process')"
    ranks = [f"Shard(shard_id={rank}, num_shards=2, source='torch')" for rank in range(2)]
    assert ended.stdout == "".join(f"{alone}; {rank}; {rank}\n" for rank in ranks)


def test_nothing_is_imported_for_it() -> None:
    result = run_python(
        """
        import sys
        from accvlab.dali_pipeline_framework.sources.shards import detect_shard
        detect_shard()
        print([name for name in ('torch', 'jax') if name in sys.modules])
        """
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


# --- the log --------------------------------------------------------------------------------------------


def test_what_was_taken_is_logged_once(variables: SetVariables, caplog: pytest.LogCaptureFixture) -> None:
    variables({"OMPI_COMM_WORLD_RANK": "21", "OMPI_COMM_WORLD_SIZE": "31"})  # which no other test has
    with caplog.at_level(logging.INFO, logger=shards.__name__):
        for _ in range(3):
            detect_shard()
        detect_shard("openmpi")
        variables({"RANK": "31", "WORLD_SIZE": "41"})
        detect_shard()
    assert [record.getMessage() for record in caplog.records] == [
        "This process loads shard 21 of 31 (source: openmpi).",
        "This process loads shard 31 of 41 (source: torchrun).",
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
