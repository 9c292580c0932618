"""Headers of batches from workers, in any form: they are read, or refused by a documented error.

Files of data sets are damaged in `test_damaged_files.py`; conditions, lists of files, states, ledgers, info
pickles and headers of images where their other tests are.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.engine.transport import Block, Unpacker
from accvlab.dali_pipeline_framework.errors import OutputError

pytestmark = pytest.mark.wide

DTYPES = [np.dtype("f4"), np.dtype("i8"), np.dtype("u1")]


@given(st.lists(st.integers(-3, 40) | st.integers(-(2**63), 2**63 - 1), max_size=24), st.binary(max_size=300))
def test_headers_of_batches(numbers: list[int], content: bytes) -> None:
    buffer = np.frombuffer(struct.pack(f"<{len(numbers)}q", *numbers) + content, np.uint8)
    unpacker = Unpacker(DTYPES, [1, 2, 1])
    for _ in range(2):
        try:
            num_samples, blocks, _ = unpacker.blocks(buffer)
        except OutputError as error:
            assert "was damaged on its way" in str(error)  # noqa: PT017
            continue
        for dtype, block in zip(DTYPES, blocks, strict=True):
            read_all(buffer, dtype, block, num_samples)


def read_all(buffer: Any, dtype: Any, block: Block, num_samples: int) -> None:
    shapes = block.shapes if len(block.shapes) > 1 else [*block.shapes] * (len(block.starts) - 1)
    for shape, start in zip(shapes, block.starts, strict=False):
        np.ndarray(shape, dtype, buffer, start).sum()
    assert num_samples <= len(buffer)
