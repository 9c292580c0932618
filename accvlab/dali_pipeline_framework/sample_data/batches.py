# SPDX-License-Identifier: Apache-2.0
"""Batches: dicts that print as a line per field."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..checks import did_you_mean, listed
from ..errors import FieldNotFoundError
from .names import Name
from .printing import titled


class Batch(dict[Name, Any]):
    """A batch of a loader: a dict that prints as `describe_batch` describes it, not as all its numbers.

    It is a dict in all else. ``jax.tree`` and PyTorch's functions on trees look into it as into any dict; it is
    pickled as an ``OrderedDict``, so that ``torch.load`` reads it without this package.

    Example:
        >>> import numpy as np
        >>> Batch(image=np.zeros((2, 4, 6, 3), np.uint8), token=["a", "b"])
        Batch of 2 fields
        image  uint8 (2, 4, 6, 3)  0
        token  str 'a', 'b' (2,)
    """

    def __repr__(self) -> str:
        return titled("Batch", self)

    def __missing__(self, name: object) -> Any:
        problem = f"The batch has no field {name!r}.{did_you_mean(name, self)}"
        raise FieldNotFoundError(f"{problem} Available: {listed(map(repr, self))}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())


def as_batch(batch: Any) -> Any:
    """Make a batch of a dict; anything else stays as it is."""
    if type(batch) is not dict:
        return batch
    for library in _REGISTRATIONS.keys() & sys.modules.keys():
        _REGISTRATIONS.pop(library)(sys.modules[library])
    return Batch(batch)


def _register_in_jax(tree_util: Any) -> None:
    def with_keys(batch: Batch) -> tuple[list[tuple[Any, Any]], tuple[Name, ...]]:
        return [(tree_util.DictKey(name), value) for name, value in batch.items()], tuple(batch)

    tree_util.register_pytree_with_keys(Batch, with_keys, lambda names, values: _of(names, values))


def _register_in_torch(pytree: Any) -> None:
    def flattened(batch: Batch) -> tuple[list[Any], tuple[Name, ...]]:
        return [*batch.values()], tuple(batch)

    pytree.register_pytree_node(Batch, flattened, lambda values, names: _of(names, values))


def _of(names: Iterable[Name], values: Iterable[Any]) -> Batch:
    return Batch(zip(names, values, strict=True))


# They go by the exact type: to them, what is only derived from dict is a value, not a tree.
_REGISTRATIONS: dict[str, Callable[[Any], None]] = {
    "jax.tree_util": _register_in_jax,
    "torch.utils._pytree": _register_in_torch,
}
