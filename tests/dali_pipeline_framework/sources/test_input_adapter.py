"""What an input that is no class of this package says about its epochs."""

from __future__ import annotations

from typing import Any

import pytest

from accvlab.dali_pipeline_framework.sources.input_adapter import InputAdapter


class Own:
    length = 7


class OwnIterable(Own):
    def __iter__(self) -> Any:
        return iter(())


class OwnCallable(Own):
    def __call__(self, info: Any) -> Any:
        raise StopIteration


@pytest.mark.parametrize(
    ("source", "counted", "here", "of_all"),
    [
        (OwnIterable(), None, 7, None),  # its length counts batches
        (OwnIterable(), 3, 3, 3),
        (OwnCallable(), None, None, None),
        (OwnCallable(), 3, 3, 3),
    ],
)
def test_numbers_of_batches(source: Any, counted: int | None, here: int | None, of_all: int | None) -> None:
    if counted is not None:
        source.num_batches_per_epoch = counted
    adapter = InputAdapter(source)
    assert (adapter.num_batches_here(0), adapter.num_batches(0)) == (here, of_all)
