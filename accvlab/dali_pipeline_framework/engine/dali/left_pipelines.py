# SPDX-License-Identifier: Apache-2.0
"""Pipelines of DALI that are not destroyed, since that would wait indefinitely or end the process."""

from __future__ import annotations

from typing import Any, cast

from nvidia.dali.pipeline import Pipeline

from ...forks import keep_forever


def leave_pipeline(pipeline: Any) -> None:
    """Leave a pipeline to the parent, in a forked child or to the end of the process once the GPU has failed."""
    keep_forever(pipeline._pipe)
    pipeline._pipe = None  # else DALI shuts it down at exit


def leave_pipelines_with_gpu() -> None:
    """Once a GPU is lost, leave all pipelines of the process that have one: also of other loaders and streams."""
    for reference in [*cast(Any, Pipeline)._pipes]:
        pipeline = reference()
        if pipeline is not None and pipeline.device_id is not None and pipeline._pipe is not None:
            leave_pipeline(pipeline)
