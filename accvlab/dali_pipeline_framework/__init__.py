# SPDX-License-Identifier: Apache-2.0
"""Data loading for multi-camera driving data: nested samples through NVIDIA DALI pipelines."""

from typing import Any

from .public_names import public_names

_get_public, __dir__ = public_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_get_public(name), "__version__"])
    if name != "__version__":
        return _get_public(name)
    # Looked up on demand: importing what it takes would cost every worker process.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("accvlab.dali_pipeline_framework")
    except PackageNotFoundError:  # used from a source tree that is not installed
        return "0.0.0"
