# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sources.sampler_inputs import SamplerInputCallable

__all__ = ["SamplerInputCallable"]
