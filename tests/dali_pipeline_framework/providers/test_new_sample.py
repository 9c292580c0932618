"""Empty samples of a provider, of a blueprint that is read once."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import attrs
import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.providers import ConcatDataProvider, DataProvider, Windows
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


class Rig(DataProvider):
    """Counts how often its blueprint is read."""

    def __init__(self, num_cameras: int = 2, label: int = 1) -> None:
        self.num_cameras, self.label = num_cameras, label
        self.num_reads = 0

    def get_number_of_samples(self) -> int:
        return 4

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        self.num_reads += 1
        camera = group_of(label=(DT.INT32, {"mapping": {"car": self.label}}))
        return group_of(cameras=(camera, self.num_cameras), index=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        for camera in sample["cameras"].values():
            camera["label"] = ["car"]
        sample["index"] = sample_index
        return sample


class OldIdiom(Rig):
    """As code written for accvlab."""

    def new_sample(self) -> SampleDataGroup:
        return self.sample_data_structure


def test_blueprint_is_read_once_and_samples_are_apart() -> None:
    rig = Rig()
    samples = [rig.get_data(index) for index in range(3)]
    assert rig.num_reads == 1
    assert [int(sample["index"]) for sample in samples] == [0, 1, 2]
    assert samples[0].format is samples[2].format
    assert samples[0].format == rig.sample_data_structure.format
    assert rig.new_sample().get_data() == (None, None, None)
    samples[0].remove_field("cameras")
    assert rig.new_sample().field_names_flat == ("cameras.[0].label", "cameras.[1].label", "index")


def test_switches_are_those_of_the_blueprint_and_its_values_are_left_out() -> None:
    class Own(Rig):
        blueprint = Rig().get_data(3)
        sample_data_structure = property(lambda self: self.blueprint)  # the same object each time

    Own.blueprint.set_apply_mapping(False)
    own = Own()
    sample = own.new_sample()
    assert sample.get_data() == (None, None, None)
    sample["cameras"][0]["label"] = [7]
    Own.blueprint.remove_field("index")  # it was not handed out, nor is it kept
    assert sample["cameras"][0]["label"].tolist() == [7]
    assert own.new_sample().get_data() == (None, None, None)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda rig: pickle.loads(pickle.dumps(rig))])
def test_a_copy_reads_its_own_blueprint(duplicate: Any) -> None:
    rig = Rig()
    before = len(pickle.dumps(rig))
    rig.new_sample()
    assert len(pickle.dumps(rig)) - before < 100  # without the blueprint
    other = duplicate(rig)
    other.num_cameras = 3
    assert [len(each.new_sample()["cameras"]) for each in (rig, other, rig, other)] == [2, 3, 2, 3]
    assert (rig.num_reads, other.num_reads) == (1, 2)


def test_frozen_providers_have_it() -> None:
    @attrs.frozen
    class Frozen(DataProvider):
        num_reads: list[int] = attrs.field(factory=list)

        def get_number_of_samples(self) -> int:
            return 1

        @property
        def sample_data_structure(self) -> SampleDataGroup:
            self.num_reads.append(1)
            return Rig().sample_data_structure

        def get_data(self, sample_index: int) -> SampleDataGroup:
            return self.new_sample()

    frozen = Frozen()
    assert frozen.get_data(0).type_matches(frozen.get_data(0))
    assert frozen.num_reads == [1]


def test_wrong_blueprint_is_named() -> None:
    class NoBlueprint(Rig):
        sample_data_structure = property(lambda self: {})  # type: ignore[assignment]

    class Undecorated(Rig):
        def sample_data_structure(self) -> SampleDataGroup:  # type: ignore[override]
            return SampleDataGroup()

    for rig, words in ((NoBlueprint(), "got dict."), (Undecorated(), "got method. Put `@property` above it.")):
        rule = f"{type(rig).__name__}.sample_data_structure must be a SampleDataGroup, {words}"
        assert_refused(functools.partial(rig.get_data, 0), rule, FieldValueError)


RULE = (
    "Rig.sample_data_structure must not change after the first `new_sample()`, which has read it for all "
    "samples. Change the provider before, or a copy (`copy.copy`) of it. The changes:\n"
)


@pytest.mark.parametrize("attribute", ["num_cameras", "label"])
def test_a_blueprint_that_changes_is_refused_once_samples_were_made(attribute: str) -> None:
    rig = Rig()
    setattr(rig, attribute, 5)  # nothing was read yet
    DataLoader(rig, batch_size=2, num_workers=0).close()
    rig.sequence_lengths = [4]
    clips = Windows(rig, {"label": [0, 1]}, unit="frames")
    pair = ConcatDataProvider([Rig(**{attribute: 5}), rig])
    rig.get_data(0)
    setattr(rig, attribute, 3)
    for use, prefix in [
        (lambda: DataLoader(rig, batch_size=2, num_workers=0), ""),
        (lambda: Windows(rig, {"label": [0, 1]}, unit="frames"), ""),
        (lambda: clips.get_data(0), ""),
        (lambda: ConcatDataProvider([Rig(), rig]), "`providers[1]`: "),
        (lambda: pair.sample_data_structure, ""),
    ]:
        assert str(assert_refused(use, RULE, FieldValueError)).startswith(prefix + RULE)
    for other in (copy.copy(rig), OldIdiom()):  # there it is no error
        other.get_data(0)
        changed = copy.copy(other)
        setattr(changed, attribute, 4)
        with DataLoader(changed, batch_size=2, num_workers=0, output_type="numpy") as loader:
            batch = next(iter(loader))
        assert len(batch["cameras"]) == changed.num_cameras
        assert batch["cameras"][1]["label"].tolist() == [[changed.label]] * 2
