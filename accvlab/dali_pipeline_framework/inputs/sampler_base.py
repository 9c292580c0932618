# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sampling.sampler_base import SamplerBase

__all__ = ["SamplerBase"]
