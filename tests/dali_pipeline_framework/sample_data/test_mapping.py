"""Labels that become numbers on assignment."""

import numpy as np
import pytest
import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

CLASSES = {"vehicle": 1, "pedestrian": 2, None: 0}


def stored(value, mapping=CLASSES, dtype=DALIDataType.INT32):
    group = SampleDataGroup()
    group.add_data_field("label", dtype, mapping)
    group["label"] = value
    return group["label"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("vehicle", 1),
        ("unknown", 0),
        (np.str_("pedestrian"), 2),
        (["vehicle", "pedestrian", "unknown"], [1, 2, 0]),
        (("vehicle", "pedestrian"), [1, 2]),
        ([["vehicle", "x"], ["x", "pedestrian"]], [[1, 0], [0, 2]]),
        ((("vehicle",), ("pedestrian",)), [[1], [2]]),
        (["vehicle", None], [1, 0]),
        (["vehicle", 7], [1, 7]),
        (["vehicle", np.str_("pedestrian")], [1, 2]),
        ([], []),
        (np.array(["vehicle", "unknown"]), [1, 0]),
        (np.array([["vehicle"], ["pedestrian"]]), [[1], [2]]),
        (np.array("vehicle"), 1),
        (np.array(["vehicle", None], dtype=object), [1, 0]),
        (np.array([], dtype=str), []),
        ([np.array(["vehicle"]), np.array(["x"])], [[1], [0]]),
    ],
    ids=repr,
)
def test_labels(value, expected):
    result = stored(value)
    assert result.dtype == np.int32
    assert result.tolist() == expected
    assert result.shape == np.shape(expected)


def test_string_dtype_arrays():
    string_dtype = pytest.importorskip("numpy.dtypes").StringDType
    assert stored(np.array(["vehicle", "x", "vehicle"], dtype=string_dtype())).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "value", [7, 7.0, np.int64(7), [7], np.array([7, 8]), [[7], [8]], True, torch.tensor([3, 4])], ids=repr
)
def test_numbers_are_no_labels(value):
    assert stored(value).tolist() == np.asarray(value).astype(np.int32).tolist()


@pytest.mark.parametrize("value", [True, [True, False], np.array([True, False]), np.bool_(True)], ids=repr)
def test_booleans_as_labels(value):
    expected = np.where(value, 5, 6).tolist()
    assert stored(value, {True: 5, False: 6}).tolist() == expected


def test_numbers_as_labels():
    mapping = {0: 10, 255: 11, None: -1}
    assert stored(255, mapping) == 11
    assert stored([0, 7], mapping).tolist() == [10, -1]
    assert stored(np.array([[0, 255], [7, 0]], dtype=np.uint8), mapping).tolist() == [[10, 11], [-1, 10]]


def test_values_are_converted_like_others():
    assert stored(None) is None
    assert stored("a", {"a": 1.5}, DALIDataType.FLOAT) == np.float32(1.5)
    assert stored("a", {"a": True}, DALIDataType.BOOL).dtype == np.bool_
    with pytest.raises(OverflowError, match="300"):
        stored("a", {"a": 300}, DALIDataType.UINT8)


def test_a_label_may_become_several_numbers():
    one_hot = {"a": [1, 0], "b": [0, 1]}
    assert stored(["b", "a"], one_hot).tolist() == [[0, 1], [1, 0]]
    assert stored(np.array(["b", "a"]), one_hot).tolist() == [[0, 1], [1, 0]]


NO_KEY = "label: 'tree' is not a key of the mapping...Known keys: 'vehicle', 'pedestrian'"
KNOWN = {"vehicle": 1, "pedestrian": 2}
REFUSED = [
    *(
        (value, KNOWN, NO_KEY)
        for value in (
            *("tree", ["vehicle", "tree"], ("tree",), [["tree"]]),
            *(np.array(["tree", "vehicle"]), [["vehicle"], ["tree"]]),
        )
    ),
    (["a", None], {"a": 1}, "None is not a key"),
    (7, {0: 1}, "7 is not a key"),
    ({"a": 1}, CLASSES, "label: ...hashable"),
]


@pytest.mark.parametrize(("value", "mapping", "words"), REFUSED, ids=repr)
def test_what_is_no_label(value, mapping, words):
    error = assert_refused(lambda: stored(value, mapping), words, FieldValueError)
    assert isinstance(error, KeyError) == ("key" in words)


def test_switched_off():
    group = SampleDataGroup()
    group.add_data_field("label", DALIDataType.INT32, CLASSES)
    group.set_apply_mapping(False)
    with pytest.raises(FieldValueError, match="cannot store 'vehicle'"):
        group["label"] = "vehicle"
    group["label"] = 5
    assert group["label"] == 5


def test_conversion_switched_off():
    group = SampleDataGroup()
    group.add_data_field("label", DALIDataType.INT32, CLASSES)
    group.set_do_convert(False)
    group["label"] = ("vehicle", "x")
    assert group["label"] == [1, 0]


def test_nodes_cannot_be_mapped():
    group = SampleDataGroup()
    group.add_data_field("label", DALIDataType.INT32, CLASSES)
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        node = fn.constant(idata=[1])
        with pytest.raises(FieldValueError, match=r"^label: has a mapping.*set_apply_mapping\(False\)"):
            group["label"] = node
        group.set_apply_mapping(False)
        group["label"] = node
        assert group["label"] is node


def test_numbers_of_other_libraries_as_labels():
    mapping = {3: 0, 7: 1, None: -1}
    assert stored(torch.tensor([3, 7, 9]), mapping).tolist() == [0, 1, -1]
    assert stored(torch.tensor(7), mapping) == 1
    assert stored([torch.tensor(3), torch.tensor(9)], mapping).tolist() == [0, -1]


@pytest.mark.parametrize("value", [b"car", [b"car"], np.array([b"car"]), np.array([b"car"], object)])
def test_bytes_are_labels_as_their_text(value):
    assert np.ravel(stored(value, {"car": 1, None: 0})).tolist() == [1]
    assert np.ravel(stored(value, {b"car": 2, "car": 1, None: 0})).tolist() == [2]
