"""Checks of settings: what is taken, what comes back, and what the message says."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.child_processes import run_process

from accvlab.dali_pipeline_framework import checks
from accvlab.dali_pipeline_framework.errors import SettingError

NO_NUMBERS = [True, np.True_, "1", b"1", None, [1], {}, math.nan, np.float32("nan"), 1j, object]


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


def message(check: Callable[[], Any]) -> str:
    with pytest.raises(SettingError) as caught:
        check()
    return str(caught.value)


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5), np.array(5)])
def test_whole_numbers_are_taken_in_any_integer_type(value: Any) -> None:
    number = checks.whole_number(value, "n", at_least=5, at_most=5)
    assert (number, type(number)) == (5, int)
    assert checks.index_in(value, "n", 6) == 5
    assert checks.whole_number_list([value, 7], "n", "two", count=2, at_least=0) == (5, 7)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 5.0, np.float64(5)])
def test_what_is_no_whole_number(value: Any) -> None:
    assert message(lambda: checks.whole_number(value, "n")) == f"`n` must be a whole number, got {value!r}."
    assert message(lambda: checks.index_in(value, "n", 6)) == f"`n` must be in [0, 5], got {value!r}."
    listed = [value, 7]
    told = message(lambda: checks.whole_number_list(listed, "n", "two", count=2, at_least=0))
    assert told == f"`n` must be two, got {listed!r}."


def test_limits_of_whole_numbers_are_told() -> None:
    assert message(lambda: checks.whole_number(0, "n", at_least=1, advice="Leave it out.")) == (
        "`n` must be a whole number of at least 1, got 0. Leave it out."
    )
    assert message(lambda: checks.whole_number(9, "n", at_most=8)) == "`n` must be at most 8, got 9."
    assert "at most 2**62, got" in message(lambda: checks.whole_number(2**63, "n", at_most=2**62))
    assert message(lambda: checks.index_in(-1, "i", 3)) == "`i` must be in [0, 2], got -1."
    assert message(lambda: checks.index_in(3, "i", 3)) == "`i` must be in [0, 2], got 3."
    assert message(lambda: checks.check_shard(2, 2)).startswith("`shard_id` must be in [0, 1] with `num_shards=2`")
    assert checks.check_shard(np.int32(1), 2) == (1, 2)


@pytest.mark.parametrize("value", [1, 1.0, np.int64(1), np.float16(1), np.float32(1), np.array(1.0), Fraction(1)])
def test_numbers_are_taken_in_any_real_type(value: Any) -> None:
    number = checks.number(value, "x")
    assert (number, type(number)) == (1.0, float)
    assert checks.probability(value, "x") == 1.0
    assert checks.number_range([value, 2], "x") == (1.0, 2.0)
    assert checks.number_list((value,), "x", "numbers") == (1.0,)
    assert checks.number_list(value, "x", "numbers", may_be_one=True) == (1.0,)


@pytest.mark.parametrize("value", [*NO_NUMBERS, math.inf, 10**400])
def test_what_is_no_number(value: Any) -> None:
    shown = checks.shown(value)
    assert message(lambda: checks.number(value, "x")) == f"`x` must be a finite number, got {shown}."
    assert message(lambda: checks.probability(value, "x")) == f"`x` must be in [0, 1], got {shown}."
    assert message(lambda: checks.number_range([value, 9], "x")).startswith(
        "`x` must be two numbers, least <= great"
    )
    assert message(lambda: checks.number_list([1, value], "x", "numbers")).startswith(
        "`x` must be numbers, got [1, "
    )


@pytest.mark.parametrize(
    ("limits", "outside", "rule"),
    [
        ({"at_least": 0}, -0.5, "a number of at least 0"),
        ({"above": 0}, 0, "a number above 0"),
        ({"at_most": 2}, 2.5, "a number of at most 2"),
        ({"above": 0, "at_most": 1}, 0.0, "in (0, 1]"),
        ({"may_be_infinite": True}, math.nan, "a number"),
    ],
)
def test_limits_of_numbers_are_told(limits: dict[str, Any], outside: float, rule: str) -> None:
    assert message(lambda: checks.number(outside, "x", **limits)) == f"`x` must be {rule}, got {outside!r}."
    assert checks.number(0.5, "x", **limits) == 0.5


def test_infinity_may_be_allowed() -> None:
    assert checks.number(math.inf, "x", above=0, may_be_infinite=True) == math.inf
    assert checks.number_list([-math.inf, 1], "x", "numbers", is_finite=False) == (-math.inf, 1.0)


@pytest.mark.parametrize("value", [(2, 1), [1], [1, 2, 3], 1, "12", {1: 2, 3: 4}, None, [[1, 2]], np.ones((2, 2))])
def test_what_is_no_range(value: Any) -> None:
    told = message(lambda: checks.number_range(value, "x", at_least=1, at_most=9))
    assert told == f"`x` must be two numbers, 1 <= least <= greatest <= 9, got {value!r}."


def test_lists_have_as_many_numbers_as_they_must() -> None:
    assert checks.number_range(np.array([1, 2]), "x", above=0) == (1.0, 2.0)
    assert "two numbers, 0 < least <= greatest, got" in message(lambda: checks.number_range([0, 1], "x", above=0))
    assert message(lambda: checks.number_list([], "x", "numbers")) == "`x` must be numbers, got []."
    assert message(lambda: checks.number_list([1], "x", "two", count=2)) == "`x` must be two, got [1]."
    assert checks.whole_number_list(4, "x", "one or two", count=2, at_least=1, may_be_one=True) == (4, 4)
    assert checks.whole_number_list(np.array([4, 5]), "x", "two", count=2, at_least=1) == (4, 5)


def test_choices() -> None:
    assert checks.choice(Side.LEFT, "side", Side) is Side.LEFT
    assert message(lambda: checks.choice("left", "side", Side)) == (
        "`side` must be one of Side.LEFT, Side.RIGHT, got 'left'."
    )
    assert message(lambda: checks.choice("lft", "side", ["left", "right"])) == (
        "`side` must be one of 'left', 'right', got 'lft'. Did you mean 'left'?"
    )
    colours = [types.DALIImageType.RGB, types.DALIImageType.GRAY]
    values: list[Any] = [0, True, "RGB", None, [], np.ones(2), math.nan, types.DALIImageType.BGR]
    for value in values:
        assert "`colour` must be one of DALIImageType.RGB, DALIImageType.GRAY, got" in message(
            lambda value=value: checks.choice(value, "colour", colours)  # type: ignore[misc]
        )


@pytest.mark.parametrize("value", [True, np.True_, 1, np.int64(1)])
def test_flags(value: Any) -> None:
    assert checks.flag(value, "f") is True


@pytest.mark.parametrize("value", ["a", "", None, 2, 1.0, math.nan, []])
def test_what_is_no_flag(value: Any) -> None:
    assert message(lambda: checks.flag(value, "f")) == f"`f` must be True or False, got {value!r}."


def test_names_of_fields() -> None:
    assert checks.field_name(np.str_("a"), "f") == "a"
    assert checks.field_name(np.int64(3), "f") == 3
    assert checks.field_names(None, "f") == checks.field_names([], "f") == ()
    assert checks.field_names("abc", "f") == ("abc",)
    assert checks.field_names(["a", 3], "f") == ("a", 3)
    no_name: list[Any] = [True, 1.0, None, math.nan, ["a"]]
    for value in no_name:
        assert message(lambda value=value: checks.field_name(value, "f")) == (  # type: ignore[misc]
            f"`f` must be a name (str or int), got {value!r}."
        )
    no_names: list[Any] = [True, 1.0, math.nan, ["a", None], [True], np.array(["a"])]
    for value in no_names:
        assert "`f` must be a name (str or int) or a sequence of names, got" in message(
            lambda value=value: checks.field_names(value, "f")  # type: ignore[misc]
        )


def test_texts_and_paths() -> None:
    assert checks.text("a", "t") == "a"
    assert checks.text("", "t", may_be_empty=True) == ""
    assert message(lambda: checks.text("", "t")) == "`t` must be a text that is not empty, got ''."
    assert message(lambda: checks.text(b"a", "t", may_be_empty=True)) == "`t` must be a text, got b'a'."
    assert checks.file_path(Path("a/b"), "p") == checks.file_path("a/b", "p") == "a/b"
    no_paths: list[Any] = [b"a", "", None, True, 3, "a\0"]
    for value in no_paths:
        assert "`p` must be the path of a file or folder (str or Path), got" in message(
            lambda value=value: checks.file_path(value, "p")  # type: ignore[misc]
        )


def test_texts_of_messages() -> None:
    assert checks.listed("abc", 3) == "a, b, c"
    assert checks.listed("abcd", 3) == "a, b, c and 1 more"
    assert checks.listed([]) == "none"
    assert checks.bullets("abcd", 2) == "  - a\n  - b\n  - and 2 more"
    assert checks.did_you_mean("imag", ["boxes", "image"]) == " Did you mean 'image'?"
    assert checks.did_you_mean("0", [0, 1]) == " Did you mean 0?"
    assert checks.did_you_mean("lidar", ["boxes", "image"]) == ""
    other_form = " There is 'u\\u0308ber', the same letters in another Unicode form."
    assert checks.did_you_mean("\u00fcber", ["boxes", "u\u0308ber"]) == other_form
    assert checks.shown("x" * 500) == "'" + "x" * 199 + "..."


def test_the_module_loads_neither_dali_nor_a_room() -> None:
    script = (
        "import sys, accvlab.dali_pipeline_framework.checks;"
        "print([name for name in sys.modules if name.startswith(('nvidia', 'accvlab.dali_pipeline_framework.'))])"
    )
    output = run_process([sys.executable, "-c", script], check=True).stdout
    loaded = ["checks", "errors", "installation", "public_names"]
    assert sorted(eval(output)) == [f"accvlab.dali_pipeline_framework.{name}" for name in loaded]


@pytest.mark.parametrize(("count", "is_taken"), [(3, True), (2**20, True), (2**20 + 1, False), (None, False)])
def test_elements_of_what_may_never_end(count: int | None, is_taken: bool) -> None:
    endless = itertools.count()
    found = checks.elements(endless if count is None else itertools.islice(endless, count))
    assert (found is not None) == is_taken
    if found is not None:
        assert (len(found), found[:2], found[-1]) == (count, [0, 1], len(found) - 1)
