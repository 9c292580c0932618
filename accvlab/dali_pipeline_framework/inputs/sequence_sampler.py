# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ..sampling.sequence_samplers import SequenceSampler

__all__ = ["SequenceSampler"]
