# SPDX-License-Identifier: Apache-2.0
"""The part of the data set that this process loads, and its detection."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs

from ..checks import check_shard, choice
from ..errors import SettingError
from ..limits.control_groups import num_usable_cores

ShardSource: TypeAlias = Literal["auto", "accelerate", "torch", "torchrun", "openmpi", "slurm", "jax"]

_logger = logging.getLogger(__name__)


@attrs.frozen
class Shard:
    """One of the equal parts into which each total batch is divided, usually one per rank.

    Attributes:
        shard_id: Which shard this is, from 0.
        num_shards: How many shards there are.
        source: Origin of both numbers, to be printed: what `detect_shard` found, or ``"given"``. ``==``
            does not compare it.

    Raises:
        SettingError: ``shard_id`` is not in ``[0, num_shards)``.

    Example:
        >>> Shard(1, 4)
        Shard(shard_id=1, num_shards=4, source='given')
        >>> Shard(1, 4) == Shard(1, 4, source="slurm")
        True
    """

    shard_id: int
    num_shards: int
    source: str = attrs.field(default="given", eq=False)

    def __attrs_post_init__(self) -> None:
        """Check the two, and store them as plain ints."""
        shard_id, num_shards = check_shard(self.shard_id, self.num_shards)
        object.__setattr__(self, "shard_id", shard_id)
        object.__setattr__(self, "num_shards", num_shards)


def shard_of_input(data_input: object) -> Shard | None:
    """Get the shard that an input delivers, or None if it is not known.

    Raises:
        SettingError: Its attribute ``shard`` is not a shard.
    """
    known = getattr(data_input, "shard", None)
    if known is None or isinstance(known, Shard):
        return known
    if isinstance(known, tuple | list) and len(known) == 2:
        return Shard(*known)
    rule = "must be a Shard or a pair (shard id, number of shards)"
    raise SettingError(f"The property `shard` of {type(data_input).__name__} {rule}, got {known!r}.")


def detect_shard(source: ShardSource = "auto") -> Shard:
    """Detect which part of the data this process loads, and the number of parts.

    ``"auto"`` takes the first of these sources that is present; each can also be named by ``source``:

    ================  ==================================================================================
    ``"accelerate"``  Accelerate, where the program has made an ``Accelerator``; ``"auto"`` skips it if it
                      knows of a single process only
    ``"torch"``       ``torch.distributed``, where the program has imported and initialised it
    ``"torchrun"``    the variables ``RANK`` and ``WORLD_SIZE``
    ``"openmpi"``     the variables ``OMPI_COMM_WORLD_RANK`` and ``OMPI_COMM_WORLD_SIZE``
    ``"slurm"``       the variables ``SLURM_PROCID`` and ``SLURM_STEP_NUM_TASKS`` (or ``SLURM_NTASKS``)
    ``"jax"``         ``jax.distributed``, where the program has imported and initialised it
    ================  ==================================================================================

    Launchers come before what may have started them: SLURM may start ``torchrun`` and ``mpirun``, and its
    variables then count launchers, not ranks. SLURM is found only in tasks that ``srun`` started; a batch script,
    which has the variables too, is a single process. Neither torch nor JAX is imported.

    With tensor, pipeline or context parallelism, ranks are not shards: peers need the same samples. Take the shard
    from the mesh then, ``shard=(mesh.get_local_rank("dp"), mesh["dp"].size())``.

    Call it in the program itself, after ``init_process_group`` or ``jax.distributed.initialize``, and not in
    a worker process.

    Args:
        source: Where to look.

    Returns:
        The shard, with the name of its source; ``Shard(0, 1)`` with the source ``"single process"`` if ``"auto"``
        finds nothing.

    Raises:
        SettingError: The requested source is unknown or not there; or only one of two variables is set, one is not
            a number, or the rank is not below the number of ranks; or Accelerate has groups of processes that load
            the same samples.
    """
    return find_shard(source, "source")


def find_shard(source: object, argument: str) -> Shard:
    """Same as `detect_shard`, with the name of the argument that messages are about."""
    source = choice(source, argument, ("auto", *_SOURCES))
    shard = Shard(0, 1, "single process")
    for name in _SOURCES if source == "auto" else [source]:
        find, what_is_missing = _SOURCES[name]
        found = find()
        if found is not None and not (source == "auto" and name == "accelerate" and _is_alone_in_accelerate()):
            shard = Shard(*found, name)
            break
        if source != "auto":
            requested = f"`{argument}={source!r}` is requested"
            raise SettingError(f"{requested}, but {what_is_missing}, or use `{argument}='auto'`.")
    _log_once(shard.shard_id, shard.num_shards, shard.source)
    return shard


def detected_rank() -> int:
    """Detect the rank of this process; 0 if it is not known."""
    for find, _ in _SOURCES.values():
        with contextlib.suppress(SettingError):
            found = find()
            if found is not None:
                return found[0]
    return 0


def detected_local_rank() -> int | None:
    """Detect the number of this process among the ranks on this machine; None if its launcher does not set it.

    Accelerate, torchrun and Lightning set ``LOCAL_RANK``, Open MPI ``OMPI_COMM_WORLD_LOCAL_RANK``, SLURM
    ``SLURM_LOCALID``.
    """
    found = map(_number_in, ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"))
    return next((number for number in found if number is not None), None)


def num_cores_of_rank() -> int:
    """Count the cores for one rank: those usable by this process, divided by the ranks on this machine.

    Usable are those that the process may run on (its affinity), at most as many as its control group may keep
    busy: a container with a quota of 4 cores has 4, whatever the machine has.

    Ranks are counted by the variables of their launcher: ``LOCAL_WORLD_SIZE`` (torchrun),
    ``OMPI_COMM_WORLD_LOCAL_SIZE`` (Open MPI), ``SLURM_STEP_TASKS_PER_NODE`` (SLURM). The last two can bind each
    rank to cores of its own; where not all cores of the machine are usable, nothing more is divided.
    """
    ranks = _number_in("LOCAL_WORLD_SIZE")
    if ranks is None and len(os.sched_getaffinity(0)) == os.cpu_count():
        ranks = _number_in("OMPI_COMM_WORLD_LOCAL_SIZE") or _number_in("SLURM_STEP_TASKS_PER_NODE")
    return max(1, num_usable_cores() // (ranks or 1))


def _number_in(variable: str) -> int | None:
    """Get the largest number in a variable such as ``"8"`` or (per machine) ``"4(x2),3"``; None without one."""
    counts = re.findall(r"(?:^|,)\s*(\d+)", os.environ.get(variable, ""))
    return max(map(int, counts)) if counts else None


@functools.cache
def _log_once(shard_id: int, num_shards: int, source: str) -> None:
    _logger.info("This process loads shard %d of %d (source: %s).", shard_id, num_shards, source)


# --- the sources: each gives rank and number of ranks, or None where it is not available -----------------


def _accelerate() -> tuple[int, int] | None:
    state_module: Any = sys.modules.get("accelerate.state")
    if getattr(state_module, "AcceleratorState", None) is None:
        return None
    _require_no_peers(state_module.AcceleratorState._shared_state.get("parallelism_config"))
    state: dict[str, Any] = state_module.PartialState._shared_state
    return (state["process_index"], state["num_processes"]) if state else None


def _require_no_peers(config: Any) -> None:
    """Refuse Accelerate's groups of processes that load the same samples: their coordinates are not looked up."""
    sizes = [1 if config is None else config.non_data_parallel_size]
    if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "").lower() == "true":  # by `accelerate launch`
        sizes += [_number_in(f"PARALLELISM_CONFIG_{name}_SIZE") or 1 for name in ("CP", "SP", "TP")]
    if max(sizes) > 1:
        raise SettingError(
            f"Accelerate has tensor, context or sequence parallelism: groups of {max(sizes)} or more processes "
            f"load the same samples. Make the shard of the data-parallel coordinates: mesh = "
            f"accelerator.torch_device_mesh, and shard=(mesh.get_local_rank('dp_shard'), mesh['dp_shard'].size())."
        )


