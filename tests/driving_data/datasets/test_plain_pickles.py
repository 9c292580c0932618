"""Pickles of plain values, and bytes of all kinds: what could run code or crash is refused."""

from __future__ import annotations

import contextlib
import io
import pickle
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.child_processes import run_process

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets.infos.info_files import plain_pickle
from accvlab.driving_data.datasets.infos.pickled_values import StoredArray, joined_arrays, unpickled

VALUES: dict[str, Any] = {
    "infos": [
        {
            "token": f"a{number}",
            "boxes": np.arange(14.0).reshape(2, 7) * number,
            "names": np.array(["car", "bus"]),
            "objects": np.array(["car", None], object),
            "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
            "fortran objects": np.asfortranarray(np.array([[1, "a", [2]], [(3,), None, {}]], object)),
            "arrays of arrays": np.array([np.arange(2), np.arange(3)], object),
            "big endian": np.arange(3, dtype=">i4"),
            "big endian texts": np.array(["ä", "bus"]).astype(">U3"),
            "bytes": np.array([b"a", b"bus"]),
            "no texts": np.array([], str),
            "complex": np.array([1j]),
            "scalars": (np.float32(1.5), np.str_("a"), np.bytes_(b"b"), np.array(3.0)),
            "empty": np.zeros((0, 7)),
            "flag": np.bool_(True),
            "time": np.int64(7),
            ("a", 1): {"nested": [(1, 2.5, None, b"x")]},
        }
        for number in range(3)
    ]
}


def with_arrays(value: Any) -> Any:
    if isinstance(value, StoredArray):
        return np.asarray(value)
    if isinstance(value, dict):
        return {key: with_arrays(one) for key, one in value.items()}
    return type(value)(map(with_arrays, value)) if type(value) in (list, tuple) else value


def same(one: Any, other: Any) -> bool:
    if isinstance(other, np.ndarray):
        return (
            type(one) is np.ndarray
            and (one.dtype.newbyteorder("="), one.shape) == (other.dtype.newbyteorder("="), other.shape)
            and one.flags.f_contiguous == other.flags.f_contiguous
            and all(map(same, one.ravel().tolist(), other.ravel().tolist()))
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other and type(one) is type(other))


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_of_all_protocols(tmp_path: Path, protocol: int) -> None:
    array, path = np.arange(3.0), tmp_path / "infos.pkl"
    value = {**VALUES, "shared": [array, {"a": (array, array)}]}
    path.write_bytes(pickle.dumps(value, protocol))
    with plain_pickle(path) as content:
        assert same(with_arrays(content), value)
        one, other = content["shared"]
    assert repr(one) == "array([0., 1., 2.])"
    assert one is other["a"][0] is other["a"][1]


ARRAY = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def dtype(code: str, state: bytes = b"") -> bytes:
    made = b"cnumpy\ndtype\n(X" + len(code).to_bytes(4, "little") + code.encode() + b"\x89\x88tR"
    return made + (b"(" + state + b"tb" if state else b"")


def content(size: int) -> bytes:
    return b"B" + size.to_bytes(4, "little") + b"A" * size


def array(dtype: bytes, shape: bytes, values: bytes, order: bytes = b"\x89") -> bytes:
    return ARRAY + b"(K\x01(" + shape + b"t" + dtype + order + values + b"tb"


