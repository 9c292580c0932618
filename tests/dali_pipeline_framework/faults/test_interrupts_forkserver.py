"""Ctrl-C at random moments of processes whose loaders use the fork server, 500 times."""

from __future__ import annotations

from pathlib import Path

import pytest
from interrupt_storm import storm

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_interrupts_end_within_seconds(tmp_path: Path, first: int) -> None:
    storm(tmp_path, "forkserver", range(first, first + 50))
