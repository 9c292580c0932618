"""The state of a loader as a value: as text, what differs between two, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import TorchDatasetProvider
from accvlab.dali_pipeline_framework.errors import StateError
from accvlab.dali_pipeline_framework.loader.state import (
    LoaderState,
    checksum_of,
    difference_of_fields,
    fields_for_state,
    parse_state,
    require_same_run,
)
from accvlab.dali_pipeline_framework.sampling import MixedSampler, ShuffledSampler
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
    state = state_of(plan)
    text = json.dumps(state.to_dict())
    by_name = json.dumps(state.to_dict(), sort_keys=True)  # as trainers write it
    for written in (state.to_dict(), text, by_name, text.encode(), bytearray(text.encode())):
        assert parse_state(written) == state
    assert differences(plan, plan) == ()


# --- differences -----------------------------------------------------------------------------------------


def test_differences_in_a_nested_mixture_are_named() -> None:
    assert differences(nested_mixture(1), nested_mixture()) == tuple(
        f"samplers[{path}].seed: 1 in the state, 0 here"
        for path in ("0].samplers[3", "1].samplers[3", "2].samplers[3", "3")
    )


def test_no_value_is_the_same_as_none() -> None:
    assert differences({"seed": 1, "weights": None}, {"seed": 1}) == ()
    assert differences({"weights": None}, {"weights": "a"}) == ("weights: nothing in the state, 'a' here",)


def item(num_cameras: int = 3, more: Any = None, **camera: Any) -> dict[str, Any]:
    """An item of some cameras; ``camera`` are further fields of each."""
    cameras = [{"image": np.zeros((2, 2, 3), np.uint8), **camera} for _ in range(num_cameras)]
    return {"cameras": cameras, "name": "a", **(more or {})}


def fields_of(first: Any) -> dict[str, str]:
    return fields_for_state(TorchDatasetProvider([first]).sample_data_structure.format)


DEPTH = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    ("saved", "own", "difference"),
    [
        (item(), item(depth=DEPTH), "3 fields more than when the state was saved: cameras[0..2].depth"),
        (item(depth=DEPTH), item(), "3 fields less than when the state was saved: cameras[0..2].depth"),
        (item(), item(4), "1 field more than when the state was saved: cameras[3].image"),
        (
            item(depth=DEPTH.astype(np.float64), more={"x": 1}),
            item(depth=DEPTH, more={"y z": 1}),
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
    assert difference_of_fields(fields_of(saved), fields_of(saved)) == ""
    assert difference_of_fields(fields_of(saved), fields_of(own)) == difference


def test_many_differences_are_cut() -> None:
    types = [np.int8, np.int16, np.int32, np.int64, np.float32]
    fields = [{f"field {number}": types[(number + shift) % 5](1) for number in range(5)} for shift in (0, 1)]
    saved, own = (fields_of({**first, "cameras": [{**first}], "rest": {**first}}) for first in fields)
    difference = difference_of_fields(saved, own)
    assert difference.count("; ") == 9
    assert difference.endswith("; and 6 more")
    ten = {f"field {number}": types[number % 5](1) for number in range(10)}
    others = {name: types[(number + 1) % 5](1) for number, name in enumerate(ten)}
    difference = difference_of_fields(fields_of(ten), fields_of(others))
    assert difference.count("; ") == 9
    assert "more" not in difference


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


DEEP = 100_000
DAMAGED = "its checksum is another one: it was edited, or changed on its way"
NO_JSON = "not valid JSON...written to its end"
NO_STATES: list[tuple[Any, str]] = [
    ({**SAVED, "version": 2}, "version 2, this release of the package reads version 1"),
    ({**SAVED, "version": None}, "This is no state of this loader: it has no version, but the entries 'version'"),
    ({**SAVED, "checksum": None}, "its checksum is missing"),
    ({**SAVED, "checksum": 3}, DAMAGED),
    ({**SAVED, "epoch": 1}, DAMAGED),
    ({}, "it has no version, it is empty. Of a checkpoint, "),
    *((text, NO_JSON) for text in ('{"version": 1, "epo', "", b"\xff\xfe{}", "[" * DEEP, '{"a":' * DEEP)),
    ("nothing", f"{NO_JSON}...load_state(loader, path)"),
    *((value, "must be a dict") for value in (None, 3, [1, 2], "[]", b"3")),
]


@pytest.mark.parametrize(("value", "words"), NO_STATES, ids=range(len(NO_STATES)))
def test_what_is_no_state_is_refused(value: Any, words: str) -> None:
    assert_refused(lambda: parse_state(value), words, StateError)


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
