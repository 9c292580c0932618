# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sources.sampler_input_iterable import SamplerInputIterable

__all__ = ["SamplerInputIterable"]
