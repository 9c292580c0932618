"""What the tests of training loops share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_and_resume import RankServer


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RankServer]:
    server = RankServer(request.param)
    yield server
    server.close()
