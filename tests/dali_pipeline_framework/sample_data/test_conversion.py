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
from support.laws import each_value
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

FORMS_OF_NUMBERS = [lambda x: x, lambda x: [x], lambda x: np.array([[x]]), np.array, fractions.Fraction]


def stored(value, dtype):
    group = SampleDataGroup()
    group.add_data_field("x", dtype)
    group["x"] = value
    return group["x"]


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

    def test_matrix_becomes_an_ordinary_array(self):
        with pytest.warns(PendingDeprecationWarning):
            matrix = np.matrix([[1, 2]])
        result = stored(matrix, DALIDataType.FLOAT)
        assert type(result) is np.ndarray
        assert result.shape == (1, 2)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_is_always_a_copy(self, dtype):
        source = np.zeros(3, dtype)
        result = stored(source, DALIDataType.FLOAT)
        source[:] = 7
        assert result.tolist() == [0, 0, 0]
        assert result.flags.writeable

    @pytest.mark.parametrize(
        "value", [-2.0, np.float32(-2), [-2.0], np.array(-2.0), fractions.Fraction(-4, 2), decimal.Decimal("-2.0")]
    )
    def test_floats_that_are_whole_numbers_fit_integers(self, value):
        result = stored(value, DALIDataType.INT32)
        assert result.dtype == np.int32
        assert result.ravel().tolist() == [-2]

    @pytest.mark.parametrize("dtype", [DALIDataType.FLOAT16, DALIDataType.FLOAT, DALIDataType.FLOAT64])
    @pytest.mark.parametrize("form", [float, np.float64, lambda value: [value], lambda value: np.array([value])])
    def test_infinity_and_nan_of_the_input_are_kept(self, form, dtype):
        for value in (np.inf, -np.inf, np.nan):
            np.testing.assert_array_equal(stored(form(value), dtype).ravel(), [value])

    @pytest.mark.parametrize(
        ("value", "dtype", "result"),
        [
            (65504, DALIDataType.FLOAT16, 65504),
            (np.array([65519.0]), DALIDataType.FLOAT16, 65504),
            (np.finfo(np.float32).max, DALIDataType.FLOAT, float(np.finfo(np.float32).max)),
            (1e300, DALIDataType.FLOAT64, 1e300),
            (1e-300, DALIDataType.FLOAT, 0),
            (2**127, DALIDataType.FLOAT, 2.0**127),
        ],
    )
    def test_numbers_at_the_limits_of_float_types(self, value, dtype, result):
        assert stored(value, dtype).ravel().tolist() == [result]

    def test_none_unsets(self):
        assert stored(None, DALIDataType.FLOAT) is None

    @pytest.mark.parametrize("value", [[0, 2**64 - 1], [2**63, 1], 2**64 - 1, np.uint64(2**64 - 1)], ids=repr)
    def test_large_integers_are_exact(self, value):
        assert stored(value, DALIDataType.UINT64).tolist() == value

    def test_other_numbers(self):
        assert stored(decimal.Decimal("1.5"), DALIDataType.FLOAT) == 1.5
        assert stored(np.array([1, 2.5], dtype=object), DALIDataType.FLOAT).tolist() == [1, 2.5]

    def test_dates_fit_int64(self):
        date = np.array(["2020-01-01"], dtype="datetime64[s]")
        assert stored(date, DALIDataType.INT64).tolist() == [1577836800]

    def test_anything_with_an_array_interface(self):
        class Image:
            def __array__(self, dtype=None, copy=None):
                return np.arange(3)

        assert stored(Image(), DALIDataType.UINT8).tolist() == [0, 1, 2]

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


