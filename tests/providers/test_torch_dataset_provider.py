"""Data sets of PyTorch as providers."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from nvidia.dali import types
from PIL import Image

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup, TorchDatasetProvider
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError, SourceError, StateError
from accvlab.dali_pipeline_framework.testing import check_provider

DT = types.DALIDataType
Pose = namedtuple("Pose", ["position", "angle"])


def item(number: int) -> dict[str, Any]:
    camera = {"image": torch.full((4, 6, 3), number, dtype=torch.uint8), "gain": np.float32(number)}
    return {
        "cameras": [camera, {**camera, "gain": np.float32(-1)}],
        "boxes": np.full((number, 4), number, np.float64),
        "pose": Pose([1.0, 2.0, number], 0.5),
        "sizes": (3, number),
        "name": f"item {number}",
        "file": b"\x01" * (number + 1),
        "crops": [np.zeros((2, number + 1), np.int16), np.ones((1, 1), np.int16)],
        "is_key": number == 1,
        "picture": Image.new("L", (5, 2), number),
    }


class Items(torch.utils.data.Dataset):
    sequence_lengths = (2, 2)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        return item(index)


class Fetched(Items):
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [{**item(index), "name": f"one of {len(indices)}"} for index in indices]


def test_format_of_the_first_item() -> None:
    provider = TorchDatasetProvider(Items())
    check_provider(provider, start_method="forkserver")
    found = {
        name: (leaf.dtype.name, leaf.ndim)
        for name, leaf in zip(
            provider.sample_data_structure.format.flat_names,
            provider.sample_data_structure.format.flat_leaves,
            strict=True,
        )
    }
    assert found == {
        "cameras.[0].image": ("UINT8", 3),
        "cameras.[0].gain": ("FLOAT", 0),
        "cameras.[1].image": ("UINT8", 3),
        "cameras.[1].gain": ("FLOAT", 0),
        "boxes": ("FLOAT64", 2),
        "pose.position": ("FLOAT64", 1),
        "pose.angle": ("FLOAT64", 0),
        "sizes": ("INT64", 1),
        "name": ("STRING", None),
        "file": ("UINT8", 1),
        "crops.[0]": ("INT16", 2),
        "crops.[1]": ("INT16", 2),
        "is_key": ("BOOL", 0),
        "picture": ("UINT8", 2),
    }
    sample = provider.get_data(2)
    assert np.array_equal(sample["cameras"][1]["image"], np.full((4, 6, 3), 2))
    assert sample["pose"]["position"].tolist() == [1, 2, 2]
    assert (sample["name"], bytes(sample["file"]), sample["picture"].tolist()) == (
        "item 2",
        b"\x01" * 3,
        [[2] * 5] * 2,
    )
    assert provider.sequence_lengths == (2, 2)
    assert provider.describe_sample(3) == "item 3 of Items"


@pytest.mark.parametrize(("dataset", "name"), [(Items(), "item 1"), (Fetched(), "one of 2")])
def test_in_a_loader(dataset: Any, name: str) -> None:
    blueprint = SampleDataGroup()
    blueprint.add_data_field("name", DT.STRING)
    blueprint.add_data_field("is_key", DT.INT32)
    provider = TorchDatasetProvider(dataset, blueprint=blueprint)
    with DataLoader(provider, batch_size=2, num_workers=0, output_type="numpy") as loader:
        batches = [*loader]
    assert batches[0]["name"][1] == name
    assert [batch["is_key"].tolist() for batch in batches] == [[0, 1], [0, 0]]
    assert batches[0]["is_key"].dtype == np.int32


def test_names_of_tuples_and_single_values() -> None:
    pairs = torch.utils.data.TensorDataset(torch.arange(6).reshape(3, 2), torch.tensor([0.5, 1.5, 2.5]))
    sample = TorchDatasetProvider(pairs, names=["x", "y"]).get_data(1)
    assert (sample["x"].tolist(), sample["y"].tolist()) == ([2, 3], 1.5)
    assert TorchDatasetProvider([5, 6], names=["number"]).get_data(1)["number"] == 6
    subset = torch.utils.data.Subset(Items(), [3])
    assert TorchDatasetProvider(subset).get_data(0)["name"] == "item 3"


@pytest.mark.parametrize(
    ("dataset", "arguments", "message"),
    [
        (Items, {}, "must be a map-style data set"),
        (iter([1]), {}, "must be a map-style data set"),
        ([], {}, "is empty: the length of list is 0"),
        ([(1, 2)], {}, r"must name the 2 element\(s\) of an item, got none"),
        ([(1, 2)], {"names": ["a"]}, r"must name the 2 element\(s\) of an item, got 1"),
        ([{"a": 1}], {"blueprint": {"a": 1}}, "`blueprint` must be a SampleDataGroup"),
    ],
)
def test_settings_that_are_refused(dataset: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        TorchDatasetProvider(dataset, **arguments)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"a": None}, "a: is None, which does not show a format. Deliver an empty array"),
        ({"a": {"b": object()}}, "a.b: object .* cannot be a field"),
        ({"a": {}}, "a: is empty"),
        ({"a": torch.zeros(2, dtype=torch.bfloat16)}, "a: Tensor .* cannot be a field"),
        ({"a": [[1], [1, 2]]}, "a: list .* cannot be a field"),
    ],
)
def test_first_items_that_are_refused(first: Any, message: str) -> None:
    with pytest.raises(FieldValueError, match=message):
        TorchDatasetProvider([first])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"c": [{"x": 1}]}, r"c: must have 2 elements, as the format has, got 1"),
        ({"c": [{"x": 1}, {"y": 1}]}, r"The item has no c\[1\].x; there it has 'y'"),
        ({"d": 1}, "The item has no c; there it has 'd'"),
        ({"c": 3}, "c: must be a dict or a list of 2, got 3"),
        ({"c": [{"x": 1}, {"x": "text"}]}, r"c\[1\].x: cannot store 'text'"),
        ({"c": [{"x": 1}, {"x": 2.5}]}, r"c\[1\].x: a field of type int64 holds whole numbers, got 2.5"),
        ({"c": [{"x": 1}, {"x": None}]}, r"c\[1\].x: is None. Deliver an empty array"),
        ({"c": [{"x": 1}, {"x": np.ones(3)}]}, r"c\[1\].x: must have 0 dimension\(s\), got shape \(3,\)"),
        ({"c": [{"x": 1}, {"x": {"y": 1}}]}, r"c\[1\].x: cannot store \{'y': 1\} of type dict"),
        ({"c": [{"x": 1}, {"x": 2, "y": 3}]}, r"The item has c\[1\].y as well. Give a `blueprint`"),
        ({"c": [{"x": 1}, {"x": 2}], "d": 1}, "The item has d as well"),
        (None, "`names` must name the 1 element.* are no dicts, but NoneType"),
        ((1, 2), "`names` must name the 2 element.* are no dicts, but tuple"),
    ],
)
def test_items_of_another_form_are_named(second: Any, message: str) -> None:
    provider = TorchDatasetProvider([{"c": [{"x": 1}, {"x": 2}]}, second])
    with pytest.raises(FieldValueError, match=f"^item 1 of list is not as item 0. .*{message}"):
        provider.get_data(1)
    with (
        DataLoader(provider, batch_size=2, num_workers=0) as loader,
        pytest.raises(SourceError, match="Loading sample 1 failed"),
    ):
        next(iter(loader))


@dataclasses.dataclass
class Box:
    corners: np.ndarray
    label: str


@attrs.frozen
class Scene:
    boxes: tuple[Box, Box]
    ego: Pose


def scene(number: int) -> Scene:
    boxes = tuple(Box(np.full((number, 4), number, np.float32), f"{number}/{place}") for place in range(2))
    return Scene(boxes, Pose(torch.ones(3, requires_grad=True) * number, 0.5))


def test_dataclasses_and_objects_of_attrs_are_groups() -> None:
    with DataLoader(TorchDatasetProvider([scene(2), scene(2)]), 2, num_workers=0, output_type="numpy") as loader:
        (batch,) = loader
    assert batch["boxes"][1]["label"] == ["2/1", "2/1"]
    assert batch["boxes"][0]["corners"].shape == (2, 2, 4)
    assert batch["ego"]["position"].tolist() == [[2, 2, 2]] * 2
    with pytest.raises(
        FieldValueError, match=r"item 1 of list is not as item 0. The item has no boxes\[0\].corners"
    ):
        TorchDatasetProvider([scene(1), {"boxes": [{}, {}], "ego": Pose([1.0], 2)}]).get_data(1)


def test_with_a_blueprint_what_it_does_not_name_may_come_and_go() -> None:
    blueprint = SampleDataGroup()
    blueprint.add_data_field("a", DT.FLOAT)
    provider = TorchDatasetProvider([{"a": 1, "b": None}, {"a": np.ones((2, 2))}, {"b": 3}], blueprint=blueprint)
    assert provider.get_data(0)["a"].dtype == np.float32
    assert provider.get_data(1)["a"].shape == (2, 2)
    with pytest.raises(
        FieldValueError, match=r"item 2 of list does not fit the blueprint. The item has no a; there"
    ):
        provider.get_data(2)


def test_a_batch_that_is_fetched_at_once_names_the_item() -> None:
    class Changing(Items):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
            return [{**item(index), **({"more": 1} if index == 3 else {})} for index in indices]

    provider = TorchDatasetProvider(Changing())
    with pytest.raises(FieldValueError, match=r"item 3 of Changing is not as item 0. The item has more as well"):
        [*provider.load_batch([2, 3], [0, 1])]


@pytest.mark.parametrize(
    ("dataset", "settings", "message"),
    [
        ([item(0)] * 5, {}, r"num_samples: 4 in the state, 5 here\n  - data_set_size: 4 in the state, 5 here"),
        (Items(), {"seed": 1}, "seed: 0 in the state, 1 here"),
        ([{"name": "a"}] * 4, {}, "fields of the samples .*: fingerprint"),
    ],
)
def test_a_state_of_another_data_set_or_plan_is_refused(
    dataset: Any, settings: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {"batch_size": 2, "shuffle": True, "num_workers": 0, "output_type": "numpy"}
    blueprint = SampleDataGroup()
    blueprint.add_data_field("name", DT.STRING)
    blueprint.add_data_field("is_key", DT.BOOL, ndim=0)
    with DataLoader(TorchDatasetProvider(Items(), blueprint=blueprint), **arguments) as loader:
        next(iter(loader))
        state = loader.state_dict()
    names_only = "is_key" not in dataset[0]
    provider = TorchDatasetProvider(dataset, blueprint=None if names_only else blueprint)
    with DataLoader(provider, **arguments, **settings) as loader, pytest.raises(StateError, match=message):
        loader.load_state_dict(state)
