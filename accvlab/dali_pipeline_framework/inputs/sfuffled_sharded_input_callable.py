# SPDX-License-Identifier: Apache-2.0
"""A published, misspelt, module path."""

from ..sources.sampler_inputs import ShuffledShardedInputCallable

__all__ = ["ShuffledShardedInputCallable"]