FLOAT16, FLOAT, FLOAT64 = DALIDataType.FLOAT16, DALIDataType.FLOAT, DALIDataType.FLOAT64
UINT8, UINT32, UINT64 = DALIDataType.UINT8, DALIDataType.UINT32, DALIDataType.UINT64
INT32, INT64, BOOL = DALIDataType.INT32, DALIDataType.INT64, DALIDataType.BOOL
ANY = (FLOAT, UINT8, BOOL)
WHOLE = (UINT8, INT32, UINT64)
FRACTION = "a field of type {dtype} holds whole numbers, got "
MASKED = np.ma.array([1.0, 2, 3], mask=[False, True, True])
# Types of fields, values, and words of the error.
REFUSED = [
    (
        ANY,
        ["text", np.str_("text"), ["1"], np.array(["1"]), np.array([b"1"]), np.array([1, "2"], object)],
        "cannot store ...STRING field",
    ),
    (ANY, [range(3), {1, 2}, (i for i in range(3))], "cannot store ...list(...)"),
    (ANY, [{"a": 1}, SampleDataGroup(), [1, {"a": 1}]], "cannot store ...data group field"),
    (ANY, [[[1], [1, 2]], [np.zeros(2), np.zeros(3)]], "cannot store ...different lengths"),
    (ANY, [1j, np.array([1j]), torch.tensor([1j])], "cannot store ...real"),
    (ANY, [object()], "cannot store ...set_do_convert(False)"),
    (ANY, [np.zeros(2, dtype=[("a", np.int32)])], "cannot store ...array of numbers"),
    (
        (INT32, FLOAT, BOOL),
        [[1, None], [[None]], np.array([1.5, None], dtype=object)],
        "cannot store None of type NoneType ... float('nan')",
    ),
    (WHOLE, [0.75, np.float16(0.75)], FRACTION + "0.75. Scale or round"),
    (WHOLE, [[3.0, 3.75]], FRACTION + "3.75... Scale or round"),
    (WHOLE, [np.array([[4, 0.5, 2.5]])], FRACTION + "0.5 at [0, 1] and 1 more such value(s). Scale or round"),
    (WHOLE, [np.array([1, 0.5], dtype=object)], FRACTION + "0.5. Scale or round"),
    (WHOLE, [fractions.Fraction(29, 10)], FRACTION + "2.9. Scale or round"),
    (WHOLE, [decimal.Decimal("0.7")], FRACTION + "0.7. Scale or round"),
    (WHOLE, [torch.tensor([1, 0.5], dtype=torch.bfloat16)], FRACTION + "0.5 at [1]"),
    ([UINT8], [-0.5], FRACTION + "-0.5"),
    (
        [BOOL],
        [np.nan, np.float32(np.nan), [1.0, np.nan], np.array([np.nan]), torch.tensor([float("nan")])],
        "NaN is neither true nor false",
    ),
    (
        (FLOAT, INT32, FLOAT64),
        [MASKED, [MASKED, MASKED], ([MASKED],)],
        "2 element(s) of the masked array are masked. Fill them first",
    ),
    ([FLOAT], [[1.0, np.ma.masked]], "1 element"),
    (
        [UINT8],
        ["images/0.jpg", pathlib.Path("images/0.jpg")],
        "cannot store ...read the file: np.fromfile(path, np.uint8)",
    ),
    (
        [FLOAT],
        [b"1234", bytearray(b"1234"), memoryview(b"1234")],
        "np.frombuffer(value, np.float32), or use a UINT8 field",
    ),
    ([UINT8], [memoryview(np.zeros(2, np.float32))], "cannot store <memory...np.frombuffer(value, np.uint8)"),
    ([FLOAT], [np.array(["2020-01-01"], dtype="datetime64[s]")], "INT64"),
    ([INT64], [np.array(["2020-01-01", "NaT"], dtype="datetime64[s]")], "NaT"),
]
# The same, of numbers that the type has not.
OVERFLOWS = [
    ([UINT8], [256], "values 256 do not fit ... uint8, which holds 0 … 255"),
    ([UINT64], [-1], "values -1"),
    ([UINT64], [2**64], str(2**64)),
    ([UINT8], [300.5], "values 300.5"),
    ([UINT8], [[300], [np.int64(300)], np.int64(300), torch.tensor([300])], "values 300"),
    ([UINT8], [np.array([-1, 5, 300])], "values -1 … 300"),
    ([UINT8], [np.array([300.7])], "values 300.7"),
    ([INT64], [np.array([2.0**63])], str(2**63)),
    ([UINT32], [np.array([-1.0])], "values -1"),
    ([INT32], [float("nan"), np.array([1, np.nan]), torch.tensor([float("nan")])], "nan"),
    ([INT64], [[1.0, float("inf")]], "inf"),
    ([INT32], [np.array([2**40])], str(2**40)),
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
    (
        [FLOAT16],
        [70000.0, np.array([70000], np.float32), np.array([1, 70000], object), torch.tensor([70000])],
        "70000",
    ),
    ([FLOAT16], [np.array([[5, 70000]])], "values 5 … 70000"),
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
            assert isinstance(error, OverflowError) == is_overflow

    def test_masked_arrays_are_filled_first(self):
        filled = stored(MASKED.filled(0), DALIDataType.FLOAT)
        assert filled.tolist() == [1, 0, 0]
        unmasked = stored(np.ma.array([1, 2]), DALIDataType.FLOAT)
        assert type(unmasked) is np.ndarray
        assert unmasked.tolist() == [1, 2]

    def test_masked_labels(self):
        group = SampleDataGroup()
        group.add_data_field("x", DALIDataType.INT32, mapping={"car": 1})
        with pytest.raises(FieldValueError, match=r"^x: 1 element"):
            group["x"] = np.ma.array(["car", "car"], mask=[False, True])

    @pytest.mark.parametrize("path", ["images/0.jpg", pathlib.Path("images/0.jpg")], ids=type)
    def test_paths_are_read_into_fields_of_bytes_only(self, path):
        with pytest.raises(FieldValueError, match="STRING field") as info:
            stored(path, DALIDataType.FLOAT)
        assert "fromfile" not in str(info.value)

    @pytest.mark.parametrize("form", FORMS_OF_NUMBERS)
    @pytest.mark.parametrize(
        ("value", "dtype", "message"),
        [
            (2, DALIDataType.BOOL, r"bool holds true and false, .* 0 and 1, got 2.* value != 0 .* integer type"),
            (255, DALIDataType.BOOL, "got 255"),
            (-1, DALIDataType.BOOL, "got -1"),
            (0.5, DALIDataType.BOOL, r"got 0\.5"),
            (2**24 + 1, DALIDataType.FLOAT, "up to 16777216 exactly.* got 16777217.* INT64 or FLOAT64"),
            (-(2**24) - 1, DALIDataType.FLOAT, "got -16777217"),
            (
                1_700_000_000_000_001,
                DALIDataType.FLOAT,
                "would become 1699999998017536.*INT64 or FLOAT64",
            ),
            (2049, DALIDataType.FLOAT16, "up to 2048 exactly.* got 2049.*would become 2048"),
            (1_700_000_000_000_000_001, DALIDataType.FLOAT64, "up to 9007199254740992.* type INT64,"),
            (2**64 - 1, DALIDataType.FLOAT64, "would become 18446744073709551616"),
        ],
    )
    def test_what_would_be_stored_as_another_number(self, value, dtype, message, form):
        with pytest.raises(FieldValueError, match=f"^x: a field of type .*{message}"):
            stored(form(value), dtype)

    def test_the_place_of_such_a_number(self):
        for value, dtype, words in [
            (np.array([[0, 255, 1, 2]], np.uint8), BOOL, "got 255 at [0, 1] and 1 more such value(s)"),
            ([0.5, 2**24 + 1], FLOAT, "got 16777217, which would become 16777216. Give"),
            ([np.int64(2**24 + 1), 0.5], FLOAT, "got 16777217"),
            ([[0.5], [np.uint32(2**24 + 1)]], FLOAT, "got 16777217"),
            ([0.5, 2**53 + 1], FLOAT64, "got 9007199254740993"),
            ([np.nan, 2**53 + 1], FLOAT64, "got 9007199254740993"),
        ]:
            assert_refused(functools.partial(stored, value, dtype), words, FieldValueError)

    @pytest.mark.parametrize("dtype", [DALIDataType.FLOAT, DALIDataType.FLOAT64])
    def test_not_integers_beyond_int64_that_a_float_holds(self, dtype: DALIDataType) -> None:
        assert stored([2**63, 1], dtype).tolist() == [2.0**63, 1.0]

    @pytest.mark.parametrize("form", FORMS_OF_NUMBERS)
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (1, DALIDataType.BOOL),
            (1.0, DALIDataType.BOOL),
            (2**24, DALIDataType.FLOAT),
            (2**25, DALIDataType.FLOAT),
            (-(2**60), DALIDataType.FLOAT),
            (1e15 + 0.5, DALIDataType.FLOAT),
            (2048, DALIDataType.FLOAT16),
            (2**63, DALIDataType.FLOAT64),
            (2**53 - 1, DALIDataType.FLOAT64),
        ],
    )
    def test_numbers_that_are_the_same_and_fractions_that_are_rounded(self, value, dtype, form):
        result = stored(form(value), dtype)
        assert result.dtype == NUMPY_TYPES[dtype]
        assert result.ravel()[0] == np.asarray(value, NUMPY_TYPES[dtype])

    def test_nothing_is_stored_then(self):
        group = SampleDataGroup()
        group.add_data_field("x", DALIDataType.UINT8)
        group["x"] = 5
        with pytest.raises(FieldValueError):
            group["x"] = 256
        assert group["x"] == 5

    def test_message_has_the_whole_path(self):
        inner, outer = SampleDataGroup(), SampleDataGroup()
        inner.add_data_field("image", DALIDataType.UINT8)
        outer.add_data_group_field_array("cameras", inner, 2)
        with pytest.raises(FieldValueError, match=r"^cameras\[1\]\.image: cannot store 'a' of type str"):
            outer.set_item_in_path(("cameras", 1, "image"), "a")

    def test_message_is_short_for_large_values(self):
        with pytest.raises(FieldValueError) as info:
            stored("a" * 10_000, DALIDataType.FLOAT)
        assert len(str(info.value)) < 400

    def test_list_of_nodes(self):
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            node = fn.constant(idata=[1])
            with pytest.raises(FieldValueError, match=r"fn\.stack"):
                stored([node, node], DALIDataType.INT32)


