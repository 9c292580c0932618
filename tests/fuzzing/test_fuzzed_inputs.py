"""What comes from outside, in any form: it is read, or refused by a documented error; no crash, and no hang.

Files of data sets are damaged in `test_damaged_files.py`; states, ledgers, info pickles and headers of images
where their other tests are.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.engine.transport import Block, Unpacker
from accvlab.dali_pipeline_framework.errors import FileError, OutputError, SettingError
from accvlab.dali_pipeline_framework.operators.conditions import Parser, condition_of, variables_of
from accvlab.dali_pipeline_framework.providers.files.file_scan import read_list_file
from accvlab.dali_pipeline_framework.providers.files.storage import Storage

pytestmark = pytest.mark.wide

# --- the language of conditions --------------------------------------------------------------------------

WORDS = ["a", "b", "r", "=", "==", "!=", "<", ">=", "and", "or", "not", "(", ")", "-", "1", "2.5", ".", "9" * 400]
WORDS += ["True", "0.", "é", "\t", "\n", "!", "1" + "0" * 50]
VALUES = {"a": np.array([1, -2, 3], np.int32), "b": np.array([True, False, True])}


def evaluate(text: str) -> None:
    expression = Parser(text).parse().expression
    if len(text) < 500:
        str(expression)
    names = variables_of(expression)
    if names and {*names} <= {*VALUES}:
        truth = condition_of(expression, VALUES)
        assert np.shape(truth) == (3,)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.text(max_size=30))
def test_conditions(text: str) -> None:
    for each in (text, f"r = {text}", f"r = a {text}"):
        with contextlib.suppress(SettingError):
            evaluate(each)


@pytest.mark.parametrize(
    "text",
    [
        *(f" {word} ".join(["a"] * 5000) for word in ("or", "and", "<", "==", "-")),
        *("(" * 5000 + "a" + ")" * 5000, "not " * 5000 + "a", "-" * 5000 + "a"),
        "(" * 50 + "a" + " or a or a or a or a or a or a)" * 50,
        *("a < " + "9" * 5000, "a < 0." + "1" * 5000, "a" * 100_000),
    ],
    ids=lambda text: f"{text[:12]}...",
)
def test_conditions_that_are_too_long_are_refused(text: str) -> None:
    """These were a RecursionError, or a ValueError of Python's own, when this was written."""
    if text == "a" * 100_000:
        evaluate(f"r = {text}")
    else:
        with pytest.raises(SettingError):
            evaluate(f"r = {text}")


def test_conditions_may_be_long() -> None:
    for word in ("or", "and", "<"):
        evaluate("r = " + f" {word} ".join(["a"] * 250))


# --- lists of files --------------------------------------------------------------------------------

LINES = st.lists(
    st.sampled_from([b"a.jpg 1", b"a b.jpg  2", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\0", b" ", b"\t", b"-1"])
    | st.sampled_from(
        [b"99999999999", b"\xff\xfe", b"nan", b"inf", b"1.5", b"x", "é \u0661".encode(), b"4294967296"]
    )
    | st.binary(max_size=6),
    max_size=20,
).map(b" ".join)


@given(LINES | st.binary(max_size=100))
def test_lists_of_files(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "list.txt").write_bytes(content)
    with contextlib.suppress(SettingError, FileError):
        table = read_list_file(Storage(folder), "list.txt")
        assert len(table) > 0
        assert all(0 <= table.label(position) < 2**31 for position in range(len(table)))


# --- batches on their way ------------------------------------------------------------------------------------

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
