# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sampling.samplers import SequenceSampler

__all__ = ["SequenceSampler"]