class TestBytes:
    def test_bytes_are_taken_without_a_copy(self):
        data = bytes(range(5))
        for value in (data, memoryview(data)):
            result = stored(value, DALIDataType.UINT8)
            assert (result.dtype, result.tolist()) == (np.uint8, [0, 1, 2, 3, 4])
            assert np.shares_memory(result, np.frombuffer(data, np.uint8))
            assert not result.flags.writeable
        assert stored(memoryview(data)[1:4:2], DALIDataType.UINT8).tolist() == [1, 3]

    @pytest.mark.parametrize("form", [lambda data: data, memoryview, lambda data: memoryview(data).toreadonly()])
    def test_buffers_that_can_change_are_copied(self, form):
        data = bytearray(b"\1\2")
        result = stored(form(data), DALIDataType.UINT8)
        data[0] = 9
        assert result.tolist() == [1, 2]
        assert result.flags.writeable

    def test_views_keep_their_shape(self):
        image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
        result = stored(memoryview(image), DALIDataType.UINT8)
        np.testing.assert_array_equal(result, image)
        assert not np.shares_memory(result, image)

    def test_empty(self):
        assert stored(b"", DALIDataType.UINT8).shape == (0,)


class TestWithoutConversion:
    @pytest.mark.parametrize("dtype", [DALIDataType.FLOAT, DALIDataType.UINT8])
    @pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}, [1, "2"], object(), 1.5, np.arange(3)])
    def test_any_object_is_stored_unchanged(self, value, dtype):
        group = SampleDataGroup()
        group.add_data_field("x", dtype)
        group.set_do_convert(False)
        group.set_do_check_type(False)
        group["x"] = value
        assert group["x"] is value


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_stays_a_tensor_of_the_fields_type(self, torch):
        source = torch.arange(3, dtype=torch.float64)
        result = stored(source, DALIDataType.FLOAT)
        assert isinstance(result, torch.Tensor)
        assert result.dtype == torch.float32
        assert result.tolist() == [0, 1, 2]

    def test_is_a_copy(self, torch):
        source = torch.zeros(2)
        result = stored(source, DALIDataType.FLOAT)
        source += 1
        assert result.tolist() == [0, 0]

    @pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda dtype: dtype.name)
    def test_all_types(self, torch, dtype):
        result = stored(torch.ones(2, dtype=torch.int16), dtype)
        assert result.numpy().dtype == NUMPY_TYPES[dtype]

    def test_whole_numbers_fit_integers(self, torch):
        assert stored(torch.tensor([1.0, 2.0]), DALIDataType.UINT8).tolist() == [1, 2]


