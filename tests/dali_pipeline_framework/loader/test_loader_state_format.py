"""The state of a loader as a value: as text, what differs between two, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import StateError
from accvlab.dali_pipeline_framework.loader.state import (
    LoaderState,
    checksum_of,
    parse_state,
    require_same_run,
)
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.sampling.random_access_sampler import Description, EpochSegment


def state_of(plan: Description, **changes: Any) -> LoaderState:
    values: dict[str, Any] = {
        "epoch": 0,
        "batch": 3,
        "segments": (EpochSegment(1, 4, 2),),
        "num_shards": 1,
        "total_batch_size": 3,
        "seed": 7,
        "fields": {"cameras[0].image": "UINT8"},
        "failed": (3, 5),
        **changes,
    }
    return LoaderState(plan=plan, **values)


STATE = state_of(ShuffledSampler(22, seed=3).describe())
SAVED = STATE.to_dict()


def written_and_read(state: LoaderState) -> LoaderState:
    return parse_state(json.dumps(state.to_dict()))


def differences(saved: Description, own: Description) -> tuple[str, ...]:
    """What differs, after the saved one was written as text and read."""
    try:
        require_same_run(written_and_read(state_of(saved)), state_of(own))
    except StateError as error:
        return error.differences
    return ()


def stream_mixture(changed: int | None = None) -> Description:
    samplers = [
        StreamingSequenceSampler([10**4] * 10, seed=2**60 + number + 100 * (number == changed))
        for number in range(8)
    ]
    return MixedSampler(samplers, [1 / 8] * 8).describe()


def nested_mixture(seed: int = 0) -> Description:
    parts = [ShuffledSampler(100, seed=number) for number in range(30)]
    parts[3] = ShuffledSampler(100, seed=seed)
    inner = [MixedSampler(parts, [1 / 30] * 30) for _ in range(3)]
    return MixedSampler([*inner, ShuffledSampler(10, seed=seed)], [1 / 4] * 4).describe()


# --- text ------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text("ab.[]\u00e9", max_size=30),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
        max_size=60,
    )
)
@settings(deadline=None)
def test_every_description_can_be_read_again(plan: Description) -> None:
    assert written_and_read(state_of(plan)) == state_of(plan)
    assert differences(plan, plan) == ()


def test_the_largest_numbers_can_be_read_again() -> None:
    large: dict[str, Any] = {"epoch": 2**31 - 1, "batch": 2**62 - 1, "num_shards": 1024, "seed": 2**63 - 1}
    large["segments"] = tuple(EpochSegment(1024, 1048576, 10**9) for _ in range(100))
    state = state_of({"a": 1}, total_batch_size=1048576, **large)
    assert written_and_read(state) == state


def test_states_grow_only_with_the_number_of_samplers() -> None:
    weighted = [WeightedSampler(np.arange(1.0, 10**5 + 1)) for _ in range(8)]
    for plan, num_samplers in [
        (weighted[0].describe(), 1),
        (stream_mixture(), 8),
        (MixedSampler(weighted, [1 / 8] * 8).describe(), 8),
        (nested_mixture(), 94),
    ]:
        assert len(json.dumps(state_of(plan).to_dict())) < 1000 * (1 + num_samplers)


# --- differences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [0, 7])
def test_the_setting_that_differs_is_named(changed: int) -> None:
    here, there = 2**60 + changed, 2**60 + changed + 100
    assert differences(stream_mixture(), stream_mixture(changed)) == (
        f"samplers[{changed}].seed: {here} in the state, {there} here",
    )


def test_differences_in_a_nested_mixture_are_named() -> None:
    assert differences(nested_mixture(1), nested_mixture()) == tuple(
        f"samplers[{path}].seed: 1 in the state, 0 here"
        for path in ("0].samplers[3", "1].samplers[3", "2].samplers[3", "3")
    )


def test_no_value_is_the_same_as_none() -> None:
    assert differences({"seed": 1, "weights": None}, {"seed": 1}) == ()
    assert differences({"weights": None}, {"weights": "a"}) == ("weights: nothing in the state, 'a' here",)


# --- damage ----------------------------------------------------------------------------------------------


def test_a_state_damaged_at_any_byte_is_refused() -> None:
    text = json.dumps(SAVED).encode()
    num_same = 0
    for position, byte in enumerate(text):
        before, behind = text[:position], text[position + 1 :]
        others = {byte ^ (1 << bit) for bit in range(8)} | {*b' 07"{}[],:-.eE\\\n'}
        for broken in [before + behind, *(before + bytes([other]) + behind for other in others - {byte})]:
            try:
                parsed = parse_state(broken)
            except StateError as error:
                assert str(error)  # noqa: PT017
                continue
            num_same += 1
            assert parsed == STATE, broken
    assert num_same < 300  # blanks


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([*SAVED, None]),
)
def test_any_value_for_an_entry_is_refused_or_the_same(value: Any, name: str | None) -> None:
    changed: Any = value if name is None else {**SAVED, name: value}
    try:
        parsed = parse_state(changed)
    except StateError:
        return
    assert parsed == STATE


class Odd:
    """A value that can neither be compared nor shown."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __hash__ = None  # type: ignore[assignment]


ODD_VALUES: list[Any] = [np.array([1, 2]), np.array([1]), np.int64(1), torch.tensor([1, 2]), b"a", {1}, Odd(), len]
ODD_VALUES += [float("nan"), [np.array([1, 2, 3])], {"a": np.array([1, 2])}, {Odd: Odd()}]


@pytest.mark.parametrize("name", [*SAVED, "reader"])
def test_values_that_json_does_not_have_are_refused(name: str) -> None:
    for value in ODD_VALUES:
        with pytest.raises(StateError, match=r"damaged|has version|no version"):
            parse_state({**SAVED, name: value})
        with pytest.raises(StateError):
            parse_state(value)


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    ["[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, '{"version": 1, "epoch": ' + "9" * 10_000 + "}"],
    ids=["open brackets", "brackets", "dicts", "digits"],
)
def test_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(StateError, match=r"not valid JSON|damaged"):
        parse_state(text)


FORGED: dict[str, Any] = {
    "epoch": [-1, "a", None, 1.5, 10**30],
    "batch": [-1, True, float("nan")],
    "num_shards": [0, "a"],
    "total_batch_size": [0, None],
    "segments": [5, [[1]], [[0, 1, 1]], [[1, 4, -1]], [[1, 4, 10]]],
    "plan": [None, [1]],
    "fields": [None, [["a"]], [[1, "UINT8"]]],
    "failed": [5, ["a"]],
    "more": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in FORGED for value in FORGED[name]])
def test_a_right_checksum_of_wrong_entries_does_not_help(name: str, value: Any) -> None:
    state = {**SAVED, name: value}
    with pytest.raises(StateError, match="No loader has written this state, though its checksum is right: "):
        parse_state({**state, "checksum": checksum_of(state)})


@pytest.mark.parametrize("name", ["epoch", "plan", "segments", "fields"])
def test_a_right_checksum_of_missing_entries_does_not_help(name: str) -> None:
    state = {each: value for each, value in SAVED.items() if each != name}
    with pytest.raises(StateError, match=f"its checksum is right: .*{name}"):
        parse_state({**state, "checksum": checksum_of(state)})


def test_nested_values_are_refused() -> None:
    nested: list[Any] = []
    for _ in range(DEEP):
        nested = [nested]
    for name in SAVED:
        with pytest.raises(StateError, match=r"its checksum is another one|version \[\["):
            parse_state({**SAVED, name: nested})
    while nested:  # freeing it at once would be deeply nested, too
        (nested,) = nested
