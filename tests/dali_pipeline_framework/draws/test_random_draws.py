"""What a step may declare to draw."""

from __future__ import annotations

import re
from typing import Any

import pytest

from accvlab.dali_pipeline_framework.draws import FieldKey, IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import NameTypeError, SettingError

NAN, INF = float("nan"), float("inf")
EACH_KIND = pytest.mark.parametrize("kind", [UniformDraw, IntegerDraw, NormalDraw])
FINITE = "The numbers of a draw must be finite, as float32; got "


@EACH_KIND
def test_shape_and_key_are_normalised(kind: Any) -> None:
    draw = kind("a", 0, 5, shape=[2, 3], key=["cameras", 0, "name"])
    assert draw.shape == (2, 3)
    assert draw.key == FieldKey(("cameras", 0, "name"), shared=False)
    assert draw == kind("a", 0, 5, shape=(2, 3), key=("cameras", 0, "name"))


@EACH_KIND
@pytest.mark.parametrize(
    ("setting", "values", "words"),
    [
        ("name", ["", 3, None], "`name` must be a text "),
        ("shape", [3, (0,), (1.5,), "ab", None], "`shape` must be a tuple of whole numbers of at least 1"),
        (
            "key",
            ["camera", "Sample", None, 3],
            "must be one of 'sample', 'rig', 'sequence', 'sequence-rig', the path",
        ),
    ],
    ids=["name", "shape", "key"],
)
def test_settings_that_are_refused(kind: Any, setting: str, values: list[Any], words: str) -> None:
    for value in values:
        with pytest.raises(SettingError, match=re.escape(words)):
            kind(**{"name": "a", setting: value}, **({"low": 0, "high": 5} if kind is IntegerDraw else {}))


@pytest.mark.parametrize(
    ("kinds", "numbers", "words"),
    [
        *[
            ([UniformDraw, NormalDraw], numbers, FINITE)
            for numbers in [(NAN, 1), (0, INF), ("1", 1), (None, 1), (0, 1e39), (True, 2)]
        ],
        *[
            ([IntegerDraw], numbers, "must be whole numbers that fit into int32, got ")
            for numbers in [(0.5, 2), (0, 2**31), (-(2**31) - 1, 0), (True, 2), ("0", 2)]
        ],
        ([UniformDraw], (2, 1), "Draw 'a': `low` must not exceed `high`, got 2.0 and 1.0."),
        ([IntegerDraw], (3, 3), "Draw 'a': `low` must be less than `high`"),
        ([NormalDraw], (0, -1), "Draw 'a': `stddev` must be at least 0, got -1.0."),
    ],
)
def test_numbers_that_are_refused(kinds: list[Any], numbers: Any, words: str) -> None:
    for kind in kinds:
        with pytest.raises(SettingError, match=re.escape(words)):
            kind("a", *numbers)


def test_keys_are_paths_of_fields() -> None:
    with pytest.raises(SettingError, match=r"For the field 'scene' write \('scene',\)\."):
        UniformDraw("a", key="scene")
    with pytest.raises(SettingError, match="must be the path of a data field, got an empty path"):
        FieldKey(())
    with pytest.raises(NameTypeError):
        UniformDraw("a", key=("scene", 1.5))


@pytest.mark.parametrize(
    ("draw", "constant"),
    [
        (UniformDraw("a", 2, 2 + 1e-12), 2.0),
        (UniformDraw("a", 2, 3), None),
        (IntegerDraw("a", 4, 5), 4),
        (IntegerDraw("a", 4, 6), None),
        (NormalDraw("a", 7, 0), 7.0),
        (NormalDraw("a", 7, 0.1), None),
    ],
)
def test_constants_are_known(draw: Any, constant: float | None) -> None:
    assert draw.constant == constant
