"""What becomes of values that are assigned to numeric fields."""

import decimal
import fractions
import pathlib
import sys
import types as python_types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType
from support.laws import each_value

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
        with pytest.raises(FieldValueError, match="INT64"):
            stored(date, DALIDataType.FLOAT)
        with pytest.raises(FieldValueError, match=r"^x: NaT"):
            stored(np.array(["2020-01-01", "NaT"], dtype="datetime64[s]"), DALIDataType.INT64)

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


class TestRefused:
    @pytest.mark.parametrize("dtype", [DALIDataType.FLOAT, DALIDataType.UINT8, DALIDataType.BOOL])
    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            ("text", "STRING field"),
            (np.str_("text"), "STRING field"),
            (["1", "2"], "STRING field"),
            (np.array(["1"]), "STRING field"),
            (np.array([b"1"]), "STRING field"),
            (np.array([1, "2"], dtype=object), "STRING field"),
            (range(3), r"list\(\.\.\.\)"),
            ({1, 2}, r"list\(\.\.\.\)"),
            ((i for i in range(3)), r"list\(\.\.\.\)"),
            ({"a": 1}, "data group field"),
            (SampleDataGroup(), "data group field"),
            ([[1], [1, 2]], "different lengths"),
            ([np.zeros(2), np.zeros(3)], "different lengths"),
            ([1, {"a": 1}], "data group field"),
            (1j, "real"),
            (np.array([1j]), "real"),
            (object(), r"set_do_convert\(False\)"),
            (np.zeros(2, dtype=[("a", np.int32)]), "array of numbers"),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_what_is_no_array_of_numbers(self, value, advice, dtype):
        with pytest.raises(FieldValueError, match=f"(?s)^x: cannot store .*{advice}"):
            stored(value, dtype)

    @pytest.mark.parametrize("dtype", [DALIDataType.INT32, DALIDataType.FLOAT, DALIDataType.BOOL])
    @pytest.mark.parametrize("value", [[1, None], [[None]], np.array([1.5, None], dtype=object)], ids=repr)
    def test_none_among_numbers(self, value, dtype):
        with pytest.raises(FieldValueError, match=r"^x: cannot store None of type NoneType .* float\('nan'\)"):
            stored(value, dtype)

    @pytest.mark.parametrize("dtype", [DALIDataType.UINT8, DALIDataType.INT32, DALIDataType.UINT64])
    @pytest.mark.parametrize(
        ("value", "got"),
        [
            (0.75, "got 0.75. Scale or round"),
            (np.float16(0.75), "got 0.75. Scale or round"),
            ([3.0, 3.75], r"got 3.75( at \[1\])?\. Scale or round"),
            (np.array([[4, 0.5, 2.5]]), r"got 0.5 at \[0, 1\] and 1 more such value\(s\)\. Scale or round"),
            (np.array([1, 0.5], dtype=object), "got 0.5. Scale or round"),
            (fractions.Fraction(29, 10), "got 2.9. Scale or round"),
            (decimal.Decimal("0.7"), "got 0.7. Scale or round"),
        ],
        ids=repr,
    )
    def test_fractions_in_integer_fields(self, value, got, dtype):
        name = np.dtype(NUMPY_TYPES[dtype]).name
        with pytest.raises(FieldValueError, match=f"^x: a field of type {name} holds whole numbers, {got}"):
            stored(value, dtype)

    def test_negative_fractions_in_unsigned_fields(self):
        with pytest.raises(FieldValueError, match=r"whole numbers, got -0\.5"):
            stored(-0.5, DALIDataType.UINT8)

    @pytest.mark.parametrize("value", [np.nan, np.float32(np.nan), [1.0, np.nan], np.array([np.nan])], ids=repr)
    def test_nan_is_no_truth_value(self, value):
        with pytest.raises(FieldValueError, match=r"^x: NaN is neither true nor false"):
            stored(value, DALIDataType.BOOL)

    def test_masked_arrays(self):
        array = np.ma.array([1.0, 2, 3], mask=[False, True, True])
        message = r"^x: 2 element\(s\) of the masked array are masked\. Fill them first"
        for value in (array, [array, array], ([array],)):
            for dtype in (DALIDataType.FLOAT, DALIDataType.INT32, DALIDataType.FLOAT64):
                with pytest.raises(FieldValueError, match=message):
                    stored(value, dtype)
        with pytest.raises(FieldValueError, match="1 element"):
            stored([1.0, np.ma.masked], DALIDataType.FLOAT)
        filled = stored(array.filled(0), DALIDataType.FLOAT)
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
    def test_paths_in_fields_of_bytes(self, path):
        with pytest.raises(
            FieldValueError, match=r"^x: cannot store .*read the file: np\.fromfile\(path, np\.uint8\)"
        ):
            stored(path, DALIDataType.UINT8)
        with pytest.raises(FieldValueError, match="STRING field") as info:
            stored(path, DALIDataType.FLOAT)
        assert "fromfile" not in str(info.value)

    @pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
    def test_bytes_in_fields_of_other_types(self, form):
        with pytest.raises(FieldValueError, match=r"np\.frombuffer\(value, np\.float32\), or use a UINT8 field"):
            stored(form(b"1234"), DALIDataType.FLOAT)

    @pytest.mark.parametrize(
        ("value", "dtype", "message"),
        [
            (256, DALIDataType.UINT8, r"values 256 do not fit .* uint8, which holds 0 … 255"),
            (-1, DALIDataType.UINT64, "values -1"),
            (2**64, DALIDataType.UINT64, str(2**64)),
            (300.5, DALIDataType.UINT8, "values 300.5"),
            ([300], DALIDataType.UINT8, "values 300"),
            ([np.int64(300)], DALIDataType.UINT8, "values 300"),
            (np.int64(300), DALIDataType.UINT8, "values 300"),
            (np.array([-1, 5, 300]), DALIDataType.UINT8, "values -1 … 300"),
            (np.array([300.7]), DALIDataType.UINT8, "values 300.7"),
            (np.array([2.0**63]), DALIDataType.INT64, str(2**63)),
            (np.array([-1.0]), DALIDataType.UINT32, "values -1"),
            (float("nan"), DALIDataType.INT32, "nan"),
            (np.array([1, np.nan]), DALIDataType.INT32, "nan"),
            ([1.0, float("inf")], DALIDataType.INT64, "inf"),
            (np.array([2**40]), DALIDataType.INT32, str(2**40)),
            (
                1e300,
                DALIDataType.FLOAT,
                r"values 1e\+300 do not fit .* float32, which holds -3\.4\d+e\+38 … 3\.4\d+e\+38",
            ),
            (np.float64(-1e300), DALIDataType.FLOAT, r"values -1e\+300"),
            ([1.0, 1e300, np.inf], DALIDataType.FLOAT, r"values 1.0 … 1e\+300"),
            (np.array([1e300, np.nan]), DALIDataType.FLOAT, r"values 1e\+300 do"),
            (decimal.Decimal("1e300"), DALIDataType.FLOAT, r"values 1e\+300"),
            (10**400, DALIDataType.FLOAT64, "values 1000"),
            (70000, DALIDataType.FLOAT16, r"values 70000 do not fit .* float16, which holds -65504.0 … 65504.0"),
            (70000.0, DALIDataType.FLOAT16, "values 70000"),
            (np.array([[5, 70000]]), DALIDataType.FLOAT16, "values 5 … 70000"),
            (np.array([70000], np.float32), DALIDataType.FLOAT16, "values 70000"),
            (np.array([1, 70000], object), DALIDataType.FLOAT16, "values 70000"),
        ],
    )
    def test_what_would_wrap_around(self, value, dtype, message):
        with pytest.raises(FieldValueError, match=message):
            stored(value, dtype)
        with pytest.raises(OverflowError):
            stored(value, dtype)

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
        with pytest.raises(FieldValueError, match=r"got 255 at \[0, 1\] and 1 more such value\(s\)"):
            stored(np.array([[0, 255, 1, 2]], np.uint8), DALIDataType.BOOL)
        with pytest.raises(FieldValueError, match=r"got 16777217, which would become 16777216\. Give"):
            stored([0.5, 2**24 + 1], DALIDataType.FLOAT)
        with pytest.raises(FieldValueError, match="got 9007199254740993"):
            stored([0.5, 2**53 + 1], DALIDataType.FLOAT64)
        for mixed in ([np.int64(2**24 + 1), 0.5], [[0.5], [np.uint32(2**24 + 1)]]):
            with pytest.raises(FieldValueError, match="got 16777217"):
                stored(mixed, DALIDataType.FLOAT)
        with pytest.raises(FieldValueError, match="got 9007199254740993"):
            stored([np.nan, 2**53 + 1], DALIDataType.FLOAT64)

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

    def test_views_of_other_elements_are_no_bytes(self):
        with pytest.raises(FieldValueError, match=r"^x: cannot store <memory.*np\.frombuffer\(value, np\.uint8\)"):
            stored(memoryview(np.zeros(2, np.float32)), DALIDataType.UINT8)

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

    def test_range(self, torch):
        with pytest.raises(OverflowError, match="300"):
            stored(torch.tensor([300]), DALIDataType.UINT8)
        with pytest.raises(OverflowError, match="nan"):
            stored(torch.tensor([float("nan")]), DALIDataType.INT32)
        with pytest.raises(OverflowError, match=r"1e\+300"):
            stored(torch.tensor([1e300], dtype=torch.float64), DALIDataType.FLOAT)
        with pytest.raises(OverflowError, match="70000"):
            stored(torch.tensor([70000]), DALIDataType.FLOAT16)

    def test_fractions_and_nan(self, torch):
        with pytest.raises(FieldValueError, match=r"whole numbers, got 0\.5 at \[1\]"):
            stored(torch.tensor([1, 0.5], dtype=torch.bfloat16), DALIDataType.UINT8)
        with pytest.raises(FieldValueError, match="neither true nor false"):
            stored(torch.tensor([float("nan")]), DALIDataType.BOOL)
        assert stored(torch.tensor([1.0, 2.0]), DALIDataType.UINT8).tolist() == [1, 2]

    def test_complex(self, torch):
        with pytest.raises(FieldValueError, match="real"):
            stored(torch.tensor([1j]), DALIDataType.FLOAT)


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
