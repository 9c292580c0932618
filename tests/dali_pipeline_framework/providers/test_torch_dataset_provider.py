"""Data sets of PyTorch as providers."""

from __future__ import annotations

import dataclasses
import os
import random
from collections import namedtuple
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from nvidia.dali import types
from PIL import Image

from accvlab.dali_pipeline_framework import (
    ConcatDataProvider,
    DataLoader,
    DataProvider,
    SampleDataGroup,
    SamplerInputIterable,
    SequentialSampler,
    ShuffledSampler,
    TorchDatasetProvider,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.errors import DuplicateFieldError, FieldValueError, SettingError
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
    check_provider(provider, num_workers=0)
    format = provider.sample_data_structure.format
    leaves = [(leaf.dtype.name, leaf.ndim) for leaf in format.flat_leaves]
    assert dict(zip(format.flat_names, leaves, strict=True)) == {
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
    assert (sample["name"], bytes(sample["file"])) == ("item 2", b"\x01" * 3)
    assert sample["picture"].tolist() == [[2] * 5] * 2
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
        ([(1, 2)], {}, r"must name the 2 element\(s\) of an item, got none.* names=\['image', 'label'\]\.$"),
        ([(1, 2, 3, 4)], {}, r"names=\['image', 'label', 'boxes', \.\.\.\]\.$"),
        ([(1, 2)], {"names": ["a"]}, r"must name the 2 element\(s\) of an item, got 1"),
        ([(1, 2)], {"names": 1.5}, "`names` must be a name"),
        ([(1, 2)], {"names": ["a", "a"]}, "`names` must be different"),
        ([{"a": 1}], {"blueprint": {"a": 1}}, "`blueprint` must be of the class SampleDataGroup"),
    ],
)
def test_settings_that_are_refused(dataset: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((SettingError, DuplicateFieldError), match=message):
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
        ({"c": [{"x": 1}, {"y": 1}]}, r"The item has no c\[1\].x; at that place it has 'y'"),
        ({"d": 1}, "The item has no c; at that place it has 'd'"),
        ({"c": 3}, "c: must be a dict or a list of 2, got 3"),
        ({"c": [{"x": 1}, {"x": "text"}]}, r"c\[1\].x: cannot store 'text'.* Its type is that in item 0; a `b"),
        ({"c": [{"x": 1}, {"x": None}]}, r"c\[1\].x: is None. Deliver an empty array"),
        ({"c": [{"x": 1}, {"x": np.ones(3)}]}, r"c\[1\].x: must have 0 dimension\(s\), got shape \(3,\)"),
        ({"c": [{"x": 1}, {"x": 2, "y": 3}]}, r"The item has c\[1\].y as well. Give a `blueprint`"),
        ({"c": [{"x": 1}, {"x": 2}], "d": 1}, "The item has d as well"),
        ((1, 2), "`names` must name the 2 element.* are no dicts, but tuple"),
    ],
)
def test_items_of_another_form_are_named(second: Any, message: str) -> None:
    provider = TorchDatasetProvider([{"c": [{"x": 1}, {"x": 2}]}, second])
    with pytest.raises(FieldValueError, match=f"^item 1 of list differs in structure from item 0. .*{message}"):
        provider.get_data(1)


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
        FieldValueError,
        match=r"item 1 of list differs in structure from item 0. The item has no boxes\[0\].corners",
    ):
        TorchDatasetProvider([scene(1), {"boxes": [{}, {}], "ego": Pose([1.0], 2)}]).get_data(1)


def test_with_a_blueprint_what_it_does_not_name_may_come_and_go() -> None:
    blueprint = SampleDataGroup()
    blueprint.add_data_field("a", DT.FLOAT)
    provider = TorchDatasetProvider([{"a": 1, "b": None}, {"a": np.ones((2, 2))}, {"b": 3}], blueprint=blueprint)
    assert provider.get_data(0)["a"].dtype == np.float32
    assert provider.get_data(1)["a"].shape == (2, 2)
    with pytest.raises(FieldValueError, match=r"item 2 of list does not fit the blueprint. The item has no a; at"):
        provider.get_data(2)
    provider = TorchDatasetProvider(Fetched(), blueprint=blueprint)
    with pytest.raises(FieldValueError, match=r"item 3 of Fetched does not fit the blueprint"):
        [*provider.load_batch([3, 2], [0, 1])]


# --- random numbers of a data set -----------------------------------------------------------------------------


