"""What the tests of data sets share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _index_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices that a test makes are its own."""
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "indices"))
