# SPDX-License-Identifier: Apache-2.0
"""The published, misspelt module path of `ShuffledShardedInputCallable`, kept for existing code."""

from accvlab.dali_pipeline_framework.inputs.shuffled_sharded_input_callable import (
    ShuffledShardedInputCallable,
)

__all__ = ["ShuffledShardedInputCallable"]
