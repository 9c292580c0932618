# SPDX-License-Identifier: Apache-2.0
"""Data loading for multi-camera driving data: nested samples through NVIDIA DALI pipelines."""

from importlib.metadata import PackageNotFoundError, version

from accvlab.dali_pipeline_framework import inputs, internal_helpers, pipeline, processing_steps

try:
    __version__ = version("accvlab.dali_pipeline_framework")
except PackageNotFoundError:  # used from a source tree that is not installed
    __version__ = "0.0.0"

__all__ = ["__version__", "inputs", "internal_helpers", "pipeline", "processing_steps"]
