"""What becomes of values that are assigned to numeric fields."""

import decimal
import fractions
import functools
import itertools
import pathlib
import sys
import types as python_types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType
from support.array_samples import group_of
from support.laws import each_value
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

FLOAT16, FLOAT, FLOAT64 = DALIDataType.FLOAT16, DALIDataType.FLOAT, DALIDataType.FLOAT64
UINT8, UINT32, UINT64 = DALIDataType.UINT8, DALIDataType.UINT32, DALIDataType.UINT64
INT32, INT64, BOOL = DALIDataType.INT32, DALIDataType.INT64, DALIDataType.BOOL

FORMS_OF_NUMBERS = [lambda x: x, lambda x: [x], lambda x: np.array([[x]]), np.array, fractions.Fraction]


def stored(value, dtype):
    group = group_of(x=dtype)
    group["x"] = value
    return group["x"]


class WithArray:
    """Of a library that is not known."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


class TestResult:
    @each_value(
        dtype=NUMPY_TYPES,
        value=[
            1,
            1.0,
            True,
            np.bool_(True),
            np.float64(1),
            np.int8(1),
            [1],
            (1.0,),
            [[True]],
            np.ones((2, 1)),
            [],
        ],
    )
    def test_is_an_array_of_the_fields_type(self, value, dtype):
        result = stored(value, dtype)
        assert type(result) is np.ndarray
        assert result.dtype == NUMPY_TYPES[dtype]
        assert result.shape == np.shape(value)
        np.testing.assert_array_equal(result, np.ones(np.shape(value)))

    @pytest.mark.parametrize(
        ("value", "dtype", "result"),
        [
            (None, FLOAT, None),
            # whole numbers in integer fields
            (np.float32(-2), INT32, -2),
            ([-2.0], INT32, [-2]),
            (fractions.Fraction(-4, 2), INT32, -2),
            (decimal.Decimal("-2.0"), INT32, -2),
            ([0, 2**64 - 1], UINT64, [0, 2**64 - 1]),
            ([2**63, 1], UINT64, [2**63, 1]),
            (np.uint64(2**64 - 1), UINT64, 2**64 - 1),
            # limits of float types
            (65504, FLOAT16, 65504),
            (np.array([65519.0]), FLOAT16, [65504]),
            (np.finfo(np.float32).max, FLOAT, float(np.finfo(np.float32).max)),
            (1e300, FLOAT64, 1e300),
            (1e-300, FLOAT, 0),
            (1e15 + 0.5, FLOAT, float(np.float32(1e15))),
            (1.0, BOOL, True),
            (2**127, FLOAT, 2.0**127),
            ([2**63, 1], FLOAT, [2.0**63, 1]),
            ([2**63, 1], FLOAT64, [2.0**63, 1]),
            # other libraries and classes
            (decimal.Decimal("1.5"), FLOAT, 1.5),
            (np.array([1, 2.5], dtype=object), FLOAT, [1, 2.5]),
            (np.array(["2020-01-01"], dtype="datetime64[s]"), INT64, [1577836800]),
            (WithArray(), UINT8, [0, 1, 2]),
            (np.ma.array([1, 2]), FLOAT, [1, 2]),
        ],
    )
    def test_is_exact(self, value, dtype, result):
        found = stored(value, dtype)
        assert (found is None) if result is None else (found.tolist() == result)
        assert type(found) in (np.ndarray, type(None))

    @pytest.mark.filterwarnings("ignore:the matrix subclass")
    def test_matrix_becomes_an_ordinary_array(self):
        assert type(stored(np.matrix([[1, 2]]), FLOAT)) is np.ndarray

    @pytest.mark.parametrize(
        "source", [np.zeros(3, np.float32), np.zeros(3), torch.zeros(3), torch.zeros(3).double()]
    )
    def test_is_always_a_copy(self, source):
        result = stored(source, FLOAT)
        source[:] = 7
        assert result.tolist() == [0, 0, 0]
        result[0] = 1

    @pytest.mark.parametrize("dtype", [FLOAT16, FLOAT, FLOAT64])
    @pytest.mark.parametrize("form", [float, np.float64, lambda value: [value], lambda value: np.array([value])])
    def test_infinity_and_nan_of_the_input_are_kept(self, form, dtype):
        for value in (np.inf, -np.inf, np.nan):
            np.testing.assert_array_equal(stored(form(value), dtype).ravel(), [value])

    @given(
        npst.arrays(
            st.sampled_from([np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.bool_]),
            npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
        ),
        st.sampled_from([d for d, numpy_type in NUMPY_TYPES.items() if np.dtype(numpy_type).kind in "iu"]),
    )
    def test_integers_are_kept_or_refused(self, array, dtype):
        limits = np.iinfo(NUMPY_TYPES[dtype])
        fits = all(limits.min <= int(value) <= limits.max for value in array.flat)
        for value in (array, array.tolist()):
            if fits:
                assert stored(value, dtype).tolist() == array.tolist()
            else:
                with pytest.raises(OverflowError):
                    stored(value, dtype)

    @given(
        st.integers(-(2**63), 2**64 - 1)
        | st.integers(-66000, 66000)
        | st.integers(0, 63).map(lambda bits: 2**bits),
        st.sampled_from([FLOAT16, FLOAT, FLOAT64]),
        st.sampled_from(FORMS_OF_NUMBERS),
    )
    def test_integers_in_float_fields_are_exact_or_refused(self, value, dtype, form):
        limits = np.finfo(NUMPY_TYPES[dtype])
        if abs(value) <= int(limits.max) and int(NUMPY_TYPES[dtype](value)) == value:
            result = stored(form(value), dtype)
            assert result.dtype == NUMPY_TYPES[dtype]
            assert result.ravel().tolist() == [value]
        else:
            with pytest.raises(FieldValueError):
                stored(form(value), dtype)


ANY = (FLOAT, UINT8, BOOL)
WHOLE = (UINT8, INT32, UINT64)
FRACTION = "a field of type {dtype} holds whole numbers, got "
MASKED = np.ma.array([1.0, 2, 3], mask=[False, True, True])
# Types of fields, values, and words of the error.
REFUSED = [
    (
        (FLOAT, BOOL),
        ["text", ["1"], np.array([b"1"]), "a" * 10_000, pathlib.Path("0.jpg")],
        "x: cannot store ... in a field of type {dtype}. Use a STRING field",
    ),
    (ANY, [np.array([1, "2"], object)], "cannot store ... element of the value...STRING field"),
    ([UINT8], ["0.jpg", pathlib.Path("0.jpg")], "{dtype}. If ... read the file: np.fromfile(path, np.uint8)"),
    (ANY, [range(3), {1, 2}, (i for i in range(3))], "cannot store ...list(...)"),
    (ANY, [{"a": 1}, SampleDataGroup(), [1, {"a": 1}]], "cannot store ...data group field"),
    (ANY, [[[1], [1, 2]], [np.zeros(2), np.zeros(3)]], "cannot store ...different lengths"),
    (ANY, [1j, np.array([1j]), torch.tensor([1j])], "cannot store ...real"),
    (ANY, [object()], "cannot store ...set_do_convert(False)"),
    (ANY, [np.zeros(2, dtype=[("a", np.int32)])], "cannot store ...array of numbers"),
    (
        (INT32, FLOAT, BOOL),
        [[1, None], np.array([1.5, None], dtype=object)],
        "cannot store None of type NoneType ... float('nan')",
    ),
    (WHOLE, [0.75, np.float16(0.75)], FRACTION + "0.75. Scale or round"),
    (WHOLE, [np.array([[4, 0.5, 2.5]])], FRACTION + "0.5 at [0, 1] and 1 more such value(s). Scale or round"),
    (WHOLE, [np.array([1, 0.5], dtype=object)], FRACTION + "0.5. Scale or round"),
    (WHOLE, [fractions.Fraction(29, 10)], FRACTION + "2.9. Scale or round"),
    (WHOLE, [torch.tensor([1, 0.5], dtype=torch.bfloat16)], FRACTION + "0.5 at [1]"),
    ([UINT8], [-0.5], FRACTION + "-0.5"),
    ([BOOL], [np.nan, [1.0, np.nan], torch.tensor([float("nan")])], "NaN is neither true nor false"),
    (
        (FLOAT, INT32, FLOAT64),
        [MASKED, [MASKED, MASKED], ([MASKED],)],
        "2 element(s) of the masked array are masked. Fill them first",
    ),
    ([FLOAT], [[1.0, np.ma.masked]], "1 element"),
    (
        [FLOAT],
        [b"1234", bytearray(b"1234"), memoryview(b"1234")],
        "np.frombuffer(value, np.float32), or use a UINT8 field",
    ),
    ([UINT8], [memoryview(np.zeros(2, np.float32))], "cannot store <memory...np.frombuffer(value, np.uint8)"),
    ([FLOAT], [np.array(["2020-01-01"], dtype="datetime64[s]")], "INT64"),
    ([INT64], [np.array(["2020-01-01", "NaT"], dtype="datetime64[s]")], "NaT"),
    # numbers that would be stored as others
    (
        [BOOL],
        [np.array([[0, 255, 1, 2]], np.uint8)],
        "bool holds true and false, ... 0 and 1, got 255 at [0, 1] and 1 more ... value != 0 ... an integer type",
    ),
    ([BOOL], [-1, 0.5, fractions.Fraction(1, 2)], "bool holds true and false"),
    (
        [FLOAT],
        [[0.5, 2**24 + 1]],
        "up to 16777216 exactly, ... got 16777217, which would become 16777216. Give ... INT64 or FLOAT64",
    ),
    ([FLOAT16], [2049], "up to 2048 exactly, ... got 2049, which would become 2048"),
    ([FLOAT], [[np.int64(2**24 + 1), 0.5], [[0.5], [np.uint32(2**24 + 1)]]], "got 16777217"),
    ([FLOAT64], [[0.5, 2**53 + 1], [np.nan, 2**53 + 1]], "got 9007199254740993, ... type INT64,"),
]
# The same, of numbers that the type has not.
OVERFLOWS = [
    ([UINT8], [256], "values 256 do not fit ... uint8, which holds 0 … 255"),
    ([UINT64], [-1], "values -1"),
    ([UINT64], [2**64], str(2**64)),
    ([UINT8], [300.5], "values 300.5"),
    ([UINT8], [[300], np.int64(300), torch.tensor([300])], "values 300"),
    ([UINT8], [np.array([-1, 5, 300])], "values -1 … 300"),
    ([INT64], [np.array([2.0**63])], str(2**63)),
    ([INT32], [float("nan"), np.array([1, np.nan]), torch.tensor([float("nan")])], "nan"),
    ([INT64], [[1.0, float("inf")]], "inf"),
    ([FLOAT], [1e300], "values 1e+300 do not fit ... float32, which holds -3.4...e+38 … 3.4...e+38"),
    ([FLOAT], [np.float64(-1e300)], "values -1e+300"),
    ([FLOAT], [[1.0, 1e300, np.inf]], "values 1.0 … 1e+300"),
    (
        [FLOAT],
        [np.array([1e300, np.nan]), decimal.Decimal("1e300"), torch.tensor([1e300], dtype=torch.float64)],
        "values 1e+300 do",
    ),
    ([FLOAT64], [10**400], "values 1000"),
    ([FLOAT16], [70000], "values 70000 do not fit ... float16, which holds -65504.0 … 65504.0"),
    ([FLOAT16], [np.array([70000], np.float32), np.array([1, 70000], object), torch.tensor([70000])], "70000"),
]


class TestRefused:
    @pytest.mark.parametrize(
        ("dtypes", "values", "words", "is_overflow"),
        [(*row, table is OVERFLOWS) for table in (REFUSED, OVERFLOWS) for row in table],
    )
    def test_what_does_not_fit(self, dtypes, values, words, is_overflow):
        for dtype, value in itertools.product(dtypes, values):
            rule = words.format(dtype=np.dtype(NUMPY_TYPES[dtype]).name)
            error = assert_refused(functools.partial(stored, value, dtype), rule, FieldValueError)
            assert str(error).startswith("x: ")
            assert len(str(error)) < 600
            assert isinstance(error, OverflowError) == is_overflow

    def test_nothing_is_stored_then_and_the_message_has_the_whole_path(self):
        group = group_of(cameras=(group_of(image=UINT8), 2))
        group["cameras"][1]["image"] = 5
        with pytest.raises(FieldValueError, match=r"^cameras\[1\]\.image: cannot store 'a' of type str"):
            group.set_item_in_path(("cameras", 1, "image"), "a")
        assert group["cameras"][1]["image"] == 5

    def test_list_of_nodes(self):
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            node = fn.constant(idata=[1])
            with pytest.raises(FieldValueError, match=r"fn\.stack"):
                stored([node, node], INT32)


def test_bytes_are_taken_without_a_copy_unless_they_can_change():
    data = b"\0\1\2\3\4"
    for value in (data, memoryview(data)):
        result = stored(value, UINT8)
        assert (result.dtype, result.tolist()) == (np.uint8, [0, 1, 2, 3, 4])
        assert np.shares_memory(result, np.frombuffer(data, np.uint8))
        assert not result.flags.writeable
    assert stored(memoryview(data)[1:4:2], UINT8).tolist() == [1, 3]
    for buffer in (bytearray(data), np.frombuffer(bytearray(data), np.uint8).reshape(1, 5).data):
        for value in (buffer, memoryview(buffer), memoryview(buffer).toreadonly()):
            result = stored(value, UINT8)
            assert not np.shares_memory(result, np.asarray(buffer))
            np.testing.assert_array_equal(result, np.asarray(buffer))
            assert result.flags.writeable
    assert stored(b"", UINT8).shape == (0,)


@pytest.mark.parametrize("value", ["text", [1, "2"], object(), 1.5, np.arange(3)])
def test_without_conversion_any_object_is_stored_unchanged(value):
    group = group_of(x=UINT8)
    group.set_do_convert(False)
    group["x"] = value
    assert group["x"] is value


@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda dtype: dtype.name)
def test_tensors_stay_tensors(dtype):
    for source in (torch.tensor([1, 0], dtype=torch.int16), torch.tensor([1.0, 0.0], dtype=torch.float64)):
        result = stored(source, dtype)
        assert isinstance(result, torch.Tensor)
        assert result.numpy().dtype == NUMPY_TYPES[dtype]
        assert result.tolist() == [1, 0]


class FakeCupyArray:
    def __init__(self, array):
        self.array = array
        self.dtype, self.size = array.dtype, array.size

    def get(self):
        return self.array


def test_arrays_of_cupy_stay_on_the_device(monkeypatch):
    """With a stand-in for the library: what matters is that it is used, and only when the caller has it."""
    source = FakeCupyArray(np.arange(3))
    with pytest.raises(FieldValueError, match="FakeCupyArray"):
        stored(source, FLOAT)
    module = python_types.ModuleType("cupy")
    module.ndarray = FakeCupyArray
    module.array = lambda value, dtype: FakeCupyArray(np.array(value.array, dtype=dtype))
    monkeypatch.setitem(sys.modules, "cupy", module)
    result = stored(source, FLOAT)
    assert type(result) is FakeCupyArray
    assert result is not source
    assert result.dtype == np.float32
    text = group_of(name=DALIDataType.STRING)
    text.set_data([FakeCupyArray(np.frombuffer(b"ab", np.uint8))])
    assert text["name"] == "ab"
    for value, words in ((300, "values 300"), (0.5, "whole numbers")):
        assert_refused(lambda value=value: stored(FakeCupyArray(np.array([value])), UINT8), words, FieldValueError)
