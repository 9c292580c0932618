"""What becomes of values that are assigned to numeric fields."""

import decimal
import fractions
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

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES


def stored(value, dtype):
    group = SampleDataGroup()
    group.add_data_field("x", dtype)
    group["x"] = value
    return group["x"]


class TestResult:
    @pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda dtype: dtype.name)
    @pytest.mark.parametrize(
        "value",
        [1, 1.0, True, np.bool_(True), np.float64(1), np.int8(1), [1], (1.0,), [[True]], np.ones((2, 1)), []],
        ids=repr,
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

    @pytest.mark.parametrize("value", [2.9, np.float32(2.9), [2.9], np.array(2.9), fractions.Fraction(29, 10)])
    def test_floats_are_truncated(self, value):
        assert stored(value, DALIDataType.INT32).ravel().tolist() == [2]
        assert stored(np.negative(value), DALIDataType.INT32).ravel().tolist() == [-2]

    def test_negative_fraction_fits_unsigned(self):
        assert stored(-0.5, DALIDataType.UINT8) == 0
        assert stored(np.array([-0.5, 255.9]), DALIDataType.UINT8).tolist() == [0, 255]

    def test_none_unsets(self):
        assert stored(None, DALIDataType.FLOAT) is None

    def test_none_in_a_list_of_floats_is_nan(self):
        np.testing.assert_array_equal(stored([1, None], DALIDataType.FLOAT), [1, np.nan])

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
            (b"bytes", "np.frombuffer"),
            (bytearray(b"a"), "np.frombuffer"),
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

    def test_missing_values_among_integers(self):
        with pytest.raises(FieldValueError, match="None"):
            stored([1, None], DALIDataType.INT32)

    @pytest.mark.parametrize(
        ("value", "dtype", "message"),
        [
            (256, DALIDataType.UINT8, r"values 256 do not fit .* uint8, which holds 0 … 255"),
            (-1, DALIDataType.UINT64, "values -1"),
            (2**64, DALIDataType.UINT64, str(2**64)),
            (300.5, DALIDataType.UINT8, "values 300"),
            ([300], DALIDataType.UINT8, "values 300"),
            ([np.int64(300)], DALIDataType.UINT8, "values 300"),
            (np.int64(300), DALIDataType.UINT8, "values 300"),
            (np.array([-1, 5, 300]), DALIDataType.UINT8, "values -1 … 300"),
            (np.array([300.7]), DALIDataType.UINT8, "values 300"),
            (np.array([2.0**63]), DALIDataType.INT64, str(2**63)),
            (np.array([-1.0]), DALIDataType.UINT32, "values -1"),
            (float("nan"), DALIDataType.INT32, "nan"),
            (np.array([1, np.nan]), DALIDataType.INT32, "nan"),
            ([1.0, float("inf")], DALIDataType.INT64, "inf"),
            (np.array([2**40]), DALIDataType.INT32, str(2**40)),
        ],
    )
    def test_what_would_wrap_around(self, value, dtype, message):
        with pytest.raises(FieldValueError, match=message):
            stored(value, dtype)
        with pytest.raises(OverflowError):
            stored(value, dtype)

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

    def test_complex(self, torch):
        with pytest.raises(FieldValueError, match="real"):
            stored(torch.tensor([1j]), DALIDataType.FLOAT)


class TestCupy:
    """With a stand-in for the library: what matters is that it is used, and only when the caller has it."""

    class FakeArray:
        def __init__(self, array):
            self.array = array
            self.dtype, self.size = array.dtype, array.size

        def min(self):
            return self.array.min()

        def max(self):
            return self.array.max()

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

    def test_without_the_library_it_is_an_unknown_object(self):
        with pytest.raises(FieldValueError, match="FakeArray"):
            stored(self.FakeArray(np.arange(3)), DALIDataType.FLOAT)


def test_jax_arrays_become_numpy_arrays():
    jnp = pytest.importorskip("jax.numpy")
    result = stored(jnp.arange(3), DALIDataType.FLOAT)
    assert type(result) is np.ndarray
    assert result.tolist() == [0, 1, 2]
