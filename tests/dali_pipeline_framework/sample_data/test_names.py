"""Names of fields and paths: what is taken as one, how it is written, and what may have been meant."""

from enum import Enum, IntEnum

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.sample_data.names import available_names_hint, normalized_path


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
