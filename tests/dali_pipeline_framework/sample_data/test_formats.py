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
    FieldKindError,
    FieldNotFoundError,
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

CAMERA = GroupFormat(("image", "token"), (UINT8, STRING))
SAMPLE = GroupFormat(("cameras", "empty", "time"), (GroupFormat((0, 1), (CAMERA, CAMERA)), GroupFormat(), FLOAT))


def driving_format():
    """77 data fields: six cameras with eleven each, and eleven more."""
    mapping = ValueMapping({"car": 1, "pedestrian": 2, None: 0})
    camera = GroupFormat()
    for i in range(11):
        camera = camera.with_field(f"field_{i}", leaf_format(list(NUMPY_TYPES)[i], mapping if i == 3 else None))
    meta = GroupFormat(tuple(f"m_{i}" for i in range(11)), (FLOAT,) * 11)
    return GroupFormat(("cameras", "meta"), (GroupFormat(tuple(range(6)), (camera,) * 6), meta))


class TestFlat:
    def test_order_names_and_types(self):
        assert SAMPLE.flat_names == (
            "cameras.[0].image",
            "cameras.[0].token",
            "cameras.[1].image",
            "cameras.[1].token",
            "time",
        )
        assert SAMPLE.flat_paths[3] == ("cameras", 1, "token")
        assert SAMPLE.flat_leaves == (UINT8, STRING, UINT8, STRING, FLOAT)
        assert SAMPLE.flat_dtypes == (DALIDataType.UINT8,) * 4 + (DALIDataType.FLOAT,)
        assert SAMPLE.num_leaves == 5
        assert SAMPLE.group_positions == (0, 1)

    def test_is_derived_once(self):
        assert SAMPLE.flat_paths is SAMPLE.flat_paths
        assert SAMPLE.flat_names is SAMPLE.flat_names
        assert SAMPLE.flat_dtypes is SAMPLE.flat_dtypes

    @given(formats)
    def test_parallel(self, format):
        assert len(format.flat_paths) == len(format.flat_leaves) == len(format.flat_dtypes) == format.num_leaves
        assert [format.at(path) for path in format.flat_paths] == list(format.flat_leaves)

    @pytest.mark.parametrize(
        ("format", "paths"),
        [
            (
                GroupFormat(("a.b", "a"), (FLOAT, GroupFormat(("b",), (FLOAT,)))),
                r"\('a\.b',\) and of \('a', 'b'\)",
            ),
            (GroupFormat(("[1]", 1), (FLOAT, FLOAT)), r"\('\[1\]',\) and of \(1,\)"),
        ],
    )
    def test_colliding_names_are_found_when_asked_for(self, format, paths):
        assert format.num_leaves == 2
        with pytest.raises(FormatError, match=paths):
            _ = format.flat_names

    def test_dots_alone_do_no_harm(self):
        assert GroupFormat(("CAM.FRONT",), (FLOAT,)).flat_names == ("CAM.FRONT",)


class TestLeaf:
    def test_equal_arguments_give_one_object(self):
        mapping = {"a": 1}
        first = leaf_format(DALIDataType.INT32, ValueMapping(mapping), 2)
        assert leaf_format(DALIDataType.INT32, ValueMapping(mapping), 2) is first

    def test_what_matches_and_what_is_equal(self):
        mapped = leaf_format(DALIDataType.FLOAT, ValueMapping({"a": 1}))
        ranked = leaf_format(DALIDataType.FLOAT, ndim=1)
        assert mapped != FLOAT != ranked
        mine, *others = (GroupFormat(("a",), (leaf,)) for leaf in (FLOAT, mapped, ranked, UINT8, GroupFormat()))
        assert [mine.matches(other) for other in others] == [True, True, False, False]

    def test_text_has_one_dimension(self):
        assert leaf_format(DALIDataType.STRING, ndim=1).ndim == 1

    def test_text_is_stored_as_bytes(self):
        assert STRING.is_string
        assert STRING.numpy_dtype == np.uint8
        assert STRING.transport_dtype == DALIDataType.UINT8
        assert not UINT8.is_string


class TestComparison:
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
        mine = list(zip(first.flat_paths, first.flat_dtypes, strict=True))
        theirs = list(zip(second.flat_paths, second.flat_dtypes, strict=True))
        position = first.first_difference(second)
        assert position == second.first_difference(first)
        if position == -1:
            assert [path for path, _ in mine] == [path for path, _ in theirs]
        else:
            assert mine[:position] == theirs[:position]

    @pytest.mark.parametrize(
        "other",
        [
            GroupFormat(("a",), (GroupFormat(),)),
            GroupFormat(("b",), (FLOAT,)),
            GroupFormat(("a",), (UINT8,)),
            GroupFormat(("a", "b"), (FLOAT, FLOAT)),
            GroupFormat(),
            FLOAT,
            None,
            "a",
        ],
    )
    def test_formats_that_do_not_match(self, other):
        format = GroupFormat(("a",), (FLOAT,))
        assert not format.matches(other)
        assert format != other

    def test_order_counts(self):
        assert not GroupFormat(("a", "b"), (FLOAT, FLOAT)).matches(GroupFormat(("b", "a"), (FLOAT, FLOAT)))

    def test_text_and_number_names_differ(self):
        assert not GroupFormat(("0",), (FLOAT,)).matches(GroupFormat((0,), (FLOAT,)))

    def test_text_is_not_its_bytes(self):
        assert not GroupFormat(("a",), (STRING,)).matches(GroupFormat(("a",), (UINT8,)))


