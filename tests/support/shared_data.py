"""Where data that is not part of the project lies: reference batches and the data sets that they were made of."""

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """A folder of ``$ACCVLAB_DATA``; the test is skipped where there is none."""
    root = os.environ.get("ACCVLAB_DATA")
    if not root:
        pytest.skip("needs a folder with reference data, $ACCVLAB_DATA")
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.skip(f"needs {name!r} in the folder of reference data, $ACCVLAB_DATA")
    return folder
