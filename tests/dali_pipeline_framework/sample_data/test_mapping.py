"""Labels that become numbers on assignment."""

import numpy as np
import pytest
import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType
from support.array_samples import group_of
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError

CLASSES = {"vehicle": 1, "pedestrian": 2, None: 0}
KNOWN = {"vehicle": 1, "pedestrian": 2}
ONE_HOT = {"a": [1, 0], "b": [0, 1]}
NUMBERS = {3: 0, 255: 11, None: -1}
HDF5 = {"car": 1, None: 0}


def labels_of(mapping, dtype=DALIDataType.INT32):
    return group_of(label=(dtype, {"mapping": mapping}))


def stored(value, mapping=CLASSES, dtype=DALIDataType.INT32):
    group = labels_of(mapping, dtype)
    group["label"] = value
    return group["label"]


@pytest.mark.parametrize(
    ("mapping", "value", "expected"),
    [
        (CLASSES, "vehicle", 1),
        (CLASSES, np.str_("unknown"), 0),
        (CLASSES, ["vehicle", "pedestrian", "unknown"], [1, 2, 0]),
        (CLASSES, [("vehicle", "x"), ["x", "pedestrian"]], [[1, 0], [0, 2]]),
        (CLASSES, ["vehicle", None, 7, np.str_("pedestrian")], [1, 0, 7, 2]),
        (CLASSES, [], []),
        (CLASSES, np.array([["vehicle"], ["pedestrian"]]), [[1], [2]]),
        (CLASSES, np.array("vehicle"), 1),
        (CLASSES, np.array(["vehicle", None], dtype=object), [1, 0]),
        (CLASSES, np.array([], dtype=str), []),
        (CLASSES, [np.array(["vehicle"]), np.array(["x"])], [[1], [0]]),
        # numbers are labels only where the mapping has some
        *((CLASSES, value, np.asarray(value).tolist()) for value in (7, np.int64(7), [7], np.array([7, 8]))),
        (CLASSES, torch.tensor([3, 4]), [3, 4]),
        (NUMBERS, 255, 11),
        (NUMBERS, [3, 7], [0, -1]),
        (NUMBERS, np.array([[3, 255], [7, 3]], dtype=np.uint8), [[0, 11], [-1, 0]]),
        (NUMBERS, torch.tensor([3, 255, 9]), [0, 11, -1]),
        (NUMBERS, [torch.tensor(3), torch.tensor(9)], [0, -1]),
        *(
            ({True: 5, False: 6}, value, np.where(value, 5, 6).tolist())
            for value in (True, np.array([True, False]))
        ),
        # bytes are labels as their text
        *((HDF5, value, np.ones(np.shape(value)).tolist()) for value in (b"car", [b"car"], np.array([b"car"]))),
        ({b"car": 2, "car": 1}, np.array([b"car"], object), [2]),
        # several numbers for a label
        (ONE_HOT, ["b", "a"], [[0, 1], [1, 0]]),
        (ONE_HOT, np.array(["b", "a"]), [[0, 1], [1, 0]]),
    ],
    ids=repr,
)
def test_labels(mapping, value, expected):
    result = stored(value, mapping)
    assert np.asarray(result).dtype == np.int32
    assert result.tolist() == expected
    assert result.shape == np.shape(expected)


def test_string_dtype_arrays():
    string_dtype = pytest.importorskip("numpy.dtypes").StringDType
    assert stored(np.array(["vehicle", "x", "vehicle"], dtype=string_dtype())).tolist() == [1, 0, 1]


def test_values_are_converted_like_others():
    assert stored(None) is None
    assert stored("a", {"a": 1.5}, DALIDataType.FLOAT) == np.float32(1.5)
    assert stored("a", {"a": True}, DALIDataType.BOOL).dtype == np.bool_
    with pytest.raises(OverflowError, match="300"):
        stored("a", {"a": 300}, DALIDataType.UINT8)
    group = labels_of(CLASSES)
    group.set_do_convert(False)
    group["label"] = ("vehicle", "x")
    assert group["label"] == [1, 0]


NO_KEY = "label: 'tree' is not a key of the mapping...Known keys: 'vehicle', 'pedestrian'"
REFUSED = [
    *(
        (value, KNOWN, NO_KEY)
        for value in ("tree", ["vehicle", "tree"], [["tree"]], np.array(["tree", "vehicle"]))
    ),
    (["a", None], {"a": 1}, "None is not a key"),
    (7, {0: 1}, "7 is not a key"),
    ({"a": 1}, CLASSES, "label: ...hashable"),
    (np.ma.array(["vehicle"] * 2, mask=[False, True]), CLASSES, "label: 1 element(s) of the masked array"),
]


@pytest.mark.parametrize(("value", "mapping", "words"), REFUSED, ids=repr)
def test_what_is_no_label(value, mapping, words):
    error = assert_refused(lambda: stored(value, mapping), words, FieldValueError)
    assert isinstance(error, KeyError) == ("key" in words)


def test_nodes_cannot_be_mapped_and_mapping_can_be_switched_off():
    group = labels_of(CLASSES)
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        node = fn.constant(idata=[1])
        with pytest.raises(FieldValueError, match=r"^label: has a mapping.*set_apply_mapping\(False\)"):
            group["label"] = node
        group.set_apply_mapping(False)
        group["label"] = node
        assert group["label"] is node
    with pytest.raises(FieldValueError, match="cannot store 'vehicle'"):
        group["label"] = "vehicle"
    group["label"] = 5
    assert group["label"] == 5