class TestCupy:
    """With a stand-in for the library: what matters is that it is used, and only when the caller has it."""

    class FakeArray:
        def __init__(self, array):
            self.array = array
            self.dtype, self.size = array.dtype, array.size

        def get(self):
            return self.array

    @pytest.fixture
    def cupy(self, monkeypatch):
        module = python_types.ModuleType("cupy")
        module.ndarray = self.FakeArray
        module.array = lambda value, dtype: self.FakeArray(np.array(value.array, dtype=dtype))
        monkeypatch.setitem(sys.modules, "cupy", module)
        return module

    def test_stays_on_the_device(self, cupy):
        source = cupy.ndarray(np.arange(3))
        result = stored(source, DALIDataType.FLOAT)
        assert type(result) is cupy.ndarray
        assert result is not source
        assert result.dtype == np.float32

    def test_range(self, cupy):
        with pytest.raises(OverflowError, match="300"):
            stored(cupy.ndarray(np.array([300])), DALIDataType.UINT8)
        with pytest.raises(OverflowError, match=r"1e\+300"):
            stored(cupy.ndarray(np.array([1e300])), DALIDataType.FLOAT)
        with pytest.raises(FieldValueError, match="whole numbers"):
            stored(cupy.ndarray(np.array([0.5])), DALIDataType.UINT8)

    def test_without_the_library_it_is_an_unknown_object(self):
        with pytest.raises(FieldValueError, match="FakeArray"):
            stored(self.FakeArray(np.arange(3)), DALIDataType.FLOAT)


@pytest.mark.wide
def test_jax_arrays_become_numpy_arrays():
    jnp = pytest.importorskip("jax.numpy")
    result = stored(jnp.arange(3), DALIDataType.FLOAT)
    assert type(result) is np.ndarray
    assert result.tolist() == [0, 1, 2]
