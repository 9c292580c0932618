"""The state of a loader as a value: its size, how its description is shortened, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import StateError
from accvlab.dali_pipeline_framework.inputs import Clips, ClipSampler, MixedSampler, ShuffledSampler
from accvlab.dali_pipeline_framework.loader.state import (
    MOST_SEGMENTS,
    LoaderState,
    parse_state,
    require_few_segments,
    require_same_run,
    shortened,
)
from accvlab.dali_pipeline_framework.sampling.random_access_sampler import Description, EpochSegment

BUDGET = 450


def state_of(plan: Description, **changes: Any) -> LoaderState:
    values: dict[str, Any] = {
        "epoch": 0,
        "batch": 3,
        "segments": (),
        "num_shards": 1,
        "total_batch_size": 4,
        "seed": 7,
        "blueprint": "0" * 12,
        **changes,
    }
    return LoaderState(plan=shortened(plan), **values)


def differences(saved: Description, own: Description) -> tuple[str, ...]:
    """What differs, after the saved one was written as text and read."""
    read = parse_state(json.dumps(state_of(saved).to_dict()))
    try:
        require_same_run(read, state_of(own))
    except StateError as error:
        return error.differences
    return ()


def size(plan: Description) -> int:
    return len(json.dumps(plan))


def clip_mixture(changed: int | None = None, num_samplers: int = 8) -> Description:
    samplers = [
        ClipSampler(Clips([10**4] * 10, 40, step=7, jitter=3), seed=2**60 + number + 100 * (number == changed))
        for number in range(num_samplers)
    ]
    return MixedSampler(samplers, [1 / num_samplers] * num_samplers).describe()


def nested_mixture(seed: int = 0) -> MixedSampler:
    parts = [ShuffledSampler(100, seed=number) for number in range(30)]
    parts[3] = ShuffledSampler(100, seed=seed)
    inner = [MixedSampler(parts, [1 / 30] * 30) for _ in range(3)]
    return MixedSampler([*inner, ShuffledSampler(10, seed=seed)], [1 / 4] * 4)


class TestSize:
    def test_the_longest_state_is_small(self) -> None:
        plans = [shortened({"a": "x" * length, "b": 1, "c": None}) for length in range(300, 600)]
        longest = max(plans, key=size)
        assert size(longest) == BUDGET
        state = state_of(
            longest,
            epoch=2**31 - 1,
            batch=2**62 - 1,
            segments=tuple(EpochSegment(1024, 1048576, 10**9) for _ in range(MOST_SEGMENTS)),
            num_shards=1024,
            total_batch_size=1048576,
            seed=2**63 - 1,
        )
        text = json.dumps(state.to_dict())
        assert len(text) <= 1024
        assert parse_state(text) == state

    @given(
        st.dictionaries(
            st.text("ab.[]\u00e9", max_size=30),
            st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
            max_size=60,
        )
    )
    @settings(deadline=None)
    def test_every_description_fits(self, plan: Description) -> None:
        short = shortened(plan)
        assert size(short) <= BUDGET
        assert short == plan or size(plan) > BUDGET
        assert differences(plan, plan) == ()

    def test_descriptions_of_mixtures_fit(self) -> None:
        for plan in (clip_mixture(), clip_mixture(num_samplers=60), nested_mixture().describe()):
            assert size(plan) > 1000
            assert size(shortened(plan)) <= BUDGET

    def test_too_many_segments_are_refused_with_what_to_do(self) -> None:
        segments = tuple(EpochSegment(1, 1 + number % 2, 1) for number in range(MOST_SEGMENTS + 1))
        assert MOST_SEGMENTS == 12
        require_few_segments(5, segments[1:])
        for use in (
            lambda: require_few_segments(5, segments),
            state_of({}, epoch=5, batch=13, segments=segments).to_dict,
        ):
            with pytest.raises(
                StateError, match=r"changed 13 times within epoch 5.* 12 changes.*Finish the epoch"
            ):
                use()


class TestShortened:
    def test_what_fits_is_kept(self) -> None:
        plan: Description = {"sampler": "ShuffledSampler", "weights": None, "seed": 3}
        assert shortened(plan) == plan

    def test_none_is_left_out_first(self) -> None:
        plan: Description = {"a": "x" * 300, **{f"no setting {number}": None for number in range(10)}, "b.c": 2}
        assert shortened(plan) == {"a": "x" * 300, "b.c": 2}

    def test_the_longest_components_are_replaced_first(self) -> None:
        plan: Description = {"seed": 1, "data_set_size": 5}
        for number, length in enumerate((150, 200, 100, 50)):
            plan.update({f"samplers[{number}].a": "x" * length, f"samplers[{number}].b": number})
        short = shortened(plan)
        assert list(short) == [
            "seed", "data_set_size", "samplers[0]", "samplers[1]",
            "samplers[2].a", "samplers[2].b", "samplers[3].a", "samplers[3].b",
        ]  # fmt: skip
        assert short["samplers[2].a"] == "x" * 100
        assert [len(str(short[f"samplers[{number}]"])) for number in (0, 1)] == [13, 13]

    def test_a_long_text_is_replaced_too(self) -> None:
        rates = ", ".join(["0.0123456"] * 100)
        short = shortened({"rates": rates, "seed": 3})
        assert list(short) == ["rates", "seed"]
        assert len(str(short["rates"])) == 13
        assert [each[:6] for each in differences({"rates": rates}, {"rates": rates[1:]})] == ["rates:"]

    def test_what_does_not_fit_at_all_is_cut(self) -> None:
        plan: Description = {"sampler": "MixedSampler", **{f"samplers[{i}].seed": 10**15 + i for i in range(100)}}
        short = shortened(plan)
        assert [*short][:2] == ["sampler", "samplers[0].seed"] or [*short][:2] == ["sampler", "samplers[0]"]
        assert [*short][-1].endswith(" other settings")
        assert len(differences(plan, {**plan, "samplers[99].seed": 3})) == 1


class TestDifferences:
    @pytest.mark.parametrize("changed", [0, 1, 7])
    def test_the_component_that_differs_is_named(self, changed: int) -> None:
        (difference,) = differences(clip_mixture(), clip_mixture(changed))
        assert difference.startswith(f"samplers[{changed}]: '#")

    def test_a_difference_in_a_nested_mixture_is_named(self) -> None:
        named = [
            each.split(":")[0] for each in differences(nested_mixture(1).describe(), nested_mixture().describe())
        ]
        assert named == ["samplers[0]", "samplers[1]", "samplers[2]", "samplers[3].seed"]

    def test_a_component_that_is_a_hash_on_one_side_only_is_compared(self) -> None:
        few: Description = {"seed": 1, "clips.step": 2, "clips.stride": None, "clips.tail": "drop"}
        many: Description = {**few, **{f"samplers.{number}": 10**15 for number in range(20)}}
        many["clips.tail"] = "x" * 430
        same_clips: Description = {**few, "clips.tail": "x" * 430, "samplers.0": 3}
        assert list(shortened(many)) == ["seed", "clips", "samplers"]
        assert "clips.step" in shortened({**same_clips, "clips.tail": "x" * 300})
        assert [each.split(":")[0] for each in differences(many, same_clips)] == ["samplers"]
        assert [each.split(":")[0] for each in differences(same_clips, many)] == ["samplers"]

    def test_no_value_is_the_same_as_none(self) -> None:
        assert differences({"seed": 1, "weights": None}, {"seed": 1}) == ()
        assert differences({"weights": None}, {"weights": "a"}) == ("weights: nothing in the state, 'a' here",)


def broken(**changes: Any) -> dict[str, Any]:
    return {**state_of({"seed": 1}).to_dict(), **changes}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a truth value as version": (broken(version=True), "version True, this release of the package reads"),
    "a fraction as version": (broken(version=1.0), "version 1.0, this release of the package reads"),
    "a large epoch": (broken(epoch=2**31), r"`epoch` must be less than 2\*\*31, got a number of 32 bits"),
    "a large batch": (broken(batch=2**62), r"`batch` must be less than 2\*\*62, got a number of 63 bits"),
    "a huge batch": (broken(batch=10**9999), r"`batch` must be less than 2\*\*62, got a number of \d+ bits"),
    "a large seed": (broken(seed=2**63), r"`seed` must be less than 2\*\*63"),
    "many shards": (broken(num_shards=2**31), r"`num_shards` must be less than 2\*\*31"),
    "large batches": (broken(total_batch_size=2**31), r"`total_batch_size` must be less than 2\*\*31"),
    "many segments": (broken(batch=99, segments=[[1, 1, 1]] * 13), "`segments` must be at most 12, got 13"),
    "large batches in segments": (broken(segments=[[1, 2**31, 1]]), r"in `segments` must be less than 2\*\*31"),
    "names that are no texts": (broken(plan={3: 4}), "`plan` must be a dict that JSON can hold"),
    "values that are no values": (broken(plan={"a": object()}), "`plan` must be a dict that JSON can hold"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_damaged_states_are_refused(what: str) -> None:
    state, message = BROKEN[what]
    with pytest.raises(StateError, match=message):
        parse_state(state)


def test_the_largest_numbers_are_read() -> None:
    state = broken(epoch=2**31 - 1, batch=2**62 - 1, seed=2**63 - 1, segments=[[1, 2**31 - 1, 10**18]])
    assert parse_state(state).batch == 2**62 - 1


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    ["[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, '{"version": 1, "epoch": ' + "9" * 10_000 + "}"],
    ids=["open brackets", "brackets", "dicts", "digits"],
)
def test_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(StateError, match=r"not valid JSON|damaged"):
        parse_state(text)


@pytest.mark.parametrize("name", ["version", "epoch", "segments", "plan", "blueprint"])
def test_nested_values_are_refused(name: str) -> None:
    nested: list[Any] = []
    for _ in range(DEEP):
        nested = [nested]
    with pytest.raises(StateError, match=r"got \[\[|version \[\["):
        parse_state(broken(**{name: nested}))
    with pytest.raises(StateError, match="JSON can hold"):
        parse_state(broken(plan={"a": nested}))
    while nested:  # freeing it at once would be deeply nested, too
        (nested,) = nested
