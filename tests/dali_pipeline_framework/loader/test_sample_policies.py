"""Samples that fail: skipped or replaced, the same for any workers, shards and place of the steps."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import re
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.laws import each_value, some
from support.loaders import answers
from support.providers import BadSamples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    FaultPolicy,
    ImageDecoder,
    PhotoMetricDistorter,
    SampleDataGroup,
    SequenceSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.errors import (
    DeviceError,
    GraphError,
    MissingPackageError,
    QuarantineError,
    SourceError,
    TooManyFailedError,
)
from accvlab.dali_pipeline_framework.faults import read_quarantine

NUM_SAMPLES = 16
POLICIES = ("skip", "replace")


def encoded(value: int, kind: str = ".png") -> np.ndarray:
    return cv2.imencode(kind, np.full((4, 6, 3), value, np.uint8))[1].ravel()


class Provider(DataProvider):
    """Samples whose values tell their index; some cannot be loaded, some hold a broken image, some are odd."""

    def __init__(self, bad: Iterable[int] = (), broken: Iterable[int] = (), odd: Iterable[int] = ()) -> None:
        self.bad, self.broken, self.odd = frozenset(bad), frozenset(broken), frozenset(odd)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, boxes=DT.FLOAT, cameras=(group_of(image=DT.UINT8), 2))

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    def describe_sample(self, sample_index: int) -> str:
        return f"drive_{sample_index}.jpg"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index in self.bad:
            raise ValueError(f"calibration of {sample_index} is missing")
        sample = self.sample_data_structure
        sample["index"] = np.array(sample_index)
        sample["boxes"] = np.full((4,) if sample_index in self.odd else (2, 4), 1 + sample_index, np.float32)
        for number, camera in enumerate(sample["cameras"].values()):
            image = encoded(8 * sample_index + number + 1)
            camera["image"] = image[:50] if number == 1 and sample_index in self.broken else image
        return sample


class LoadingTogether(Provider):
    """Loads the samples of a batch together: a bad one spoils all of them, and then it is asked for one by one."""

    loads_batches = True

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        return iter([self.get_data(index) for index in sample_indices])


def make(provider: DataProvider, faults: Any = None, batch_size: int | None = 4, **arguments: Any) -> DataLoader:
    settings: dict[str, Any] = {"run": "graph", "num_workers": 0, "start_method": "fork", "output_type": "numpy"}
    settings |= {"steps": [ImageDecoder("image", use_device_mixed=False)], "context_name": "place", **arguments}
    if "sampler" not in settings:
        settings = {"shuffle": True, "seed": 5, "last_batch": "partial", **settings}
    return DataLoader(provider, batch_size, faults=faults, **settings)


def delivered(loader: DataLoader, num_epochs: int = 2) -> list[list[int]]:
    """The indices of each batch, after a check that all fields are of that sample."""
    batches = []
    for _ in range(num_epochs):
        for batch in loader:
            indices = batch["index"]
            assert batch["place"]["sample_index"].tolist() == indices.tolist()
            for number in range(2):
                values = 8 * indices + number + 1
                assert (batch["cameras"][number]["image"] == values[:, None, None, None]).all()
            assert (batch["boxes"] == (1 + indices)[:, None, None]).all()
            batches.append(indices.tolist())
    return batches


@functools.cache
def clean() -> list[list[int]]:
    with make(Provider()) as loader:
        return delivered(loader)


def without(batches: list[list[int]], gone: Container[int] = (3, 5, 7)) -> list[list[int]]:
    return [[index for index in batch if index not in gone] for batch in batches]


def changed(expected: list[list[int]], batches: list[list[int]]) -> list[tuple[int, int]]:
    both = zip(itertools.chain(*expected), itertools.chain(*batches), strict=True)
    return [(index, other) for index, other in both if index != other]


# Sample and substitute, in two epochs: 3 and 7 cannot be loaded, and the image of 5 is broken.
# A change of these numbers is a change of order, and belongs into the changelog.
SUBSTITUTES = [(7, 2), (5, 2), (3, 4), (5, 13), (7, 11), (3, 15)]


# A fault in the graph costs a second; how the policies differ has nothing to do with where it is found.
@some(("run", "num_workers", "policy"), itertools.product(["graph", "workers"], [0, 2], POLICIES), {0, 3, 4, 7})
def test_all_other_samples_stay_where_they_are(run: str, num_workers: int, policy: str) -> None:
    with make(Provider([3, 7], [5]), policy, run=run, num_workers=num_workers) as loader:
        batches = delivered(loader)
        failed = loader.failed_samples
    expected = clean()
    if policy == "skip":
        assert batches == without(expected)
    else:
        assert changed(expected, batches) == SUBSTITUTES
    assert sorted(sample.sample_index for sample in failed) == [3, 5, 7]
    assert sorted(failed, key=lambda sample: (sample.epoch, sample.batch)) == list(failed)
    for sample in failed:
        in_its_place = "skipped" if policy == "skip" else f"sample {sample.substitute} in its place"
        assert sample.outcome == in_its_place
        assert expected[sample.batch][sample.slot] == sample.sample_index
    by_index = {sample.sample_index: sample for sample in failed}
    assert by_index[3].reason == "ValueError: calibration of 3 is missing"
    assert by_index[3].file == "drive_3.jpg"
    assert by_index[5].stage == ("graph" if run == "graph" else "steps")


@pytest.mark.parametrize(("kind", "run"), [(Provider, "graph"), (LoadingTogether, "workers")])
def test_shards_deliver_the_same_as_one(run: str, kind: Any) -> None:
    bad, broken = [3, 7, 8, 9], [5, 6]
    with make(Provider(bad, broken), "replace", run="workers") as whole:
        expected = delivered(whole)
    batches: list[list[int]] = [[] for _ in expected]
    for shard in range(2):
        with make(kind(bad, broken), "replace", batch_size=2, shard=(shard, 2), run=run) as loader:
            for batch, part in zip(batches, delivered(loader), strict=True):
                batch += part
    assert batches == expected


def test_a_substitute_that_fails_is_replaced_as_well() -> None:
    bad, broken, good = range(0, 16, 3), range(1, 16, 3), range(2, 16, 3)
    found = []
    for where in ({"run": "graph"}, {"run": "workers", "num_workers": 2}):
        with make(Provider(bad, broken), "replace", **where) as loader:
            found.append(delivered(loader, 1))
            failed = {sample.sample_index: sample for sample in loader.failed_samples}
        assert failed.keys() == {*bad, *broken}
        replaced = [sample for sample in failed.values() if sample.outcome.endswith(" in its place")]
        assert {sample.substitute for sample in replaced} <= {*good}
        others = [sample.outcome for sample in failed.values() if sample not in replaced]
        assert others
        assert all(outcome.startswith("was to take the place of sample ") for outcome in others)
    assert {index for batch in found[0] for index in batch} == {*good}
    assert found[0] == found[1]


def test_where_no_sample_can_take_the_place_it_is_an_error() -> None:
    with make(Provider(range(NUM_SAMPLES)), "replace", shuffle=False) as loader:
        words = "No other sample could take the place of sample 0...calibration of"
        assert_refused(lambda: next(iter(loader)), words, SourceError)
        outcomes = {each.sample_index: each.outcome for each in loader.failed_samples}
    assert outcomes == {0: "raised", **dict.fromkeys([*outcomes][1:], "was to take the place of sample 0")}


def test_a_batch_of_failed_samples_only_is_filled_with_one() -> None:
    """No rank may have fewer batches than the others."""
    gone = clean()[1]
    found = []
    for provider, run in (
        (Provider(gone), "graph"),
        (Provider((), gone), "workers"),
        (Provider((), gone), "graph"),
    ):
        with make(provider, "skip", run=run) as loader:
            found.append(delivered(loader, 1))
    assert [len(batch) for batch in found[0]] == [4, 1, 4, 4]
    assert found[0][1][0] not in gone
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize(
    ("run", "positions"),
    [("workers", (1, 3, 4, 6)), ("graph", (3,)), pytest.param("graph", (1, 4, 6), marks=pytest.mark.wide)],
)
def test_the_state_goes_on_behind_a_fault(run: str, positions: Sequence[int]) -> None:
    provider = Provider([3, 7], [5])
    with make(provider, "replace", run=run) as loader:
        expected = delivered(loader)
    for num_delivered in positions:
        with make(provider, "replace", run=run) as loader:
            for _ in itertools.islice(itertools.chain(loader, loader), num_delivered):
                pass
            state = loader.state_dict()
        assert "failed" not in state  # nobody counts them
        with make(provider, "replace", run=run) as loader:
            loader.load_state_dict(state)
            rest = [batch["index"].tolist() for _ in range(loader.epoch, 2) for batch in loader]
        assert rest == expected[num_delivered:]


def test_draws_are_those_of_the_place() -> None:
    """All other samples are augmented as without faults, and the substitute as the sample that it replaces."""
    steps = [
        ImageDecoder("image", use_device_mixed=False),
        PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], enforce_process_on_gpu=False),
    ]

    def images(faults: Any, run: str, bad: Sequence[int], broken: Sequence[int]) -> list[Any]:
        with make(Provider(bad, broken), faults, steps=steps, run=run) as loader:
            return [(batch["index"], np.array(batch["cameras"][1]["image"])) for batch in loader]

    for run in ("graph", "workers"):
        expected = images(None, run, (), ())
        for (index, image), (other, with_faults) in zip(expected, images("replace", run, [3], [5]), strict=True):
            same = ~np.isin(index, (3, 5))
            np.testing.assert_array_equal(other[same], index[same])
            np.testing.assert_array_equal(with_faults[same], image[same])


def test_a_sample_of_another_rank_is_treated_like_that() -> None:
    with make(Provider(odd=[6]), "replace") as loader:
        batches = delivered(loader)
        (failed,) = loader.failed_samples
    assert (failed.sample_index, failed.stage) == (6, "checks")
    assert "boxes: expected 2 dimension(s)" in failed.reason
    assert [index for index, _ in changed(clean(), batches)] == [6, 6]


class FailingOnce(Provider):
    """Notes what is loaded. Some samples fail the first time only."""

    loaded: list[int]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        self.loaded.append(sample_index)
        if sample_index in self.bad and self.loaded.count(sample_index) == 1:
            raise OSError("the network is gone")
        return Provider(odd=self.odd).get_data(sample_index)


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_what_was_loaded_is_kept_and_what_has_failed_is_not_tried_again(run: str) -> None:
    provider = FailingOnce([3, 7], odd=[6])
    provider.loaded = []
    with make(provider, "skip", run=run) as loader:
        batches = delivered(loader, 1)
        assert {sample.sample_index for sample in loader.failed_samples} == {3, 6, 7}
    assert batches == without(clean()[:4], (3, 6, 7))
    assert sorted(provider.loaded[:NUM_SAMPLES]) == [*range(NUM_SAMPLES)]


@pytest.mark.parametrize(
    "sampler", [SequenceSampler(2, [8, 8], 0), StreamingSequenceSampler([8, 8], 2, shuffle=False)]
)
def test_a_frame_of_a_sequence_is_replaced_by_one_beside_it(sampler: Any) -> None:
    instead = {}
    with make(Provider([3, 8, 12, 11]), "replace", None, sampler=sampler) as loader:
        for batch in itertools.islice(loader, 8):
            place = batch["place"]
            planned = (8 * place["sequence"] + place["frame"]).tolist()
            instead |= zip(planned, batch["index"].tolist(), strict=True)
    assert {index: other for index, other in instead.items() if index != other} == {3: 2, 8: 9, 12: 13, 11: 10}


def test_substitutes_of_a_weighted_order_are_those_of_its_weights() -> None:
    sampler = WeightedSampler([0.0, 1.0, 1.0, 2.0] * 4)
    with make(Provider([1, 5]), "replace", sampler=sampler) as loader:
        indices = [index for batch in delivered(loader, 3) for index in batch]
    assert not {index % 4 for index in indices} & {0}
    assert not {1, 5} & {*indices}


# --- budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_a_budget_ends_the_run_with_a_summary(run: str) -> None:
    provider = Provider([1, 2], [3, 4])
    with make(provider, FaultPolicy(samples="replace", max_failed=4), run=run) as loader:
        delivered(loader)
    with make(provider, FaultPolicy(samples="replace", max_failed=3), run=run) as loader:
        words = "4 samples have failed (2 x ..., 2 x ...than allowed: max_failed=3"
        assert_refused(lambda: delivered(loader), words, TooManyFailedError)
        assert len(loader.failed_samples) == 4
        with pytest.raises(TooManyFailedError):
            next(iter(loader))


def failing(provider: BadSamples, batch_size: int = 4, shard: Any = None, **policy: Any) -> DataLoader:
    faults = FaultPolicy(samples="skip", **policy)
    return make(provider, faults, batch_size, shard=shard, shuffle=False, steps=[])


def test_a_budget_counts_on_after_a_resume() -> None:
    provider = BadSamples(16, 1, 6, 9)
    with failing(provider, max_failed=2) as loader:
        assert "failed" not in loader.state_dict()
        batches = iter(loader)
        assert [next(batches)["index"].tolist() for _ in range(2)] == [[0, 2, 3], [4, 5, 7]]
        state = loader.state_dict()
    assert state["failed"] == [1, 6]
    text = json.dumps(state)
    with failing(provider, max_failed=2) as loader:
        loader.load_state_dict(json.loads(text))
        assert loader.state_dict() == state
        with pytest.raises(TooManyFailedError) as caught:
            next(iter(loader))
        assert [each.sample_index for each in loader.failed_samples] == [9]
        assert str(caught.value).splitlines()[-2:] == [
            "2 had failed before the state was saved with which this run goes on.",
            "More failed than allowed: max_failed=2.",
        ]
    with failing(provider, max_failed=3) as loader:
        loader.load_state_dict(text)
        assert [batch["index"].tolist() for batch in loader] == [[8, 10, 11], [12, 13, 14, 15]]
        assert len([*loader]) == 4  # 1 and 6 fail again, and count once
        assert loader.state_dict()["failed"] == [1, 6, 9]
    with failing(BadSamples(16), max_failed=1) as loader:
        loader.load_state_dict(text)
        with pytest.raises(TooManyFailedError, match=r"^No sample has failed\.\n2 had failed before"):
            next(iter(loader))


def test_a_share_refers_to_all_samples_up_to_the_state() -> None:
    """2 of 2900 samples have failed, which are more than 0.09 % of the 1000 that are counted at least."""
    provider = BadSamples(3000, 2500, 2850)
    with failing(provider, 100, max_failed_share=0.0009) as loader:
        states = [loader.state_dict() for _ in loader]
    assert [state.get("failed") for state in (states[24], states[25], states[28])] == [None, [2500], [2500, 2850]]
    with failing(provider, 100, max_failed_share=0.0009) as loader:
        loader.load_state_dict(states[27])
        assert sum(len(batch["index"]) for batch in loader) == 199
    with failing(BadSamples(3000, 0, 1), 100, max_failed_share=0.0009) as loader:  # of the second epoch
        loader.load_state_dict(states[27])
        for _ in loader:
            pass
        words = "\n1 had failed before...max_failed_share=0.0009 of 3098 "
        assert_refused(lambda: next(iter(loader)), words, TooManyFailedError)


def test_the_state_differs_between_ranks_only_in_what_has_failed_there() -> None:
    states = []
    for rank in range(2):
        with failing(BadSamples(16, 1, 3, 6), 2, (rank, 2), max_failed=9) as loader:
            for _ in range(2):
                batches = iter(loader)
                next(batches)
                next(batches)
            states.append(loader.state_dict())
    assert sorted(index for state in states for index in state.pop("failed")) == [1, 3, 6]
    for state in states:
        del state["checksum"]
    assert states[0] == states[1]


# --- raised -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_after_an_error_the_loop_goes_on_behind_the_batch(
    run: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    expected, path = clean(), tmp_path / "failed.jsonl"
    with make(Provider([7], [5]), FaultPolicy(quarantine=path), run=run) as loader:
        found = [answer for _ in range(2) for answer in answers(loader)]
        assert {sample.sample_index for sample in loader.failed_samples} == {5, 7}
    assert not caplog.records  # the errors say it all
    for answer, batch in zip(found, expected, strict=True):
        if {5, 7} & {*batch}:
            assert isinstance(answer, SourceError | GraphError)
        else:
            assert answer["index"].tolist() == batch
    entries = {entry.sample_index: entry.step for entry in read_quarantine(str(path))}
    assert entries == {7: "loading", 5: "graph" if run == "graph" else "steps"}


# --- quarantine, exclusion --------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_what_fails_is_listed_and_left_out_in_a_later_run(run: str, tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    provider = Provider([3, 7], [5])
    with make(provider, FaultPolicy(samples="replace", quarantine=path), run=run) as loader:
        expected = delivered(loader)
        failed = loader.failed_samples
    entries = read_quarantine(str(path))
    assert [(entry.sample_index, entry.reason, entry.step) for entry in entries] == [
        (sample.sample_index, sample.reason, sample.stage) for sample in failed
    ]
    # The good samples of that list are not tried either; nothing fails, so nothing is found out again.
    later = FaultPolicy(samples="replace", exclude=path, max_failed=0)
    with make(Provider(), later, run=run) as loader:
        assert delivered(loader) == expected
        assert loader.failed_samples == ()
    with (
        make(Provider([11]), later, run=run) as loader,
        pytest.raises(TooManyFailedError, match="calibration of 11"),
    ):
        delivered(loader)
    with make(Provider(), FaultPolicy(samples="skip", exclude=path), run=run) as loader:
        assert delivered(loader) == without(clean())


def test_a_list_of_other_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "failed.jsonl").write_text('{"sample": 16}')
    with pytest.raises(QuarantineError, match=r"lists sample 16, but the data set has the samples 0 \.\. 15"):
        make(Provider(), FaultPolicy(samples="skip", exclude=tmp_path / "failed.jsonl"))


def test_the_message_tells_all_that_is_known() -> None:
    sampler = StreamingSequenceSampler([8, 8], shuffle=False)
    with make(Provider([3]), batch_size=2, sampler=sampler, num_workers=1) as loader:
        loop = iter(loader)
        for _ in range(3):
            next(loop)
        with pytest.raises(ValueError, match="calibration of 3") as caught:
            next(loop)
    error: Any = caught.value
    lines = str(error).splitlines()
    assert lines[:4] == [
        "Loading sample 3 failed with ValueError: calibration of 3 is missing",
        "  where: epoch 0, batch 3, slot 0",
        "  sequence: 0, frame: 3",
        "  file: drive_3.jpg",
    ]
    assert re.fullmatch(r"  worker: 0 \(process \d+\)", lines[4])
    trace = "\n".join(lines[5:])
    assert 'raise ValueError(f"calibration of {sample_index} is missing")' in trace
    assert "accvlab" not in trace.replace(str(Path(__file__).parents[3]), "")
    assert (error.sample_index, error.worker) == (3, 0)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames == ["test_the_message_tells_all_that_is_known", "__next__"]
    assert len("".join(traceback.format_exception(error)).splitlines()) <= 22


class FailingFromFive(Provider):
    """From sample 5 on, something fails that is not of the samples: a package, or the memory of the GPU."""

    def __init__(self, fail: Callable[[int], None]) -> None:
        super().__init__()
        self.fail = fail

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index >= 5:
            self.fail(sample_index)
        return super().get_data(sample_index)


def import_what_is_missing(sample_index: int) -> None:
    importlib.import_module("no_such_package.part")


def fill_the_gpu(sample_index: int) -> None:
    full = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    raise ValueError(f"no features of {sample_index}") from full


MISSING = "A package is missing, ...: pip install no_such_package."
FEATURES = "sample 5 failed with ValueError: no features of 5\n..."


@pytest.mark.parametrize(
    ("fail", "error", "words"),
    [
        (import_what_is_missing, MissingPackageError, f"ModuleNotFoundError...\n  {MISSING}"),
        (fill_the_gpu, DeviceError, f"{FEATURES}\n  The GPU has failed, or its memory"),
    ],
)
@each_value(policy=[*POLICIES, "raise"], num_workers=[0, 1])
def test_what_fails_for_all_samples_is_no_fault_of_one(
    fail: Any, error: Any, words: str, policy: Any, num_workers: int, tmp_path: Path
) -> None:
    faults = FaultPolicy(samples=policy, quarantine=tmp_path / "failed.jsonl")
    with make(FailingFromFive(fail), faults, shuffle=False, num_workers=num_workers) as loader:
        loop = iter(loader)
        assert next(loop)["index"].tolist() == [0, 1, 2, 3]
        for _ in range(2 if error is DeviceError else 1):  # the batch is tried again
            caught: Any = assert_refused(lambda: next(loop), words, error)
        assert isinstance(caught, SourceError)
        assert caught.original_type == ("ValueError" if FEATURES in words else "ModuleNotFoundError")
        assert loader.failed_samples == ()
    assert (tmp_path / "failed.jsonl").read_bytes() == b""
