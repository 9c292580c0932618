# SPDX-License-Identifier: Apache-2.0
"""A published, misspelt, module path."""

from ..sources.shuffled_sharded_input_callable import ShuffledShardedInputCallable

__all__ = ["ShuffledShardedInputCallable"]
