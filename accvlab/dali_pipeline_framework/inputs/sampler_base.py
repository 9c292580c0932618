# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sampling.random_access_sampler import SamplerBase

__all__ = ["SamplerBase"]
