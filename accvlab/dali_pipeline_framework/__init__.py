# SPDX-License-Identifier: Apache-2.0
"""Data loading for multi-camera driving data: nested samples through NVIDIA DALI pipelines."""

from accvlab.dali_pipeline_framework import inputs, internal_helpers, pipeline, processing_steps

__all__ = ["__version__", "inputs", "internal_helpers", "pipeline", "processing_steps"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Looked up on demand: importing what it takes would cost every worker process.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("accvlab.dali_pipeline_framework")
    except PackageNotFoundError:  # used from a source tree that is not installed
        return "0.0.0"
