# SPDX-License-Identifier: Apache-2.0
"""The global generators of Python, NumPy and PyTorch, seeded for a while."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def kept_global_generators() -> Iterator[None]:
    """Whatever draws within a ``with`` statement, behind it the global generators are as they were before.

    Of PyTorch, where it was imported, it is the generator of the CPU.
    """
    of_torch = sys.modules["torch"].default_generator if "torch" in sys.modules else None
    of_python, of_numpy = random.getstate(), np.random.get_state()
    state_of_torch = None if of_torch is None else of_torch.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if of_torch is not None:
            of_torch.set_state(state_of_torch)


@contextlib.contextmanager
def seeded_global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators, in ``[0, 2**32)``, within a ``with`` statement; then they are as before.

    For code of others that draws from them, so that what it draws depends on the seed only. Of PyTorch, where it
    was imported, it is the generator of the CPU.

    Example:
        >>> with seeded_global_generators(5):
        ...     first = random.random(), np.random.rand()
        >>> with seeded_global_generators(5):
        ...     first == (random.random(), np.random.rand())
        True
    """
    with kept_global_generators():
        seed_global_generators(seed)
        yield


def seed_global_generators(seed: int) -> None:
    """Seed the global generators with a number of at least 0; NumPy takes its lowest 32 bits."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if "torch" in sys.modules:  # `torch.manual_seed` would care for GPUs, too
        sys.modules["torch"].default_generator.manual_seed(seed)
