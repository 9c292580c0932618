"""A plug-in of pytest: tests marked ``gpu`` run without a GPU, as far as to where CUDA itself is needed.

They pass where DALI's backend accepts their graph, see `gpu_definitions`, and only building it needs a driver:

    python -m pytest -p support.gpu_rehearsal -m gpu
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

import pytest
from nvidia.dali.pipeline import Pipeline

from support.gpu_definitions import checked_by_dali, pretend_gpus

# What PyTorch says.
_NO_CUDA = ("not compiled with CUDA", "Found no NVIDIA driver", "CUDA driver")


class CudaNeededError(Exception):
    """A graph was accepted, and cannot be built here."""


def _rehearsed(pipeline: Any, go_on: Callable[[Any], None]) -> None:
    if pipeline._device_id is None:
        go_on(pipeline)
        return
    checked_by_dali(pipeline)
    raise CudaNeededError


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    pretend_gpus(patch)
    # The first things that building a pipeline does.
    for method in ("start_py_workers", "_init_pipeline_backend"):
        go_on = getattr(Pipeline, method)
        patch.setattr(Pipeline, method, functools.partialmethod(_rehearsed, go_on=go_on))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        result = yield
    except Exception as error:
        if not _needs_cuda(error):
            raise
        return True
    if pyfuncitem.get_closest_marker("gpu"):
        pytest.fail("It is marked `gpu`, and has come to its end without CUDA.")
    return result


def _needs_cuda(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, CudaNeededError) or any(text in str(error) for text in _NO_CUDA):
            return True
        error = error.__cause__ or error.__context__
    return False
