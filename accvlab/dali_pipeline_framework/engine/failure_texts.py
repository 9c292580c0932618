# SPDX-License-Identifier: Apache-2.0
"""Readable messages for what DALI reports as numbers or noise."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence

from .dali.broken_rules import RULE_PREFIX

_SIGNAL_HINTS = {
    "SIGKILL": "often because memory ran out: use fewer workers or a smaller prefetch_queue_depth",
    "SIGBUS": "usually because /dev/shm is too small, as in a container: raise it (docker: --shm-size)",
    "SIGSEGV": "a crash in native code that the data provider uses",
}
_RULE = f", in {RULE_PREFIX}"
_DALI_NOISE = ("Current pipeline object is no longer valid.", "Critical error in pipeline:")


def describe_dead_workers(exit_codes: Mapping[int, int], describe_work: Callable[[int], str]) -> str:
    """Say which workers ended how.

    Args:
        exit_codes: Exit codes by process id; a negative one stands for a signal.
        describe_work: Says what a process was at when it ended (empty: not known).
    """
    # As soon as one worker is gone, the others are terminated.
    suspects = {pid: code for pid, code in exit_codes.items() if code != -signal.SIGTERM} or exit_codes
    dead = "; ".join(
        f"process {pid} {_describe_exit_code(code)}{describe_work(pid)}" for pid, code in suspects.items()
    )
    return f"A worker process that loads data ended unexpectedly: {dead or 'the cause is not known'}."


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    hint = f" ({_SIGNAL_HINTS[name]})" if name in _SIGNAL_HINTS else ""
    return f"was ended by {name}{hint}"


def dali_message(error: BaseException) -> str:
    """The text of a DALI error without its repeated phrases."""
    text = str(error)
    for noise in _DALI_NOISE:
        text = text.replace(noise, "")
    return "\n".join(line for line in text.splitlines() if line.strip())


def dali_cause(error: BaseException) -> str:
    """What DALI says an operator failed with, in one line, without where the operator was defined."""
    lines = dali_message(error).rpartition("encountered:")[2].splitlines()
    told = (line.strip() for line in lines if not line.startswith("C++ context"))
    return " ".join(line for line in told if line)


def dali_reason(error: BaseException) -> str:
    """Why an operator failed, in one line: the rule, where one is named in what defines it."""
    lines = dali_message(error).splitlines()
    rules = [line.rpartition(_RULE)[2].strip() for line in lines if _RULE in line]
    if rules:
        return rules[-1]
    reason = dali_cause(error) or type(error).__name__
    if "nvImageCodec" in reason or "Failed to decode" in reason:
        reason += " (what was to be decoded is no image of a known format, or it is damaged)"
    if "allowed layouts" in reason:
        reason += " (an image is (height, width, channels), a clip has the frames in front; is it decoded before?)"
    return reason


def unused_outputs(warning: str, names: Sequence[str]) -> str:
    """DALI's warning of outputs of the external source that the graph does not use, with names for its numbers.

    Args:
        warning: What DALI says; returned as it is where it is about something else, or about a source of a native
            input.
        names: Names of the outputs of what workers load.
    """
    found = re.search(r"output(?:s)? at the ind(?:ices|ex) (\d+(?:, \d+)*) (?:is|are) not used", warning)
    numbers = [] if found is None else [*map(int, found.group(1).split(", "))]
    if not numbers or max(numbers) >= len(names):
        return warning
    unused = [names[number] for number in numbers]
    return (
        f"These fields are not used, though loaded for each sample: no step reads them, and they do not reach the "
        f"output: {', '.join(unused)}. Leave fields out of the blueprint of the data provider "
        f"(`sample_data_structure`), and draws out of what the step declares."
    )
