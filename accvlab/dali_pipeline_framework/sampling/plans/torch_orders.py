# SPDX-License-Identifier: Apache-2.0
"""The orders of PyTorch's samplers, epoch after epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from ...errors import SettingError
from ..arithmetic.torch_generator import torch_generator, torch_module, torch_permutation, torch_seed
from .orders import EpochOrder, Order
from .planned_batch import Int64Array

GeneratorOwner: TypeAlias = Literal["global", "loader", "sampler", "epoch"]
"""Whose generator PyTorch's sampler draws from."""


class EpochDraw(ABC):
    """What a sampler draws from a generator in an epoch.

    Attributes:
        num_drawn: How many samples.
        can_repeat: Whether a sample can come twice.
        has_own_generator: Whether the sampler, where it was given no generator, draws a seed and makes one of it.
    """

    num_drawn: int
    can_repeat: bool
    has_own_generator: bool

    @abstractmethod
    def drawn(self, generator: Any) -> Int64Array:
        """Draw the ``(num_drawn,)`` samples of an epoch."""


@attrs.frozen
class RandomDraw(EpochDraw):
    """As ``RandomSampler``: permutations one after the other, or numbers with replacement."""

    num_samples: int
    num_drawn: int
    replacement: bool
    has_own_generator = True

    @property
    def can_repeat(self) -> bool:  # type: ignore[override]
        """With replacement, or where there are more draws than samples."""
        return self.replacement or self.num_drawn > self.num_samples

    def drawn(self, generator: Any) -> Int64Array:
        """Draw as ``RandomSampler.__iter__``: also where nothing of it is needed, a last permutation."""
        if not self.replacement:
            num_whole, rest = divmod(self.num_drawn, self.num_samples)
            parts = [torch_permutation(self.num_samples, generator) for _ in range(num_whole + 1)]
            return np.concatenate([*parts[:-1], parts[-1][:rest]])
        torch = torch_module()
        sizes = [32] * (self.num_drawn // 32) + [self.num_drawn % 32]
        numbers = [
            torch.randint(self.num_samples, (size,), dtype=torch.int64, generator=generator) for size in sizes
        ]
        return np.asarray(torch.cat(numbers).numpy(), np.int64)


@attrs.frozen(eq=False)
class WeightedDraw(EpochDraw):
    """As ``WeightedRandomSampler``."""

    weights: npt.NDArray[np.float64]
    num_drawn: int
    can_repeat: bool
    has_own_generator = False

    def drawn(self, generator: Any) -> Int64Array:
        """Draw as ``WeightedRandomSampler.__iter__``."""
        torch = torch_module()
        weights = torch.from_numpy(self.weights)
        try:
            drawn = torch.multinomial(weights, self.num_drawn, self.can_repeat, generator=generator)
        except RuntimeError as error:  # more draws than weights, without replacement
            raise SettingError(f"PyTorch cannot draw {self.num_drawn} of these weights: {error}") from error
        return np.asarray(drawn.numpy(), np.int64)


class TorchOrder(Order):
    """Orders drawn from one generator, epoch after epoch; an epoch is reached by drawing those before it."""

    def __init__(
        self,
        draw: EpochDraw,
        seed: int,
        state: npt.NDArray[np.uint8] | None,
        owner: GeneratorOwner,
        has_persistent_workers: bool,
    ) -> None:
        """Set up.

        Args:
            draw: What is drawn in an epoch.
            seed: Seed of the generator.
            state: State of the generator before the first epoch, in place of a seed.
            owner: Whose generator it is. The loader draws a seed for its workers from the global one, or from its
                own: before each epoch, or with persistent workers before the first one. With ``"epoch"`` it is a
                new one in each epoch, with the seed plus the number of the epoch.
            has_persistent_workers: Whether PyTorch's loader has such.
        """
        self.num_positions = draw.num_drawn
        self._draw = draw
        self._seed = seed
        self._state = state
        self._owner = owner
        self._has_persistent_workers = has_persistent_workers
        self._forget()

    def _forget(self) -> None:
        self._generator: Any = None
        self._next_epoch = 0  # which the generator stands at
        self._known: LRUCache[int, Int64Array] = LRUCache(2)

    def __getstate__(self) -> dict[str, Any]:  # each process draws for itself
        return {**self.__dict__, "_generator": None, "_next_epoch": 0, "_known": LRUCache(2)}

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        indices = self._known.get(epoch)
        if indices is None:
            indices = self._known[epoch] = self._drawn(epoch)

        def units(positions: Int64Array) -> tuple[Int64Array, Int64Array]:
            visits = positions + 1 if self._draw.can_repeat else np.zeros_like(positions)
            return indices[positions], visits

        return EpochOrder(self.num_positions, units)

    def _drawn(self, epoch: int) -> Int64Array:
        if self._owner == "epoch":
            return self._draw.drawn(torch_generator(self._seed + epoch))
        if self._generator is None or epoch < self._next_epoch:
            self._generator, self._next_epoch = torch_generator(self._seed, self._state), 0
        while True:
            found = self._play(is_wanted=self._next_epoch == epoch)
            self._next_epoch += 1
            if found is not None:
                return found

    def _play(self, is_wanted: bool) -> Int64Array | None:
        """Draw what the next epoch draws; returns its order where it is wanted."""
        if self._owner != "sampler" and (self._next_epoch == 0 or not self._has_persistent_workers):
            torch_seed(self._generator)  # of the workers
        generator = self._generator
        if self._owner == "global" and self._draw.has_own_generator:
            seed = torch_seed(generator)
            if not is_wanted:
                return None
            generator = torch_generator(seed)
        drawn = self._draw.drawn(generator)
        return drawn if is_wanted else None
