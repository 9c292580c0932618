"""What a step may declare to draw."""

from __future__ import annotations

from typing import Any

import pytest

from accvlab.dali_pipeline_framework.draws import FieldKey, IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.draws.random_draws import is_shared
from accvlab.dali_pipeline_framework.errors import NameTypeError, SettingError

KINDS = [(UniformDraw, (0, 1)), (IntegerDraw, (0, 5)), (NormalDraw, (0, 1))]


@pytest.mark.parametrize(("kind", "numbers"), KINDS)
class TestAllKinds:
    @pytest.mark.parametrize("name", ["", 3, None])
    def test_need_a_name(self, kind: Any, numbers: Any, name: Any) -> None:
        with pytest.raises(SettingError, match=r"`name` must be a text .*, got "):
            kind(name, *numbers)

    @pytest.mark.parametrize("shape", [3, (0,), (-1, 2), (1.5,), "ab", None])
    def test_refuse_shapes(self, kind: Any, numbers: Any, shape: Any) -> None:
        with pytest.raises(SettingError, match=r"`shape` must be a tuple of whole numbers of at least 1"):
            kind("a", *numbers, shape=shape)

    @pytest.mark.parametrize("key", ["camera", "Sample", None, 3])
    def test_refuse_keys(self, kind: Any, numbers: Any, key: Any) -> None:
        with pytest.raises(
            SettingError, match=r"must be one of 'sample', 'rig', 'sequence', 'sequence-rig', the path"
        ):
            kind("a", *numbers, key=key)

    def test_normalise_shape_and_key(self, kind: Any, numbers: Any) -> None:
        draw = kind("a", *numbers, shape=[2, 3], key=["cameras", 0, "name"])
        assert draw.shape == (2, 3)
        assert draw.key == FieldKey(("cameras", 0, "name"), shared=False)
        assert draw == kind("a", *numbers, shape=(2, 3), key=("cameras", 0, "name"))


def test_a_field_name_as_key_is_explained() -> None:
    with pytest.raises(SettingError, match=r"For the field 'scene' write \('scene',\)\."):
        UniformDraw("a", key="scene")


def test_paths_of_fields_are_checked() -> None:
    with pytest.raises(SettingError, match="must be the path of a data field, got an empty path"):
        FieldKey(())
    with pytest.raises(NameTypeError):
        UniformDraw("a", key=("scene", 1.5))


@pytest.mark.parametrize(
    "numbers", [(float("nan"), 1), (0, float("inf")), ("x", 1), (None, 1), (0, 1e39), (True, 2), ("1", 2)]
)
@pytest.mark.parametrize("kind", [UniformDraw, NormalDraw])
def test_numbers_must_be_finite_float32(kind: Any, numbers: Any) -> None:
    with pytest.raises(SettingError, match="The numbers of a draw must be finite, as float32; got "):
        kind("a", *numbers)


@pytest.mark.parametrize("limits", [(0.5, 2), (0, 2**31), (-(2**31) - 1, 0), (True, 2), ("0", 2)])
def test_limits_of_integers_must_be_int32(limits: Any) -> None:
    with pytest.raises(SettingError, match="must be whole numbers that fit into int32, got "):
        IntegerDraw("a", *limits)


def test_ranges_must_not_be_empty() -> None:
    with pytest.raises(SettingError, match=r"Draw 'a': `low` must not exceed `high`, got 2\.0 and 1\.0\."):
        UniformDraw("a", 2, 1)
    with pytest.raises(SettingError, match=r"Draw 'a': `low` must be less than `high`, .* got 3 and 3\."):
        IntegerDraw("a", 3, 3)
    with pytest.raises(SettingError, match=r"Draw 'a': `stddev` must be at least 0, got -1\.0\."):
        NormalDraw("a", 0, -1)


@pytest.mark.parametrize(
    ("draw", "constant"),
    [
        (UniformDraw("a", 2, 2), 2.0),
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


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("sample", False),
        ("sequence", False),
        ("rig", True),
        ("sequence-rig", True),
        (("scene",), False),
        (FieldKey("scene", shared=True), True),
    ],
)
def test_which_keys_groups_share(key: Any, expected: bool) -> None:
    assert is_shared(UniformDraw("a", key=key).key) is expected
