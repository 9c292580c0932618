import sys

import numpy as np
import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from support.child_processes import run_process

from accvlab.dali_pipeline_framework.internal_helpers import (
    check_type,
    get_as_data_node,
    get_mapped,
    print_tensor_op,
    print_tensor_size_op,
)


def run(define, batch_size=2, **settings):
    settings = {"num_threads": 1, "device_id": None} | settings
    pipeline = pipeline_def(batch_size=batch_size, **settings)(define)()
    pipeline.build()
    return pipeline.run()


def batches(*samples, layout=None):
    return fn.external_source(source=lambda: list(samples), batch=True, layout=layout)


class TestGetMapped:
    mapping = {"car": 1, "bike": 2}  # noqa: RUF012

    def test_label(self):
        assert get_mapped("car", self.mapping) == 1

    def test_sequences_of_any_depth_become_lists(self):
        assert get_mapped(("car", ["bike", ("car",)]), self.mapping) == [1, [2, [1]]]

    def test_default(self):
        assert get_mapped(["tree", None], {**self.mapping, None: 0}) == [0, 0]

    def test_encapsulates_a_single_label_only(self):
        assert get_mapped("car", self.mapping, encapsulate=True) == [1]
        assert get_mapped(["car", ["bike"]], self.mapping, True) == [1, [2]]

    def test_unknown_label_without_default(self):
        with pytest.raises(KeyError, match=r"'tree' is not a key of the mapping.*'car', 'bike'"):
            get_mapped(["car", "tree"], self.mapping)
        with pytest.raises(ValueError, match="tree"):
            get_mapped("tree", self.mapping)


class TestGetAsDataNode:
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (True, np.int32),
            (7, np.int32),
            (-(2**31), np.int32),
            (2**31 - 1, np.int32),
            ([[1, 2, 3], [4, 5, 6]], np.int32),
            (np.arange(4, dtype=np.int64), np.int32),
            (42.0, np.float32),
            ([1, 2.5], np.float32),
            (np.ones((2, 1, 3)), np.float32),
            (np.float32(0.5), np.float32),
        ],
        ids=str,
    )
    def test_constant(self, value, dtype):
        (output,) = run(lambda: get_as_data_node(value))
        for i in range(2):
            array = output.at(i)
            assert array.dtype == dtype
            assert array.shape == np.shape(value)
            np.testing.assert_array_equal(array, value)

    def test_node_is_returned_as_it_is(self):
        def define():
            node = batches(np.zeros(3), np.ones(3))
            assert get_as_data_node(node) is node
            return node * 0 + get_as_data_node(42.0)

        (output,) = run(define)
        np.testing.assert_array_equal(output.at(1), [42.0, 42.0, 42.0])

    @pytest.mark.parametrize(
        "value", [2**31, -(2**31) - 1, [0, 2**40], np.array([2**63], dtype=np.uint64)], ids=str
    )
    def test_integers_beyond_int32_are_refused(self, value):
        with pytest.raises(OverflowError, match=r"INT32 \(-2147483648 … 2147483647\)"):
            get_as_data_node(value)

    @pytest.mark.parametrize("value", ["text", [[1], [1, 2]], None, [], 1j], ids=str)
    def test_what_is_not_numeric_is_refused(self, value):
        with pytest.raises(ValueError, match="constant"):
            get_as_data_node(value)


class TestCheckType:
    @pytest.mark.parametrize(
        ("sample", "layout"),
        [
            (np.arange(6, dtype=np.float32).reshape(1, 2, 3), "HWC"),
            (np.array(3, dtype=np.float32), None),
            (np.zeros((0, 4), dtype=np.float32), "AB"),
        ],
    )
    def test_data_shape_and_layout_pass(self, sample, layout):
        (output,) = run(lambda: check_type(batches(sample, sample, layout=layout), np.float32, "x"))
        assert output.layout() == (layout or "")
        assert output.at(1).shape == sample.shape
        np.testing.assert_array_equal(output.at(1), sample)

    def test_wrong_type(self):
        def define():
            return check_type(batches(np.zeros(2, np.int32), np.zeros(2, np.int32)), np.float32, "boxes")

        with pytest.raises(RuntimeError, match=r"Expected type .*float32.* actual data type .*int32") as info:
            run(define)
        assert "boxes" in str(info.value)

    def test_needs_a_node(self):
        with pytest.raises(TypeError, match="boxes"):
            check_type(np.zeros(2), np.float32, "boxes")

    @pytest.mark.gpu
    def test_on_the_gpu(self):
        def define(dtype=np.float32):
            return check_type(batches(np.ones((2, 3), np.float32), np.float32(1), layout=None).gpu(), dtype, "x")

        (output,) = run(define, device_id=0)
        np.testing.assert_array_equal(output.as_cpu().at(0), np.ones((2, 3)))
        with pytest.raises(RuntimeError, match=r"Expected type .*int32.* actual data type .*float32"):
            run(lambda: define(np.int32), device_id=0)


class TestPrintOps:
    def test_values(self, capsys):
        def define():
            node = batches(np.array([1, 2]), np.array([3, 4]))
            assert print_tensor_op(node, "ids") is None
            return node

        run(define)
        lines = capsys.readouterr().out.splitlines()
        rule = "-" * 60
        header = " ids ".center(60, "-")
        block = [header, "batch size: 2", "ids[0]: [1 2]", "ids[1]: [3 4]", rule]
        assert lines[:5] == block

    def test_sizes(self, capsys):
        def define():
            node = batches(np.zeros((2, 3)), np.zeros((0, 3)))
            assert print_tensor_size_op(node, "boxes") is None
            return node

        run(define)
        out = capsys.readouterr().out
        assert "boxes[0]: (2, 3)\n" in out
        assert "boxes[1]: (0, 3)\n" in out

    @pytest.mark.gpu
    def test_on_the_gpu(self, capsys):
        def define():
            node = batches(np.array([1, 2]), np.array([3, 4])).gpu()
            print_tensor_op(node, "ids")
            return node

        run(define, device_id=0)
        assert "ids[1]: [3 4]" in capsys.readouterr().out


def test_no_heavy_imports():
    code = (
        "import sys\n"
        "import accvlab.dali_pipeline_framework.sample_data\n"
        "import accvlab.dali_pipeline_framework.internal_helpers\n"
        "print([name for name in ('torch', 'cupy', 'jax', 'numba') if name in sys.modules])"
    )
    result = run_process([sys.executable, "-c", code])
    assert result.stdout == "[]\n", result.stderr