class Drawing:
    """Items with numbers of the global generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        drawn = [random.random(), np.random.random(), np.random.randn(), torch.rand(()).item()]
        return {"index": index, "drawn": drawn, "more": torch.randn(2), "process": os.getpid()}


class DrawingAtOnce(Drawing):
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


Drawn = dict[tuple[int, int, int], tuple[Any, ...]]


def drawn_by(
    dataset: Any, *, epochs: int = 2, skip: int = 0, state: Any = None, sampler: Any = None, **arguments: Any
) -> Drawn:
    """What is drawn for each sample, by epoch, index and how often the epoch had it before."""
    provider = dataset if isinstance(dataset, DataProvider) else TorchDatasetProvider(dataset)
    arguments = {"seed": 7, "num_workers": 0, "start_method": "fork", "output_type": "numpy", **arguments}
    order = {"sampler": sampler} if sampler is not None else {"shuffle": True}
    found: Drawn = {}
    with DataLoader(provider, **{"batch_size": 2, **order, **arguments}) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for epoch in range(loader.epoch, epochs):
            for batch in loader:
                for row, index in enumerate(batch["index"].tolist()):
                    visit = sum(key[:2] == (epoch, index) for key in found)
                    drawn = batch["drawn"][row].tolist(), batch["more"][row].tolist()
                    found[epoch, index, visit] = drawn
    return found


@pytest.fixture(scope="module")
def drawn_here() -> Drawn:
    """In this process."""
    found = drawn_by(Drawing())
    for number in range(4):
        assert len(found) == len({value[0][number] for value in found.values()}) == 20
    return found


@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Drawing(), {"num_workers": 3, "pipeline_arguments": {"prefetch_queue_depth": 4}}),
        pytest.param(
            Drawing(), {"num_workers": 2, "start_method": "forkserver", "batch_size": 5}, marks=pytest.mark.wide
        ),
        (Drawing(), {"batch_size": 1, "sampler": SequentialSampler(10)}),
        (torch.utils.data.Subset(Drawing(), range(10)), {"num_workers": 2}),
    ],
)
def test_what_a_data_set_draws_depends_on_seed_epoch_and_sample(
    drawn_here: Drawn, dataset: Any, arguments: dict[str, Any]
) -> None:
    random.seed(os.getpid())
    np.random.seed(3)
    assert drawn_by(dataset, **arguments) == drawn_here


def test_what_a_data_set_draws_differs_with_the_seed(drawn_here: Drawn) -> None:
    other = drawn_by(Drawing(), seed=8)
    assert other.keys() == drawn_here.keys()
    assert not {value[0][0] for value in other.values()} & {value[0][0] for value in drawn_here.values()}


def test_what_a_data_set_draws_after_a_resume_and_on_shards(drawn_here: Drawn) -> None:
    arguments: dict[str, Any] = {"seed": 7, "start_method": "fork", "output_type": "numpy"}
    provider = TorchDatasetProvider(Drawing())
    with DataLoader(provider, 2, shuffle=True, num_workers=0, **arguments) as loader:
        for _, _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
    rest = drawn_by(Drawing(), state=state, num_workers=2)
    assert len(rest) == 20 - 6
    assert rest.items() <= drawn_here.items()
    of_shards = [drawn_by(Drawing(), shard=(rank, 2), num_workers=rank, batch_size=1) for rank in range(2)]
    assert {**of_shards[0], **of_shards[1]} == drawn_here


def test_a_sample_that_an_epoch_has_again_draws_anew() -> None:
    sampler = WeightedSampler([1, 0, 0, 1] + [0] * 6, num_per_epoch=12, seed=1)
    found = drawn_by(Drawing(), sampler=sampler, epochs=1)
    assert len(found) == len({value[0][0] for value in found.values()}) == 12
    assert drawn_by(Drawing(), sampler=sampler, epochs=1, num_workers=2, batch_size=3) == found


def test_samples_of_joined_data_sets_draw_by_their_index_in_the_whole() -> None:
    twice = ConcatDataProvider([TorchDatasetProvider(Drawing()), TorchDatasetProvider(Drawing())])
    found = drawn_by(twice, num_workers=2, epochs=1)
    assert len(found) == len({value[0][0] for value in found.values()}) == 20
    assert found == drawn_by(twice, epochs=1, batch_size=5)


def test_items_that_are_fetched_at_once_draw_by_the_batch() -> None:
    found = drawn_by(DrawingAtOnce())
    assert len(found) == len({value[0][0] for value in found.values()}) == 20
    assert drawn_by(DrawingAtOnce(), num_workers=3) == found
    of_items = drawn_by(Drawing())
    assert all(found[key] != of_items[key] for key in found)


def test_what_an_iterable_draws_repeats() -> None:
    found = []
    for num_workers in (0, 1):
        source = SamplerInputIterable(TorchDatasetProvider(Drawing()), ShuffledSampler(10, total_batch_size=2))
        with DataLoader(source, num_workers=num_workers, start_method="fork", output_type="numpy") as loader:
            found.append([batch["drawn"].tolist() for _ in range(2) for batch in loader])
    assert found[0] == found[1]
    assert len({row[0] for batch in found[0] for row in batch}) == 20


def test_steps_one_by_one_see_what_the_loader_loads(drawn_here: Drawn) -> None:
    with DataLoader(TorchDatasetProvider(Drawing()), 2, shuffle=True, seed=7, num_workers=0) as loader:
        ((_, sample),) = loader.step_by_step(3, epoch=1)
    drawn = np.asarray(sample["drawn"]).tolist(), np.asarray(sample["more"]).tolist()
    assert drawn == drawn_here[1, int(sample["index"]), 0]


def generators() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, keys.tolist(), rest, torch.get_rng_state().tolist()


def test_generators_of_this_process_are_left_alone() -> None:
    np.random.randn()  # half of a pair
    before = generators()
    provider = TorchDatasetProvider(Drawing())
    assert generators() == before
    with DataLoader(provider, 2, num_workers=0) as loader:
        for _ in loader:
            assert generators() == before
    assert generators() == before
    random.seed(1)
    expected = random.random()
    random.seed(1)
    assert provider.get_data(0)["drawn"][0] == expected  # without a loader, nothing is seeded
