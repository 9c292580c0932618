"""Where data that is not part of the project lies: reference batches and the data sets that they were made of."""

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """A folder of ``$ACCVLAB_DATA``; the test is skipped where the variable is not set."""
    root = os.environ.get("ACCVLAB_DATA")
    if not root:
        pytest.skip("needs a folder with reference data, $ACCVLAB_DATA")
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.fail(f"{name!r} is missing in the folder of reference data, $ACCVLAB_DATA, {root!r}")
    return folder


def must_not_be_skipped(item: pytest.Item) -> bool:
    """Whether a test is in a module that compares with reference data, and that data is given."""
    return (
        bool(os.environ.get("ACCVLAB_DATA"))
        and getattr(getattr(item, "module", None), "shared_data", None) is shared_data
        and item.get_closest_marker("gpu") is None
    )