HUGE = b"\x8a\x06" + (1 << 40).to_bytes(6, "little")
FUNCTION = b"cnumpy.core.multiarray\n_reconstruct\n"
MINUS = b"J\xff\xff\xff\xff"
STATE = b"K\x03\x8c\x01|NNN" + MINUS + MINUS
FIELDS = b"K\x03\x8c\x01|N(\x8c\x01at}\x8c\x01a(" + dtype("O8") + b"K\x00ts" + b"K\x08K\x08K\x00"
OBJECTS_OF_BYTES = {
    "objects without flags": array(dtype("O8", STATE + b"K\x00"), b"K\x01", content(8)),
    "objects without state": array(dtype("O8"), b"K\x01", content(8)),
    "number with flags of objects": array(dtype("f8", STATE + b"K?"), b"K\x01", b"]Na"),
    "text with flags of objects": array(dtype("U2", STATE[:-10] + b"K\x08K\x04K?"), b"K\x01", b"]Na"),
    "fields": array(dtype("V8", FIELDS + b"K\x00"), b"K\x01", content(8)),
    "fields of a text": array(dtype("U2", FIELDS + b"K\x00"), b"K\x01", content(8)),
    "fields in the code": array(dtype("O,i8"), b"K\x01", content(16)),
    "array in the code": array(dtype("(2,)O"), b"K\x01", content(16)),
    "array of objects in the state": array(
        dtype("V8", b"K\x03\x8c\x01|(" + dtype("O8") + b"(K\x01ttNNK\x08K\x08K\x00"), b"K\x01", content(8)
    ),
    "void": array(dtype("V8"), b"K\x01", content(8)),
    "times": array(dtype("M8[ns]"), b"K\x01", content(8)),
    "other size": array(dtype("U2", STATE[:-10] + number(1 << 40) + b"K\x04K\x08"), b"K\x01", content(8)),
    "negative size": array(dtype("S2", STATE[:-10] + number(-8) + b"K\x01K\x00"), b"K\x01", content(8)),
    "metadata": array(dtype("f8", b"K\x04\x8c\x01|NNN" + MINUS + MINUS + b"K\x00}"), b"K\x01", content(8)),
    "scalar": b"cnumpy._core.multiarray\nscalar\n(" + dtype("O8", STATE + b"K\x00") + content(8) + b"tR",
    "buffer": b"cnumpy._core.numeric\n_frombuffer\n("
    + content(8) + dtype("O8", STATE + b"K\x00") + b"(K\x01t\x8c\x01CtR",
    "dict as dtype": b"cnumpy\ndtype\n(}\x89\x88tR",
    "shape beyond the content": array(dtype("f8"), b"K\x02", content(8)),
    "negative shape": array(dtype("f8"), MINUS + MINUS, content(8)),
    "shape that overflows": array(dtype("f8"), number(1 << 61) + b"K\x08K\x01", content(8)),
    "no shape": ARRAY + b"(K\x01N" + dtype("f8") + b"\x89" + content(8) + b"tb",
    "real state of a made array": array(dtype("f8"), b"K\x01", content(8)) + b"(K\x01(K\x01tN\x89C\x00tb",
    "state of a scalar's dtype twice": dtype("f8", STATE + b"K\x00") + b"(" + FIELDS + b"K\x00tb",
    "state of a function": FUNCTION + b"}X\x04\x00\x00\x00nameNs" + b"b",
    "slots of a function": FUNCTION + b"N}X\x04\x00\x00\x00nameNs\x86b",
    "terabytes": b"cnumpy\nndarray\n" + HUGE + b"\x85\x85R",
    "terabytes of a new object": b"cnumpy\nndarray\n" + HUGE + b"\x85\x85\x81",
    "terabytes of an array": ARRAY.partition(b"(")[0] + b"cnumpy\nndarray\n" + HUGE + b"\x85C\x01b\x87R",
    "more dimensions than NumPy has": array(dtype("f8"), b"K\x01" * 65, content(8)),
}  # fmt: skip


def test_states_of_dtypes_and_arrays_do_not_reach_numpy(tmp_path: Path) -> None:
    """In a process of their own, which does not crash."""
    for name, objects in OBJECTS_OF_BYTES.items():
        (tmp_path / f"{name}.pkl").write_bytes(b"\x80\x04" + objects + b".")
    script = (
        "import sys; from pathlib import Path\n"
        "from accvlab.driving_data.datasets.infos.info_files import plain_pickle\n"
        "from accvlab.dali_pipeline_framework.errors import FileError\n"
        "for path in Path(sys.argv[1]).iterdir():\n"
        "    print(path.stem, flush=True)\n"
        "    try:\n"
        "        with plain_pickle(path) as content: print('not refused', repr(content), flush=True)\n"
        "    except FileError as error: assert path.name in str(error)\n"
    )
    done = run_process([sys.executable, "-c", script, tmp_path], timeout=100)
    assert (done.returncode, {*done.stdout.splitlines()}) == (0, {*OBJECTS_OF_BYTES}), done.stderr


