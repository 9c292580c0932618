"""Pickles of plain values: limits, and bytes of all kinds. Each in a process that may not crash."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.datasets.infos import pickle_limits
from accvlab.dali_pipeline_framework.datasets.infos.pickle_limits import LimitError
from accvlab.dali_pipeline_framework.datasets.infos.plain_pickle import load_plain_pickle
from accvlab.dali_pipeline_framework.errors import FileError

VALUES: dict[str, Any] = {
    "infos": [
        {
            "token": f"a{number}",
            "boxes": np.arange(14.0).reshape(2, 7) * number,
            "names": np.array(["car", "bus"]),
            "objects": np.array(["car", None], object),
            "fortran": np.asfortranarray(np.ones((2, 3), np.float32)),
            "empty": np.zeros((0, 7)),
            "flag": np.bool_(True),
            "time": np.int64(7),
            ("a", 1): {"nested": [(1, 2.5, None, b"x")]},
        }
        for number in range(3)
    ]
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.tolist() == other.tolist()
            and one.flags.f_contiguous == (other.flags.f_contiguous)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other and type(one) is type(other))


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_of_all_protocols(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "infos.pkl"
    path.write_bytes(pickle.dumps(VALUES, protocol))
    assert same(load_plain_pickle(path), VALUES)


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(FileError) as refused:
        load_plain_pickle(path)
    return str(refused.value)


def test_arrays_that_would_take_all_memory_are_refused(tmp_path: Path) -> None:
    huge = b"\x8a\x06" + (1 << 40).to_bytes(6, "little")
    for content in (
        b"\x80\x04cnumpy\nndarray\n" + huge + b"\x85\x85R.",
        b"\x80\x04cnumpy\nndarray\n" + huge + b"\x85\x85\x81.",
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + huge + b"\x85C\x01b\x87R.",
    ):
        assert "infos.pkl" in refusal(tmp_path / "infos.pkl", content)


def deep(levels: int) -> bytes:
    """A dict whose key is a tuple in a tuple in a tuple ..."""
    return b"\x80\x04}(N" + b"\x85" * levels + b"Nu."


def test_deep_tuples_do_not_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "infos.pkl"
    path.write_bytes(deep(1_000_000))  # without more memory, 200 thousand are too many
    script = (
        "import sys; from accvlab.dali_pipeline_framework.datasets.infos.plain_pickle import load_plain_pickle\n"
    )
    script += "print(len(load_plain_pickle(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    monkeypatch.setattr(pickle_limits, "_MANY_LEVELS", 1000)
    assert "is not loaded: its values are nested more than 1000 times" in refusal(path, deep(2000))
    path.write_bytes(pickle.dumps([(number,) for number in range(5000)], 2))
    assert load_plain_pickle(path)[4999] == (4999,)
    monkeypatch.setattr(pickle_limits, "MOST_BYTES", 100)
    assert "more than 100" in refusal(path, deep(200))


@pytest.mark.parametrize("protocol", range(6))
def test_depth_is_found_out_for_all_protocols(protocol: int) -> None:
    def value(depth: int) -> Any:
        made: Any = {"a": [1, (2, 3), np.ones(2)]}
        for number in range(depth):
            made = ((made, 1), [made], {"key": made}, (made, 1, 2, 3))[number % 4]
        return made

    pickle_limits._require_flat(io.BytesIO(pickle.dumps(value(300), protocol)))
    with pytest.raises(LimitError):
        pickle_limits._require_flat(io.BytesIO(b"N" + b"\x85" * 1001 + b"."))


SOURCE = pickle.dumps(VALUES, 4)
OPCODES = bytes(
    code
    for code in range(256)
    if chr(code) in "(.012FIJKLMNRSTUVXabcdeghijlopqrstu}])BCG" or code in range(0x80, 0x98)
)


@given(st.data())
def test_damaged_pickles_are_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.pkl"
    content = bytearray(SOURCE)
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(begin + 12, len(content))))
        content[begin:end] = data.draw(st.binary(max_size=12) | st.lists(st.sampled_from(OPCODES)).map(bytes))
    path.write_bytes(content)
    try:
        load_plain_pickle(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017


PIECES = [
    *(bytes([code]) for code in OPCODES),
    b"K\x00", b"K\x07", b"\x8c\x02f4", b"\x8c\x01O", b"C\x04abcd", b"C\x00", b"\x89", b"\x88", b"(K\x02\x85",
    b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n",
    b"cnumpy._core.multiarray\nscalar\n", b"cnumpy._core.numeric\n_frombuffer\n", b"c_codecs\nencode\n",
    b"cnumpy\ndtype\n\x8c\x02f4\x89\x88\x87R", b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
    b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_program_is_run_or_refused(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "program.pkl"
    path.write_bytes(b"\x80\x04" + b"".join(pieces) + b".")
    try:
        load_plain_pickle(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017