def _is_alone_in_accelerate() -> bool:
    """Whether Accelerate knows of one process only; it may be left from before, or know less than the launcher."""
    state_module: Any = sys.modules["accelerate.state"]
    return bool(state_module.PartialState._shared_state.get("num_processes") == 1)


def _torch() -> tuple[int, int] | None:
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _slurm() -> tuple[int, int] | None:
    # What SLURM sets for N tasks:
    #
    #                      task of `srun`   batch script     shell of `salloc`
    #   STEP_ID            0, 1, ...        -                -
    #   STEP_NUM_TASKS     N                -                -
    #   PROCID             0 .. N - 1       0                -
    #   NTASKS             N                N, for srun      N, for srun
    #   JOB_ID             set              set              set
    #
    # A batch script taken for task 0 of N would leave out all samples of the other shards.
    environment = os.environ
    if "SLURM_STEP_NUM_TASKS" in environment:
        return _from_variables("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if "SLURM_STEP_ID" not in environment:
        if "SLURM_PROCID" not in environment:
            return None
        if "SLURM_JOB_ID" in environment:
            if environment["SLURM_PROCID"].strip() == "0":
                return None
            # Task 0 of the same step would be taken for a batch script.
            rule = f"SLURM_PROCID={environment['SLURM_PROCID']!r} says that this is a task of `srun`"
            advice = "Pass them on as well (into the container, say), or make the Shard yourself."
            raise SettingError(f"{rule}, but SLURM_STEP_ID and SLURM_STEP_NUM_TASKS are not set. {advice}")
        # Somebody passed on just the two (into a container, say).
    return _from_variables("SLURM_PROCID", "SLURM_NTASKS")


def _jax() -> tuple[int, int] | None:
    # JAX has it in public only as `jax.process_index()`, which starts a backend that takes hold of the GPUs.
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return None if getattr(state, "client", None) is None else (state.process_id, state.num_processes)


def _from_variables(rank_name: str, count_name: str) -> tuple[int, int] | None:
    texts = {name: os.environ[name] for name in (rank_name, count_name) if name in os.environ}
    if not texts:
        return None
    if len(texts) == 1:
        ((name, text),) = texts.items()
        (missing,) = {rank_name, count_name} - {name}
        raise SettingError(
            f"{rank_name} and {count_name} must be set together, but {name}={text!r} is set and {missing} is not. "
            f"Set both or neither, or make the Shard yourself."
        )
    for name, text in texts.items():
        if not (text.strip().isascii() and text.strip().isdigit()):
            raise SettingError(f"The variable {name} must be a whole number of at least 0, got {text!r}.")
    rank, count = int(texts[rank_name]), int(texts[count_name])
    if rank >= count:
        rule = f"{rank_name} must be less than {count_name} (ranks are counted from 0)"
        raise SettingError(f"{rule}, got {rank_name}={rank} and {count_name}={count}.")
    return rank, count


# In the order of "auto"; with the advice for a source that is not available.
_SOURCES: dict[str, tuple[Callable[[], tuple[int, int] | None], str]] = {
    "accelerate": (_accelerate, "no `Accelerator` was made: create it before the loader"),
    "torch": (_torch, "torch.distributed is not initialised: call `torch.distributed.init_process_group` first"),
    "torchrun": (
        lambda: _from_variables("RANK", "WORLD_SIZE"),
        "RANK and WORLD_SIZE are not set: start the program with `torchrun`",
    ),
    "openmpi": (
        lambda: _from_variables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set: start the program with Open MPI's `mpirun`",
    ),
    "slurm": (
        _slurm,
        "this process is not a task of a SLURM step (a batch script is none): start the program with `srun`",
    ),
    "jax": (
        _jax,
        "jax.distributed is not initialised: call `jax.distributed.initialize` first",
    ),
}
