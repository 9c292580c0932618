"""Names of fields and paths: what is taken as one, how it is written, and what may have been meant."""

from enum import Enum, IntEnum

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import NameTypeError
from accvlab.dali_pipeline_framework.sample_data.names import (
    available_names_hint,
    flat_name,
    format_path,
    normalized_path,
)


class Camera(str, Enum):
    FRONT = "front"


class Slot(IntEnum):
    SECOND = 1


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("a", ("a",)),
        (3, (3,)),
        ((), ()),
        ([], ()),
        (["a", 0], ("a", 0)),
        (("a", np.str_("b")), ("a", "b")),
        (Camera.FRONT, ("front",)),
        ((Slot.SECOND,), (1,)),
    ],
)
def test_normalized_path(path, normal):
    result = normalized_path(path)
    assert result == normal
    assert [type(name) for name in result] == [type(name) for name in normal]


@pytest.mark.parametrize("path", [None, 1.0, True, b"a", ("a", None), ("a", True), np.int64(1), ("a", ("b",))])
def test_other_types_are_no_path(path):
    with pytest.raises(NameTypeError):
        normalized_path(path)


@pytest.mark.parametrize(
    ("path", "readable", "flat"),
    [
        ((), "", ""),
        (("a",), "a", "a"),
        (("cameras", 0, "image"), "cameras[0].image", "cameras.[0].image"),
        ((1, 2, "a"), "[1][2].a", "[1].[2].a"),
    ],
)
def test_written_paths(path, readable, flat):
    assert format_path(path) == readable
    assert flat_name(path) == flat


@pytest.mark.parametrize(
    ("name", "available", "hint"),
    [
        ("imgae", ("label", "image"), " Did you mean 'image'? Available: 'label', 'image'."),
        ("xyz", ("label",), " Available: 'label'."),
        ("xyz", (), " The group is empty."),
        ("0", (0, 1), " Did you mean 0? Available: 0, 1."),
        ("x", range(1000), f" Available: {', '.join(map(str, range(20)))} and 980 more."),
    ],
)
def test_hint_names_what_may_have_been_meant(name, available, hint):
    assert available_names_hint(name, tuple(available)) == hint
