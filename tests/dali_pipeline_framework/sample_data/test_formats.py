"""Formats as values: what is equal, what matches, how they are edited, shared and pickled."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from nvidia.dali.types import DALIDataType
from sample_data_strategies import formats
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import (
    DuplicateFieldError,
    FieldValueError,
    FormatError,
    NameTypeError,
    SettingError,
)
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, SampleDataGroup, ValueMapping
from accvlab.dali_pipeline_framework.sample_data.dtypes import (
    NUMPY_TYPES,
    get_dali_type_for_numpy_type,
    get_numpy_type_for_dali_type,
)
from accvlab.dali_pipeline_framework.sample_data.formats import leaf_format

FLOAT = leaf_format(DALIDataType.FLOAT)
UINT8 = leaf_format(DALIDataType.UINT8)
STRING = leaf_format(DALIDataType.STRING)


@pytest.mark.parametrize(
    ("format", "paths"),
    [
        (GroupFormat(("a.b", "a"), (FLOAT, GroupFormat(("b",), (FLOAT,)))), r"\('a\.b',\) and of \('a', 'b'\)"),
        (GroupFormat(("[1]", 1), (FLOAT, FLOAT)), r"\('\[1\]',\) and of \(1,\)"),
    ],
)
def test_colliding_flat_names_are_found_when_asked_for(format, paths):
    assert format.num_leaves == 2
    with pytest.raises(FormatError, match=paths):
        _ = format.flat_names
    assert GroupFormat(("CAM.FRONT",), (FLOAT,)).flat_names == ("CAM.FRONT",)


class TestComparison:
    def test_leaves(self):
        mapping = {"a": 1}
        mapped = leaf_format(DALIDataType.FLOAT, ValueMapping(mapping), 2)
        assert leaf_format(DALIDataType.FLOAT, ValueMapping(mapping), 2) is mapped
        ranked = leaf_format(DALIDataType.FLOAT, ndim=1)
        assert mapped != FLOAT != ranked
        mine, *others = (GroupFormat(("a",), (leaf,)) for leaf in (FLOAT, mapped, ranked))
        assert all(mine.matches(other) for other in others)
        assert leaf_format(DALIDataType.STRING, ndim=1).numpy_dtype == np.uint8

    @given(formats, formats)
    def test_equality_and_hash(self, first, second):
        rebuilt = GroupFormat(first.names, first.children)
        assert rebuilt == first
        assert hash(rebuilt) == hash(first)
        assert rebuilt.matches(first)
        if first == second:
            assert first.matches(second)

    @given(formats, formats)
    def test_first_difference_agrees_with_the_flat_lists(self, first, second):
        mine, theirs = (
            list(zip(format.flat_paths, format.flat_dtypes, strict=True)) for format in (first, second)
        )
        position = first.first_difference(second)
        assert position == second.first_difference(first)
        if position == -1:
            assert [path for path, _ in mine] == [path for path, _ in theirs]
        else:
            assert mine[:position] == theirs[:position]

    @pytest.mark.parametrize(
        ("format", "other"),
        [
            *(
                (GroupFormat(("a",), (FLOAT,)), other)
                for other in (
                    GroupFormat(("a",), (GroupFormat(),)),
                    GroupFormat(("b",), (FLOAT,)),
                    GroupFormat(("a",), (UINT8,)),
                    GroupFormat(("a", "b"), (FLOAT, FLOAT)),
                    FLOAT,
                    None,
                )
            ),
            (GroupFormat(("a", "b"), (FLOAT, FLOAT)), GroupFormat(("b", "a"), (FLOAT, FLOAT))),
            (GroupFormat(("0",), (FLOAT,)), GroupFormat((0,), (FLOAT,))),
            (GroupFormat(("a",), (STRING,)), GroupFormat(("a",), (UINT8,))),
        ],
    )
    def test_formats_that_do_not_match(self, format, other):
        assert not format.matches(other)
        assert format != other


class TestEdits:
    def test_edits_give_new_formats(self):
        format = GroupFormat(("a",), (FLOAT,))
        longer = format.with_field("b", UINT8)
        assert (format.names, longer.names, longer.children) == (("a",), ("a", "b"), (FLOAT, UINT8))
        assert longer.without("a") == GroupFormat(("b",), (UINT8,))
        assert longer.with_replaced({("a",): STRING}) == GroupFormat(("a", "b"), (STRING, UINT8))
        for value, attribute in ((longer, "names"), (FLOAT, "dtype")):
            with pytest.raises(AttributeError):
                setattr(value, attribute, None)

    @given(formats)
    def test_build_and_take_apart(self, format):
        built = GroupFormat()
        for name, child in zip(format.names, format.children, strict=True):
            built = built.with_field(name, child)
        assert built == format
        assert built.index == format.index
        assert built.num_leaves == format.num_leaves == len(format.flat_leaves)
        assert built.group_positions == format.group_positions
        assert [format.at(path) for path in format.flat_paths] == list(format.flat_leaves)
        for name in format.names:
            built = built.without(name)
        assert built == GroupFormat()


class TestSharing:
    def test_copies_and_pickles_of_leaves_are_the_same_object(self):
        assert pickle.loads(pickle.dumps(FLOAT)) is copy.deepcopy([FLOAT])[0] is FLOAT
        group = GroupFormat(("a",), (FLOAT,))
        assert copy.copy(group) is copy.deepcopy(group) is group

    def test_mapping_is_immutable_and_shared(self):
        entries = {"a": [1, 2], None: [0, 0]}
        mapping = ValueMapping(entries)
        entries["a"].append(3)
        entries["b"] = 1
        assert dict(mapping) == {"a": [1, 2], None: [0, 0]}
        assert copy.deepcopy(mapping) is mapping
        assert pickle.loads(pickle.dumps(mapping)) == mapping
        assert mapping != ValueMapping({"a": [1, 3], None: [0, 0]})
        assert mapping != {"a": [1, 2], None: [0, 0]}


def test_dtypes_there_and_back():
    assert get_numpy_type_for_dali_type(DALIDataType.FLOAT) is np.float32
    assert get_dali_type_for_numpy_type(">i4") == DALIDataType.INT32
    for dtype in NUMPY_TYPES:
        assert get_dali_type_for_numpy_type(get_numpy_type_for_dali_type(dtype)) == dtype


REFUSED = [
    *(
        (lambda ndim=ndim: leaf_format(DALIDataType.FLOAT, ndim=ndim), SettingError, "ndim must be None or an int")
        for ndim in (-1, 1.0, True)
    ),
    (lambda: leaf_format(DALIDataType.STRING, ndim=2), SettingError, "one dimension"),
    (lambda: leaf_format(DALIDataType.STRING, ValueMapping({"a": 1})), AssertionError, "mapping"),
    (lambda: leaf_format(np.float64), FieldValueError, "use DALIDataType.FLOAT64"),
    (lambda: leaf_format(DALIDataType.IMAGE_TYPE), TypeError, "IMAGE_TYPE"),
    (lambda: GroupFormat(("a", "a"), (FLOAT, FLOAT)), DuplicateFieldError, "'a'"),
    (lambda: GroupFormat((True,), (FLOAT,)), NameTypeError, "True"),
    (lambda: GroupFormat(("a", ""), (FLOAT, FLOAT)), SettingError, "at least one character"),
    (lambda: GroupFormat(("a",), ()), SettingError, "1 names for 0 children"),
    *(
        (
            lambda dtype=dtype: SampleDataGroup.get_numpy_type_for_dali_type(dtype),
            ValueError,
            "does not have a corresponding numpy type",
        )
        for dtype in (DALIDataType.STRING, DALIDataType.NO_TYPE, DALIDataType.DATA_TYPE)
    ),
    (lambda: get_dali_type_for_numpy_type(complex), FieldValueError, "complex128"),
    (lambda: ValueMapping([("a", 1)]), SettingError, "dict"),
    (lambda: ValueMapping({("a", "b"): 1}), SettingError, "element by element"),
]


@pytest.mark.parametrize(("make", "error", "words"), REFUSED)
def test_refused_at_birth(make, error, words):
    assert_refused(make, words, error)
