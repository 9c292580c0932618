"""What an input that is no class of this package says about its epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from accvlab.dali_pipeline_framework.sources.input_adapter import InputAdapter


class OwnIterable:
    length = 7

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class OwnCallable:
    length = 7

    def __call__(self, info: Any) -> Any:
        raise StopIteration


class CountedIterable(OwnIterable):
    num_batches_per_epoch = 3


class CountedCallable(OwnCallable):
    num_batches_per_epoch = 3


@pytest.mark.parametrize(
    ("source", "here", "of_all"),
    [
        (OwnIterable(), 7, None),  # its length counts batches
        (CountedIterable(), 3, 3),
        (OwnCallable(), None, None),
        (CountedCallable(), 3, 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_batches(source: Any, here: int | None, of_all: int | None) -> None:
    adapter = InputAdapter(source)
    assert (adapter.num_batches_here(0), adapter.num_batches(0)) == (here, of_all)
