# SPDX-License-Identifier: Apache-2.0
"""What is said about workers that have ended: the signal, where it came from, and what they were at."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from nvidia.dali import types

from ...errors import WorkerDiedError
from ...sources.input_adapter import InputAdapter
from .kernel_kills import KernelKills
from .shared_memory import describe_shared_memory

if TYPE_CHECKING:
    from ..control_block import ControlBlock
    from .worker_watch import WorkerWatch

_LONGEST_END_S = 5.0

_SIGNAL_HINTS = {
    "SIGBUS": "usually because /dev/shm is too small, as in a container",
    "SIGSEGV": "a crash in native code that the data provider uses",
}


def worker_died_error(
    pool: Any, watch: WorkerWatch, control: ControlBlock, data_input: Any, batch_size: int
) -> WorkerDiedError:
    """Make the error for workers that have ended.

    Args:
        pool: DALI's pool of workers (`WorkerPool`); None where there is none any more.
        watch: What has watched them.
        control: What they have told.
        data_input: The user's input.
        batch_size: Samples per batch.
    """
    suspects = first_ended(watch)
    texts, all_loading = [], {}
    for pid, code in suspects.items():
        loading = control.find_loading(pid) if callable(data_input) else None
        stage = control.setups().get(pid)
        work = "" if stage is None else f", while it was {stage[0]} ({_name_of(data_input)})"
        if loading is not None and code != -signal.SIGBUS:  # that is not about a sample
            index = sample_index_at(data_input, loading, batch_size)
            work = f", while it loaded {describe_place(index, loading)}"
            all_loading[loading] = index
        if pid in watch.killed:
            how = f"was ended by the loader, since it stood still for {watch.killed[pid]:.1f} s"
        else:
            how = describe_exit_code(code, watch.kernel_kills, pool)
        texts.append(f"process {pid} {how}{work}")
    error = WorkerDiedError(
        f"A worker process that loads data ended unexpectedly: {'; '.join(texts) or 'the cause is not known'}."
    )
    error.loading = all_loading
    return error


def _name_of(data_input: Any) -> str:
    planned = InputAdapter(data_input).planned
    return type(data_input if planned is None else planned.provider).__name__


def sample_index_at(data_input: Any, place: tuple[int, int, int], batch_size: int) -> int | None:
    """Index in the data set of the sample at an epoch, batch and slot, as far as the input tells it."""
    epoch, batch, slot = place
    try:
        return InputAdapter(data_input).sample_index(
            types.SampleInfo(batch * batch_size + slot, slot, batch, epoch)
        )
    except Exception:  # only decorates another error
        return None


def describe_place(index: int | None, place: tuple[int, int, int]) -> str:
    """Say which sample stands at an epoch, batch and slot."""
    sample = "a sample" if index is None else f"sample {index}"
    return "{} (epoch {}, batch {}, slot {})".format(sample, *place)


def first_ended(watch: WorkerWatch) -> dict[int, int]:
    """Exit codes of the worker processes that have ended by themselves, or were killed by others than DALI.

    As soon as one worker is gone, DALI terminates the others, if they do not end by themselves before.
    """
    codes = watch.exit_codes(_LONGEST_END_S)
    not_first = ({-signal.SIGTERM, 0}, {-signal.SIGTERM}, set[int]())
    suspects = {pid: codes[pid] for pid in watch.killed if pid in codes}
    for ignored in not_first:
        suspects = suspects or {pid: code for pid, code in codes.items() if code not in ignored}
    return suspects


def describe_exit_code(code: int, kills: KernelKills, pool: Any = None) -> str:
    """Say how a process ended: a negative code stands for a signal."""
    if code >= 0:
        hint = "" if code else " (it could not hand over what it has loaded; what it printed on stderr says why)"
        return f"exited with code {code}{hint}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    hint = kills.describe() if name == "SIGKILL" else _SIGNAL_HINTS.get(name, "")
    if name == "SIGBUS" and pool is not None:
        hint += describe_shared_memory(pool)
    return f"was ended by {name}{f' ({hint})' if hint else ''}"
