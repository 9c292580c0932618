# SPDX-License-Identifier: Apache-2.0
"""Seeds of the global generators by the sample that is being loaded, for code of others that draws from them.

::

    engine       with seeds.loading(source, ...):    which input this thread loads, by which seed
                     note_sample(info)               before each sample
    provider             seed_by_sample(index)       before it calls code that may draw

Who loads a batch does not know whether something in it will draw, and who draws knows neither epoch nor seed.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from .keyed_random import derive_key
from .sample_place import place_at


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


@attrs.frozen
class SampleSeeds:
    """What seeds depend on, besides the sample.

    Attributes:
        seed: Seed of the pipeline.
        shard: Shard id and number of shards of the input.
        batch_size: Samples per batch on this shard. Together with the shard it gives the position of a sample
            among those of all shards, which is its index where the input tells neither place nor index.
    """

    seed: int = 0
    shard: tuple[int, int] = (0, 1)
    batch_size: int = 1

    def loading(self, source: Any, keeps_generators: bool) -> LoadingSamples:
        """Get the context in which this thread loads samples of an input.

        Args:
            source: The input.
            keeps_generators: Whether the global generators are afterwards as before.
        """
        return LoadingSamples(self, source, keeps_generators)


class LoadingSamples:
    """Context in which a thread loads samples; can be entered again.

    What loads each batch sets the attributes, and `of_thread`, itself: that takes no calls where nothing draws.

    Attributes:
        source: The input.
        info: Position of the sample that is being loaded; None before the first one.
        kept: Restores the global generators when it is closed; None where they were not seeded.
    """

    __slots__ = ("_keeps_generators", "_outer", "_seeds", "info", "kept", "source")

    def __init__(self, seeds: SampleSeeds, source: Any, keeps_generators: bool) -> None:
        """Set up; see `SampleSeeds.loading`."""
        self.source = source
        self.info: types.SampleInfo | None = None
        self.kept: contextlib.ExitStack | None = None
        self._seeds = seeds
        self._keeps_generators = keeps_generators
        self._outer: LoadingSamples | None = None

    def __enter__(self) -> None:
        self._outer, of_thread.loading = of_thread.loading, self  # a data set may load with a loader itself

    def __exit__(self, *error: object) -> None:
        of_thread.loading = self._outer
        self.restore_generators()

    def restore_generators(self) -> None:
        """Give the global generators the state from before they were seeded, where that is to be kept."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept.close()

    def seed(self, *items: int) -> bool:
        """Seed the global generators for items of the sample; return whether the sample is known."""
        if self.info is None:
            return False
        if self._keeps_generators and self.kept is None:  # it takes 0.1 ms, so once per batch, where needed
            self.kept = contextlib.ExitStack()
            self.kept.enter_context(kept_global_generators())
        seeds = self._seeds
        place = place_at(self.source, self.info, seeds.shard, seeds.batch_size)
        seed_global_generators(
            derive_key("global", seeds.seed, place.epoch, place.sample_index, place.visit, *items)
        )
        return True


class _OfThread(threading.local):
    loading: LoadingSamples | None = None


of_thread = _OfThread()
"""What this thread loads."""


def note_sample(info: types.SampleInfo) -> None:
    """Note that this thread now loads the sample at a position."""
    if of_thread.loading is not None:
        of_thread.loading.info = info


def seed_by_sample(*items: int) -> bool:
    """Seed the global generators by the sample that this thread loads, and the numbers of items that make it up.

    Returns:
        Whether a sample is being loaded; if not, the generators are left alone.
    """
    loading = of_thread.loading
    return loading is not None and loading.seed(*items)