class TestEdits:
    def test_edits_give_new_formats(self):
        format = GroupFormat(("a",), (FLOAT,))
        longer = format.with_field("b", UINT8)
        assert (format.names, longer.names, longer.children) == (("a",), ("a", "b"), (FLOAT, UINT8))
        assert longer.without("a") == GroupFormat(("b",), (UINT8,))
        assert longer.with_replaced({("a",): STRING}) == GroupFormat(("a", "b"), (STRING, UINT8))

    @given(formats)
    def test_build_and_take_apart(self, format):
        built = GroupFormat()
        for name, child in zip(format.names, format.children, strict=True):
            built = built.with_field(name, child)
        assert built == format
        assert built.index == format.index
        assert built.num_leaves == format.num_leaves
        assert built.group_positions == format.group_positions
        for name in format.names:
            built = built.without(name)
        assert built == GroupFormat()

    def test_values_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            SAMPLE.names = ()
        with pytest.raises(AttributeError):
            FLOAT.dtype = DALIDataType.UINT8


class TestLookUp:
    def test_at(self):
        assert SAMPLE.at(()) is SAMPLE
        assert SAMPLE.at(("cameras", 1)) is CAMERA
        assert SAMPLE.get(("cameras", 2, "image")) is None
        assert SAMPLE.get(("time", "x")) is None

    @given(formats)
    def test_find_finds_all_and_nothing_else(self, format):
        def all_paths(group, prefix=()):
            for name, child in zip(group.names, group.children, strict=True):
                yield (*prefix, name)
                if isinstance(child, GroupFormat):
                    yield from all_paths(child, (*prefix, name))

        for name in ["a", 0, "missing"]:
            found = format.find(name)
            assert sorted(map(repr, found)) == sorted(repr(path) for path in all_paths(format) if path[-1] == name)


class TestSharing:
    @given(formats)
    def test_pickle(self, format):
        restored = pickle.loads(pickle.dumps(format))
        assert restored == format
        assert hash(restored) == hash(format)
        assert restored.flat_names == format.flat_names

    def test_pickles_are_small(self):
        format = driving_format()
        assert format.num_leaves == 77
        assert len(pickle.dumps(format)) < 1000
        _ = format.flat_names, hash(format), format.skeleton
        assert len(pickle.dumps(format)) < 1000, "look-up tables must not travel"

    def test_restored_leaves_are_shared(self):
        assert pickle.loads(pickle.dumps(FLOAT)) is FLOAT

    def test_copies_are_the_same_object(self):
        assert copy.copy(SAMPLE) is SAMPLE
        assert copy.deepcopy(SAMPLE) is SAMPLE
        assert copy.deepcopy([FLOAT])[0] is FLOAT


class TestDtypes:
    @pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda dtype: dtype.name)
    def test_there_and_back(self, dtype):
        assert get_dali_type_for_numpy_type(get_numpy_type_for_dali_type(dtype)) == dtype

    def test_examples(self):
        assert get_numpy_type_for_dali_type(DALIDataType.FLOAT) is np.float32
        assert get_numpy_type_for_dali_type(DALIDataType.BOOL) is np.bool_
        assert get_dali_type_for_numpy_type(">i4") == DALIDataType.INT32


def test_mapping_is_immutable_and_shared():
    entries = {"a": [1, 2], None: [0, 0]}
    mapping = ValueMapping(entries)
    entries["a"].append(3)
    entries["b"] = 1
    assert dict(mapping) == {"a": [1, 2], None: [0, 0]}
    assert copy.deepcopy(mapping) is mapping
    assert pickle.loads(pickle.dumps(mapping)) == mapping
    assert mapping != ValueMapping({"a": [1, 3], None: [0, 0]})
    assert mapping != {"a": [1, 2], None: [0, 0]}
    with pytest.raises(TypeError):
        mapping["a"] = 1


A = GroupFormat(("a",), (FLOAT,))
REFUSED = [
    *(
        (lambda ndim=ndim: leaf_format(DALIDataType.FLOAT, ndim=ndim), SettingError, "ndim")
        for ndim in (-1, 1.0, True, "2")
    ),
    (lambda: leaf_format(DALIDataType.STRING, ndim=2), SettingError, "one dimension"),
    (lambda: leaf_format(DALIDataType.STRING, ValueMapping({"a": 1})), AssertionError, "mapping"),
    (lambda: leaf_format(np.float64), FieldValueError, "use DALIDataType.FLOAT64"),
    (lambda: leaf_format(DALIDataType.IMAGE_TYPE), TypeError, "IMAGE_TYPE"),
    (lambda: GroupFormat(("a", "a"), (FLOAT, FLOAT)), DuplicateFieldError, "'a'"),
    (lambda: A.with_field("a", FLOAT), DuplicateFieldError, "'a'"),
    (lambda: GroupFormat((True,), (FLOAT,)), NameTypeError, "True"),
    (lambda: GroupFormat().with_field(True, FLOAT), NameTypeError, "True"),
    (lambda: GroupFormat(("a", ""), (FLOAT, FLOAT)), SettingError, "at least one character"),
    (lambda: GroupFormat().with_field("", FLOAT), SettingError, "at least one character"),
    (lambda: GroupFormat(("a",), ()), SettingError, "1 names for 0 children"),
    (
        lambda: SAMPLE.at(("cameras", 2)),
        FieldNotFoundError,
        "No field with name '2' in cameras. Available: 0, 1",
    ),
    (lambda: SAMPLE.at(("time", "x")), FieldKindError, "time: is a data field"),
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
