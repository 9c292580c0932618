"""What a run with `--wide` does more."""

from __future__ import annotations

import pytest
from hypothesis import settings
from support.laws import examples


def test_has_more_examples_of_each_law(pytestconfig: pytest.Config) -> None:
    default, wide = settings.get_profile("default"), settings.get_profile("wide")
    assert default.max_examples < wide.max_examples
    is_wide = pytestconfig.getoption("--wide")
    assert settings.default.max_examples == (wide if is_wide else default).max_examples
    assert examples(3, 9) == (9 if is_wide else 3)