@pytest.mark.parametrize("make", [np.array, lambda texts: np.str_(texts[0])], ids=["array", "scalar"])
def test_text_of_characters_that_do_not_exist_is_damaged(tmp_path: Path, make: Callable[[list[str]], Any]) -> None:
    damaged = pickle.dumps([make(["car", "bus"])]).replace("car".encode("utf-32-le"), b"\xff" * 12)
    (tmp_path / "damaged.pkl").write_bytes(damaged)
    with (
        pytest.raises(FileError, match="text of characters that do not exist"),
        plain_pickle(tmp_path / "damaged.pkl") as (text,),
    ):
        np.asarray(text)


def test_an_array_that_is_damaged_is_an_error_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "infos.pkl"
    damaged = OBJECTS_OF_BYTES["shape beyond the content"]
    path.write_bytes(b"\x80\x04]" + damaged + b"aK\x07a.")
    with plain_pickle(path) as content:
        assert content[1] == 7
    with pytest.raises(FileError, match=r"infos\.pkl' is cut short, damaged, .* shape \(2,\) and dtype float64"):  # noqa: SIM117
        with plain_pickle(path) as content:
            len(content[0])


ARRAYS: list[Any] = [
    *(np.arange(6.0).reshape(2, 3), np.zeros((0, 2)), np.array(4.0), np.arange(3), np.arange(3, dtype=">i4")),
    *(np.array([True, False]), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(2, dtype=">i8")),
    *(np.array(["a", "b"]), np.array([1j]), np.array([1, None], object), [1, 2]),
]


@given(st.lists(st.sampled_from(range(len(ARRAYS))), max_size=3), st.sampled_from([2, 5]))
def test_arrays_of_a_column_are_joined_at_once_or_not_at_all(places: list[int], protocol: int) -> None:
    arrays = [ARRAYS[place] for place in places]
    stored = unpickled(io.BytesIO(pickle.dumps(arrays, protocol)))
    found = joined_arrays(stored)
    assert all(map(same, map(with_arrays, stored), arrays))
    are_plain = all(isinstance(each, np.ndarray) and each.dtype.kind in "fib" for each in arrays)
    are_plain = are_plain and all(each.flags.c_contiguous for each in arrays)
    assert (found is not None) == (are_plain and len({each.dtype for each in arrays}) == 1)
    if found is not None:
        shapes, flat = found
        assert [*shapes] == [array.shape for array in arrays]
        assert flat.dtype == arrays[0].dtype
        np.testing.assert_array_equal(flat, np.concatenate([array.ravel() for array in arrays]))


SOURCE = pickle.dumps(VALUES, 4)
OPCODES = bytes(
    code
    for code in range(256)
    if chr(code) in "(.012FIJKLMNRSTUVXabcdeghijlopqrstu}])BCG" or code in range(0x80, 0x98)
)


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def used(value: Any) -> None:
    """Make all arrays of what was loaded, one by one and in columns."""
    joined_arrays([value, value])
    for info in value.get("infos", ()) if isinstance(value, dict) else ():
        for one in info.values():
            joined_arrays([one])
    repr(value)


@pytest.mark.usefixtures("little_memory")
@given(st.data())
def test_damaged_pickles_are_loaded_or_raise(data: st.DataObject) -> None:
    content = bytearray(SOURCE)
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(begin + 12, len(content))))
        content[begin:end] = data.draw(st.binary(max_size=12) | st.lists(st.sampled_from(OPCODES)).map(bytes))
    with contextlib.suppress(Exception):
        used(unpickled(io.BytesIO(content)))


PIECES = [
    *(bytes([code]) for code in OPCODES),
    b"K\x00", b"K\x07", b"\x8c\x02f4", b"\x8c\x01O", b"C\x04abcd", b"C\x00", b"\x89", b"\x88", b"(K\x02\x85",
    b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n",
    b"cnumpy._core.multiarray\nscalar\n", b"cnumpy._core.numeric\n_frombuffer\n", b"c_codecs\nencode\n",
    b"cnumpy\ndtype\n\x8c\x02f4\x89\x88\x87R", b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
    b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R",
]  # fmt: skip


@pytest.mark.usefixtures("little_memory")
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_program_is_run_or_raises(pieces: list[bytes]) -> None:
    with contextlib.suppress(Exception):
        used(unpickled(io.BytesIO(b"\x80\x04" + b"".join(pieces) + b".")))
