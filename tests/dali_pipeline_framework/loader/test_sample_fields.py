"""States that are loaded with other fields: which ones differ is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider

from accvlab.dali_pipeline_framework import DataLoader, TorchDatasetProvider
from accvlab.dali_pipeline_framework.errors import StateError

PREFIX = "fields of the samples (names, types, order): "


def item(num_cameras: int = 3, more: Any = None, **camera: Any) -> dict[str, Any]:
    """An item of some cameras; ``camera`` are further fields of each."""
    cameras = [{"image": np.zeros((2, 2, 3), np.uint8), **camera} for _ in range(num_cameras)]
    return {"cameras": cameras, "name": "a", **({} if more is None else more)}


def loader_of(first: dict[str, Any]) -> DataLoader:
    return DataLoader(TorchDatasetProvider([first] * 4), 2, num_workers=0, output_type="numpy")


def state_of(first: dict[str, Any]) -> dict[str, Any]:
    with loader_of(first) as loader:
        next(iter(loader))
        return json.loads(json.dumps(loader.state_dict()))


PLAIN = item()
DEPTH = item(depth=np.zeros((2, 2), np.float32))


@pytest.mark.parametrize(
    ("saved", "own", "difference"),
    [
        (PLAIN, DEPTH, "3 fields more than when the state was saved: cameras[0..2].depth"),
        (DEPTH, PLAIN, "3 fields less than when the state was saved: cameras[0..2].depth"),
        (PLAIN, item(more={"label": 3}), "1 field more than when the state was saved: label"),
        (PLAIN, item(4), "1 field more than when the state was saved: cameras[3].image"),
        (
            item(depth=np.zeros((2, 2), np.float64), more={"x": 1}),
            item(depth=np.zeros((2, 2), np.float32), more={"y z": 1}),
            "1 field more than when the state was saved: y z; 1 field less than when the state was saved: x; "
            "cameras[0..2].depth: FLOAT64 in the state, FLOAT here",
        ),
        (
            item(2, more={"b": 1, "a.c[d]": 2}),
            item(2, more={"a.c[d]": 1, "b": 2}),
            "another order, cameras[0..1].image, name, b, a.c[d] in the state, cameras[0..1].image, name, a.c[d], "
            "b here",
        ),
    ],
)
def test_fields_that_differ_are_named(saved: Any, own: Any, difference: str) -> None:
    state = state_of(saved)
    with loader_of(saved) as loader:
        loader.load_state_dict(state)
        assert len([*loader]) == 1
    with loader_of(own) as loader, pytest.raises(StateError) as caught:
        loader.load_state_dict(state)
    assert caught.value.differences == (PREFIX + difference,)
    assert difference in str(caught.value)


def test_many_differences_are_cut() -> None:
    types = [np.int8, np.int16, np.int32, np.int64, np.float32]
    fields = [{f"field {number}": types[(number + shift) % 5](1) for number in range(5)} for shift in (0, 1)]
    many = [{**first, "cameras": [{**first}], "rest": {**first}} for first in fields]
    with loader_of(many[1]) as loader, pytest.raises(StateError) as caught:
        loader.load_state_dict(state_of(many[0]))
    (difference,) = caught.value.differences
    assert difference.count("; ") == 9
    assert difference.endswith("; and 6 more")


def test_fields_are_plain_values_in_the_state() -> None:
    state = state_of(item(2, more={"y": 1.5}))
    assert state["fields"] == [
        ["cameras[0].image", "UINT8"],
        ["cameras[1].image", "UINT8"],
        ["name", "UINT8"],
        ["y", "FLOAT64"],
    ]


@pytest.mark.parametrize("num_values", [16, 4_000, 40_000])
def test_batches_that_are_held_keep_their_values_while_workers_fill_their_memory_again(num_values: int) -> None:
    rows = [np.full(num_values, number, np.float32) for number in range(64)]
    provider = ArrayProvider({"row": (DT.FLOAT, rows), "other": (DT.FLOAT, rows)})
    arguments: dict[str, Any] = {"num_workers": 1, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(provider, 2, shuffle=False, **arguments) as loader:
        held = [batch["row"] for _ in range(2) for batch in loader]
    expected = [[2 * number, 2 * number + 1] for number in range(32)] * 2
    assert [[np.unique(row).tolist() for row in batch] for batch in held] == [
        [[first], [second]] for first, second in expected
    ]
    assert all(batch.flags.writeable for batch in held)
