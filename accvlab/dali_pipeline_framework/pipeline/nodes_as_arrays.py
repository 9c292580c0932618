# SPDX-License-Identifier: Apache-2.0
"""Errors of steps that treat the nodes of a graph as if they were arrays."""

from __future__ import annotations

import dis
import traceback
from typing import Final

from ..errors import FrameworkError

ADVICE_ON_NODES: Final = (
    "In the graph, the fields are not arrays but nodes of DALI (DataNode), which stand for data of a later batch: "
    "NumPy, OpenCV, PyTorch, `if`, `len`, loops and the like cannot compute with them. Use operators of "
    "nvidia.dali.fn, e.g. fn.resize, fn.shapes or fn.cast. Or let the step compute on arrays, in the workers: "
    "MapStep calls a function of NumPy arrays, and a step of your own derives from ArrayStep."
)
_LIBRARIES: Final = ("numpy", "scipy", "cv2", "torch", "torchvision", "PIL", "skimage")
_VALUES_IN_DALI: Final = ("nvidia.dali.data_node", "nvidia.dali._utils.hacks", "nvidia.dali._autograph")
_CALLS_FUNCTION: Final = ".lambda_step"  # of the user, which may be written in C
_PACKAGE: Final = __name__.rsplit(".", 2)[0]


def computes_on_nodes(error: Exception) -> bool:
    """Whether an exception of a step that defines its operators seems to be about a node that is no array."""
    if isinstance(error, FrameworkError):
        return "cannot store DataNode(" in str(error)
    frames = [*traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    if any(_root(module) in _LIBRARIES for module in (*modules, type(error).__module__)):
        return True
    if not isinstance(error, TypeError | ValueError | AttributeError):
        return False
    of_step = [number for number, module in enumerate(modules) if _is_of_step(module)]
    if not of_step:
        return False
    called = modules[of_step[-1] + 1 :]  # by the last line of the step
    return called[0].startswith(_VALUES_IN_DALI) if called else not _was_raised_by_hand(error)


def _is_of_step(module: str) -> bool:
    return not module.startswith(("nvidia.", _PACKAGE)) or module.endswith(_CALLS_FUNCTION)


def _root(module: str) -> str:
    return module.partition(".")[0]


def _was_raised_by_hand(error: Exception) -> bool:
    """Whether a `raise` statement has raised it, and not the call of a function in C, or Python."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
