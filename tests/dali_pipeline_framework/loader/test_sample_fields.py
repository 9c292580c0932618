"""States that are loaded with other fields: which ones differ is named, with those of earlier releases as well."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.loaders import edited

from accvlab.dali_pipeline_framework import DataLoader, TorchDatasetProvider
from accvlab.dali_pipeline_framework.errors import StateError
from accvlab.dali_pipeline_framework.loader.state import is_fields

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


def test_a_state_of_an_earlier_release_has_a_fingerprint_only() -> None:
    state = state_of(PLAIN)
    early = edited(state, {"blueprint": state["blueprint"].partition(" ")[0]})
    assert early["blueprint"] == "d49d4c766e46"
    with loader_of(PLAIN) as loader:
        loader.load_state_dict(early)
        assert len([*loader]) == 1
    with loader_of(DEPTH) as loader, pytest.raises(StateError, match="fingerprint d49d4c766e46 in the state, "):
        loader.load_state_dict(early)


def test_states_of_many_fields_are_small() -> None:
    camera = {name: np.float32(0) for name in ("image", "depth", "mask", "ego_from_camera", "projection", "time")}
    camera |= {f"boxes_{name}": np.float32(0) for name in ("center", "size", "yaw", "velocity", "category", "id")}
    rest = {
        name: np.float32(0) for name in ("scene", "time", "ego_pose", "command", "weather", "map", "lidar", "x")
    }
    state = state_of({"cameras": [camera] * 6, **rest})
    assert len(state["blueprint"]) < 500
    assert len(json.dumps(state)) < 1024


@pytest.mark.parametrize("packed", ["no", "c$", "\u00e9", None])
def test_damaged_fields_are_refused(packed: str | None) -> None:
    text = state_of(PLAIN)["blueprint"][:-4] if packed is None else f"{'0' * 12} {packed}"
    assert not is_fields(text)
    with (
        loader_of(PLAIN) as loader,
        pytest.raises(StateError, match="`blueprint` must be a fingerprint and packed"),
    ):
        loader.load_state_dict(edited(state_of(PLAIN), {"blueprint": text}))


def test_packed_fields_can_be_read_by_later_releases() -> None:
    packed = "d49d4c766e46 !xaKBaYG#9Mrh)BU<ZTQ00"
    state = edited(state_of(PLAIN), {"blueprint": packed})
    with (
        loader_of(DEPTH) as loader,
        pytest.raises(StateError, match=r"3 fields more than .*: cameras\[0..2\].depth"),
    ):
        loader.load_state_dict(state)
