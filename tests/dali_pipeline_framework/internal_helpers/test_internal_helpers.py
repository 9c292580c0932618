"""The published helpers of graphs and of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.internal_helpers import (
    check_type,
    get_as_data_node,
    get_mapped,
    print_tensor_op,
    print_tensor_size_op,
)

MAPPING = {"car": 1, "bike": 2}


def run(define: Any, device_id: int | None = None) -> Any:
    """The output for a batch of two."""
    pipeline = pipeline_def(batch_size=2, num_threads=1, device_id=device_id)(define)()
    pipeline.build()
    return pipeline.run()[0].as_cpu()


def batches(*samples: Any, layout: str | None = None, device_id: int | None = None) -> Any:
    node = fn.external_source(source=lambda: list(samples), batch=True, layout=layout)
    return node if device_id is None else node.gpu()


@pytest.mark.parametrize(
    ("label", "mapping", "encapsulate", "expected"),
    [
        ("car", MAPPING, False, 1),
        ("car", MAPPING, True, [1]),
        (("car", ["bike", ("car",)]), MAPPING, True, [1, [2, [1]]]),
        (["tree", None], {**MAPPING, None: 0}, False, [0, 0]),
    ],
)
def test_labels_of_any_depth_are_mapped(label: Any, mapping: Any, encapsulate: bool, expected: Any) -> None:
    assert get_mapped(label, mapping, encapsulate) == expected


@pytest.mark.parametrize("error", [KeyError, FieldValueError])
def test_a_label_without_number_is_refused(error: type[Exception]) -> None:
    assert_refused(
        lambda: get_mapped(["car", "tree"], MAPPING), "'tree' is not a key of the mapping...'car', 'bike'", error
    )


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, np.int32),
        (-(2**31), np.int32),
        (2**31 - 1, np.int32),
        ([[1, 2, 3], [4, 5, 6]], np.int32),
        (np.arange(4, dtype=np.int64), np.int32),
        (42.0, np.float32),
        ([1, 2.5], np.float32),
        (np.ones((2, 1, 3)), np.float32),
    ],
    ids=str,
)
def test_numbers_become_constants_of_the_graph(value: Any, dtype: Any) -> None:
    for array in map(np.array, run(lambda: get_as_data_node(value))):
        assert (array.dtype, array.shape) == (dtype, np.shape(value))
        np.testing.assert_array_equal(array, value)


def test_a_node_is_returned_as_it_is() -> None:
    def define() -> Any:
        node = batches(np.zeros(3), np.ones(3))
        assert get_as_data_node(node) is node
        return node * 0 + get_as_data_node(42.0)

    np.testing.assert_array_equal(run(define).at(1), [42.0, 42.0, 42.0])


@pytest.mark.parametrize("value", [2**31, [0, -(2**31) - 1], np.array([2**63], dtype=np.uint64)], ids=str)
def test_integers_beyond_int32_are_refused(value: Any) -> None:
    assert_refused(lambda: get_as_data_node(value), "INT32 (-2147483648 … 2147483647)", OverflowError)


@pytest.mark.parametrize("value", ["text", [[1], [1, 2]], None, [], 1j], ids=str)
def test_what_is_not_numeric_is_refused(value: Any) -> None:
    assert_refused(lambda: get_as_data_node(value), "constant", FieldValueError)


@pytest.mark.parametrize(
    ("sample", "layout", "device_id"),
    [
        (np.arange(6, dtype=np.float32).reshape(1, 2, 3), "HWC", None),
        (np.array(3, dtype=np.float32), None, None),
        (np.zeros((0, 4), dtype=np.float32), "AB", None),
        pytest.param(np.ones((2, 3), np.float32), None, 0, marks=pytest.mark.gpu),
    ],
)
def test_data_of_the_right_type_pass_with_shape_and_layout(
    sample: np.ndarray, layout: str | None, device_id: int | None
) -> None:
    def define(dtype: Any = np.float32) -> Any:
        return check_type(batches(sample, sample, layout=layout, device_id=device_id), dtype, "boxes")

    output = run(define, device_id)
    assert (output.layout(), output.at(1).shape) == (layout or "", sample.shape)
    np.testing.assert_array_equal(output.at(1), sample)
    words = "Expected type of boxes: int32...actual data type is: float32"
    assert_refused(lambda: run(lambda: define(np.int32), device_id), words, RuntimeError)


def test_only_a_node_can_be_checked() -> None:
    assert_refused(lambda: check_type(np.zeros(2), np.float32, "boxes"), "DataNode for boxes", TypeError)


@pytest.mark.parametrize("device_id", [None, pytest.param(0, marks=pytest.mark.gpu)])
def test_values_and_shapes_are_printed_for_each_batch(capsys: Any, device_id: int | None) -> None:
    def define() -> Any:
        node = batches(np.array([1, 2]), np.array([3, 4]), device_id=device_id)
        assert print_tensor_op(node, "ids") is None
        assert print_tensor_size_op(node, "sizes") is None
        return node

    run(define, device_id)
    lines = capsys.readouterr().out.splitlines()
    of_ids, of_sizes = (lines.index(f" {name} ".center(60, "-")) for name in ("ids", "sizes"))
    assert lines[of_ids + 1 : of_ids + 5] == ["batch size: 2", "ids[0]: [1 2]", "ids[1]: [3 4]", "-" * 60]
    assert lines[of_sizes + 2] == "sizes[0]: (2,)"
