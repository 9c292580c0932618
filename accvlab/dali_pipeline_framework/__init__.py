# SPDX-License-Identifier: Apache-2.0
"""Data loading for multi-camera driving data: nested samples through NVIDIA DALI pipelines."""

from typing import TYPE_CHECKING, Any

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework import (
        inputs,
        internal_helpers,
        operators_impl,
        pipeline,
        processing_steps,
        testing,
    )

__all__ = [
    "__version__",
    "inputs",
    "internal_helpers",
    "operators_impl",
    "pipeline",
    "processing_steps",
    "testing",
]


_ROOMS = ("inputs", "internal_helpers", "operators_impl", "pipeline", "processing_steps", "sample_data", "testing")
_get_room, __dir__ = lazy_exports(__name__, {room: room for room in _ROOMS})


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _get_room(name)
    # Looked up on demand: importing what it takes would cost every worker process.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("accvlab.dali_pipeline_framework")
    except PackageNotFoundError:  # used from a source tree that is not installed
        return "0.0.0"
