"""Structure, reading, assignment and text of `SampleDataGroup`."""

import copy
import pickle
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali import fn
from nvidia.dali._debug_mode import DataNodeDebug
from nvidia.dali.pipeline import Pipeline, pipeline_def
from nvidia.dali.types import DALIDataType
from sample_data_strategies import formats, groups
from support.array_samples import group_of
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import (
    DuplicateFieldError,
    FieldKindError,
    FieldNotFoundError,
    FieldValueError,
    FormatError,
    FrameworkError,
    GroupFormatMismatchError,
    NameTypeError,
    SettingError,
)
from accvlab.dali_pipeline_framework.pipeline.sample_data_group import SampleDataGroup as PublishedClass
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.formats import leaf_format

FLOAT, INT32, UINT8, STRING = (DALIDataType.FLOAT, DALIDataType.INT32, DALIDataType.UINT8, DALIDataType.STRING)


@pytest.fixture
def sample():
    group = group_of(image=UINT8, meta=group_of(token=STRING, time=FLOAT))
    group.add_data_group_field_array("cameras", group_of(image=UINT8, label=INT32), 2)
    group.add_data_field_array("scores", FLOAT, 3)
    return group


def test_published_path():
    assert PublishedClass is SampleDataGroup


NAMES = "'image', 'meta', 'cameras', 'scores'"
MISSING = "No field with name 'x'"
TYPES = "x: the type of a data field must be one of"
NEW_FIELD = "must first be declared in `sample_data_structure` of the data provider (in a step: with add_data_"
# Method, arguments, error, and words of it.
REFUSED = [
    # names, types and blueprints of new fields
    *(("add_data_field", (name, FLOAT), DuplicateFieldError, name) for name in ("image", "meta")),
    *(("add_data_group_field", (name, SampleDataGroup()), KeyError, name) for name in ("image", "meta")),
    ("add_data_field", ("", FLOAT), SettingError, "a field name must have at least one character, got ''"),
    ("add_data_field_array", ("", FLOAT, 2), SettingError, "a field name must have at least one character"),
    ("add_data_group_field", ("", SampleDataGroup()), SettingError, "at least one character"),
    *(("add_data_field", (name, FLOAT), NameTypeError, "") for name in (None, 1.0, True, ("a",), b"a")),
    *(("add_data_group_field", (name, SampleDataGroup()), AssertionError, "") for name in (None, 1.0, b"a")),
    ("add_data_field", ("x", SampleDataGroup), AssertionError, "x: ...add_data_group_field"),
    ("add_data_field", ("x", SampleDataGroup()), AssertionError, "x: ...add_data_group_field"),
    *(("add_data_field", ("x", of), TypeError, TYPES) for of in ("FLOAT", None, int, DALIDataType.IMAGE_TYPE)),
    *(
        row
        for blueprint in (None, FLOAT, SampleDataGroup, {"a": 1})
        for row in [
            ("add_data_group_field", ("x", blueprint), FieldKindError, "SampleDataGroup"),
            ("create_data_group_field_array", (blueprint, 1), FieldKindError, "SampleDataGroup"),
        ]
    ),
    # reading
    *(
        row
        for name, words in (
            ("imagee", f"No field with name 'imagee'. Did you mean 'image'? Available: {NAMES}"),
            (7, f"No field with name '7'. Available: {NAMES}"),
        )
        for row in [
            ("__getitem__", (name,), FieldNotFoundError, words),
            ("get_item_in_path", ((name,),), FieldNotFoundError, words),
        ]
    ),
    ("get_item_in_path", (("cameras", 0, "x"),), FieldNotFoundError, f"{MISSING} in cameras[0]. Available"),
    ("get_item_in_path", (("cameras", 2, "image"),), KeyError, "No field with name '2' in cameras."),
    *(("__getitem__", (name,), AssertionError, "") for name in (None, 1.5, True, ("meta", "time"), np.int64(0))),
    *(
        (method, (path,), AssertionError, "")
        for method in ("get_item_in_path", "get_parent_of_path", "path_exists", "get_type_of_item_in_path")
        for path in (None, 1.5, {"a"}, np.array(["a"]))
    ),
    *(
        (method, (("image", "x"),), FieldKindError, "image: is a data field, so there is nothing below it")
        for method in ("get_item_in_path", "get_parent_of_path", "get_type_of_item_in_path")
    ),
    *(
        ("get_parent_of_path", (path,), KeyError, "No element 'x' is present")
        for path in ("x", ("x",), ("cameras", 1, "x"))
    ),
    ("get_parent_of_path", (("x", "y"),), KeyError, MISSING),
    ("get_parent_of_path", ((),), AssertionError, "at least one name"),
    *(("get_type_of_item_in_path", (path,), KeyError, MISSING) for path in (("x",), ("meta", "x"))),
    *(
        (method, ("x",), KeyError, "")
        for method in (
            *("get_type_of_field", "is_data_field", "is_data_group_field"),
            *("is_array", "is_data_field_array", "is_data_group_field_array"),
        )
    ),
    ("get_flat_index_first_discrepancy_to_other", (None,), FieldKindError, ""),
    # values
    ("set_data", ([None] * 9,), IndexError, "expected 10 values, one per data field, got 9"),
    ("set_data", ([],), IndexError, "expected 10 values, one per data field, got 0"),
    ("set_data", ([None] * 11,), FieldValueError, "expected 10 values, one per data field, got 11"),
    ("set_data", ([0] * 6,), FieldValueError, "cameras[1].label"),
    *(
        ("set_data", (data,), FieldValueError, "list or tuple")
        for data in ("0123456789", {}, None, 5, MappingProxyType(dict.fromkeys(range(10))))
    ),
    *(("__setitem__", (name, 1), NameTypeError, "") for name in (None, 1.5, True, ("meta", "time"), np.int64(0))),
    ("set_item_in_path", (("image", "x"), 1), AttributeError, ""),
    (
        "__setitem__",
        ("imag", 1),
        FieldNotFoundError,
        "'imag'. Did you mean 'image'? Available... A new field " + NEW_FIELD,
    ),
    ("set_item_in_path", (("cameras", 1, "labels"), 1), FieldNotFoundError, NEW_FIELD),
    ("__setitem__", ("x", 1), KeyError, MISSING),
    *(("set_item_in_path", (path, 1), KeyError, MISSING) for path in ("x", ("x",), ("x", "y"), ("meta", "x"))),
    ("set_item_in_path", ((), 1), AssertionError, ""),
    *(
        ("__setitem__", ("meta", value), FieldKindError, "meta: is a data group field")
        for value in (None, 5, {}, np.zeros(2), "a")
    ),
    # edits of the structure
    ("remove_field", ("x",), KeyError, "Cannot delete field 'x'"),
    ("__delitem__", ("imag",), KeyError, "Cannot delete field 'imag'...Did you mean 'image'"),
    *(
        ("change_type_of_data_and_remove_data", arguments, error, words)
        for arguments, error, words in [
            (("image", SampleDataGroup()), AssertionError, "image: is a data ...must stay one"),
            (("image", SampleDataGroup), AssertionError, "image: "),
            (("meta", FLOAT), AssertionError, "meta: is a data ...must stay one"),
            (("meta", SampleDataGroup(), {"a": 1}), AssertionError, "meta: a group can have neither"),
            (("image", STRING, {"a": 1}), AssertionError, "STRING"),
            ((("meta", "time"), np.float32), TypeError, "meta.time: the type of a data field"),
            (((), FLOAT), AssertionError, ""),
            ((("meta", "x"), FLOAT), KeyError, MISSING),
        ]
    ),
    *(
        ("check_has_children", (*children, *[None] * (4 - len(children)), "frame"), FormatError, words)
        for children, words in [
            (("x",), "does not have child `x`"),
            (("meta",), "`meta` of `frame` is not a data field"),
            ((None, "image"), "is not a data group field"),
            ((None, None, "cameras"), "is not a data field array"),
            ((None, None, "image"), "is not a data field array"),
            ((None, None, None, "scores"), "is not a data group field array"),
            ((None, None, None, "image"), "is not a data group field array"),
            ((["x", "y"], "image"), "child `x`...child `y`...`image` of ... is not a data group field"),
        ]
    ),
]


@pytest.mark.parametrize(("method", "arguments", "error", "words"), REFUSED)
def test_what_is_refused_changes_nothing(sample, method, arguments, error, words):
    sample.set_data(range(10))
    format = sample.format
    caught = assert_refused(lambda: getattr(sample, method)(*arguments), words, error)
    assert isinstance(caught, FrameworkError)
    assert sample.format is format
    assert sample.get_data() == tuple(range(10))


class TestConstruction:
    def test_new_group_is_empty(self):
        group = SampleDataGroup()
        assert len(group) == 0
        assert group.contained_top_level_field_names == ()
        assert group.field_names_flat == ()
        assert (group.apply_mapping, group.do_convert, group.do_check_type) == (True, True, True)

    def test_fields_keep_their_order(self, sample):
        assert sample.contained_top_level_field_names == ("image", "meta", "cameras", "scores")
        assert sample.field_top_level_types == (UINT8, SampleDataGroup, SampleDataGroup, SampleDataGroup)
        assert sample.field_names_flat == (
            "image",
            "meta.token",
            "meta.time",
            "cameras.[0].image",
            "cameras.[0].label",
            "cameras.[1].image",
            "cameras.[1].label",
            "scores.[0]",
            "scores.[1]",
            "scores.[2]",
        )
        assert sample.field_types_flat == (UINT8, UINT8, FLOAT, UINT8, INT32, UINT8, INT32, FLOAT, FLOAT, FLOAT)

    def test_top_level_integers(self):
        assert SampleDataGroup.create_data_field_array(FLOAT, 2).field_names_flat == ("[0]", "[1]")

    @pytest.mark.parametrize("count", [0, -3])
    def test_arrays_without_elements(self, count):
        assert len(SampleDataGroup.create_data_field_array(FLOAT, count)) == 0
        assert len(SampleDataGroup.create_data_group_field_array(SampleDataGroup(), count)) == 0

    def test_blueprints_are_copied_without_values(self):
        blueprint = group_of(a=FLOAT)
        blueprint["a"] = 1
        array = SampleDataGroup.create_data_group_field_array(blueprint, 2)
        parent = group_of(child=blueprint)
        assert array.get_data() == (None, None)
        assert parent["child"]["a"] is None
        assert parent["child"] is not blueprint
        assert array[0] is not array[1]
        blueprint.add_data_field("b", FLOAT)
        array[0].add_data_field("c", FLOAT)
        assert parent.field_names_flat == ("child.a",)
        assert array.field_names_flat == ("[0].a", "[0].c", "[1].a")

    def test_array_fields_share_a_mapping(self):
        group = SampleDataGroup()
        group.add_data_field_array("labels", INT32, 2, {"car": 3})
        group["labels"][1] = "car"
        assert group["labels"][1] == 3

    @pytest.mark.parametrize(
        ("field_type", "advice"),
        [
            (np.float32, r"\. For this NumPy type use DALIDataType\.FLOAT"),
            (torch.float16, r"\. For this PyTorch type use DALIDataType\.FLOAT16"),
            (torch.bfloat16, "got torch.bfloat16"),
        ],
    )
    def test_types_of_other_libraries(self, field_type, advice):
        with pytest.raises(TypeError, match=rf"^x: the type of a data field must be one of .*{advice}$"):
            SampleDataGroup().add_data_field("x", field_type)

    def test_ndim(self):
        group = SampleDataGroup()
        group.add_data_field("image", UINT8, ndim=3)
        group.add_data_field_array("boxes", FLOAT, 2, ndim=2)
        copied = pickle.loads(pickle.dumps(group.get_empty_like_self().get_copy()))
        assert [leaf.ndim for leaf in copied.format.flat_leaves] == [3, 2, 2]
        with pytest.raises(SettingError, match=r"^x: ndim"):
            group.add_data_field("x", UINT8, ndim=-1)
        group.change_type_of_data_and_remove_data("image", FLOAT)
        group.change_type_of_data_and_remove_data(("boxes", 0), FLOAT, new_ndim=1)
        assert [leaf.ndim for leaf in group.format.flat_leaves] == [None, 1, 2]

    @given(formats)
    def test_from_format(self, format):
        group = SampleDataGroup.from_format(format)
        assert group.format is format
        assert set(group.get_data()) <= {None}


class TestSwitches:
    SETTERS = ("set_apply_mapping", "set_do_convert", "set_do_check_type")
    GETTERS = ("apply_mapping", "do_convert", "do_check_type")

    @pytest.mark.parametrize(("setter", "getter"), list(zip(SETTERS, GETTERS, strict=True)))
    def test_go_down_the_tree(self, sample, setter, getter):
        getattr(sample, setter)(False)
        everywhere = [sample, sample["meta"], sample["cameras"], sample["cameras"][1]]
        assert [getattr(group, getter) for group in everywhere] == [False] * 4
        others = [name for name in self.GETTERS if name != getter]
        assert all(getattr(group, name) for group in everywhere for name in others)
        getattr(sample["cameras"], setter)(True)
        assert [getattr(group, getter) for group in everywhere] == [False, False, True, True]

    @pytest.mark.parametrize(("setter", "getter"), list(zip(SETTERS, GETTERS, strict=True)))
    def test_new_and_replaced_groups_take_those_of_the_parent(self, sample, setter, getter):
        getattr(sample, setter)(False)
        sample.add_data_group_field_array("more", group_of(a=FLOAT), 1)
        sample.change_type_of_data_and_remove_data("meta", group_of(b=group_of(c=FLOAT)))
        assert getattr(sample["more"][0], getter) is False
        assert getattr(sample["meta"]["b"], getter) is False

    def test_copies_keep_them(self, sample):
        sample.set_apply_mapping(False)
        sample["meta"].set_do_convert(False)
        sample["cameras"].set_do_check_type(False)
        for other in (
            sample.get_empty_like_self(),
            sample.get_copy(),
            copy.deepcopy(sample),
            pickle.loads(pickle.dumps(sample)),
        ):
            assert (other.apply_mapping, other.do_convert, other.do_check_type) == (False, True, True)
            assert (other["meta"].do_convert, other["cameras"][1].do_check_type) == (False, False)


class TestCopies:
    def test_empty(self, sample):
        sample["image"] = np.zeros(3)
        empty = sample.get_empty_like_self()
        assert empty.get_data() == (None,) * 10
        assert empty.format is sample.format
        assert sample["image"] is not None

    def test_copy_shares_values_but_no_structure(self, sample):
        sample["cameras"][0]["image"] = np.zeros(3)
        copied = sample.get_copy()
        assert copied["cameras"][0]["image"] is sample["cameras"][0]["image"]
        copied["cameras"][0]["image"] = np.ones(1)
        copied["cameras"][1].remove_field("image")
        copied["meta"].add_data_field("more", FLOAT)
        copied.remove_field("scores")
        assert sample["cameras"][0]["image"].tolist() == [0, 0, 0]
        assert len(sample.field_names_flat) == 10
        assert copied.field_names_flat == (
            "image",
            "meta.token",
            "meta.time",
            "meta.more",
            "cameras.[0].image",
            "cameras.[0].label",
            "cameras.[1].label",
        )

    def test_edits_in_place_are_seen_through_a_copy(self, sample):
        sample["image"] = np.zeros(3)
        copied = sample.get_copy()
        copied["image"][0] = 5
        assert sample["image"][0] == 5

    def test_deep_copy_shares_nothing(self, sample):
        sample["image"] = np.zeros(3)
        copied = copy.deepcopy(sample)
        copied["image"][0] = 5
        assert sample["image"][0] == 0

    @given(groups)
    def test_copies_of_edited_groups_are_equal(self, group):
        for path in group.format.find("image"):
            parent = group.get_parent_of_path(path)
            parent.add_data_field("added", FLOAT)
        for other in (group.get_copy(), group.get_empty_like_self(), copy.copy(group), copy.deepcopy(group)):
            assert other == group
            assert other.format == group.format
            assert other is not group

    @given(groups)
    def test_pickle(self, group):
        group.set_data(list(range(group.format.num_leaves)))
        restored = pickle.loads(pickle.dumps(group))
        assert restored.format == group.format
        assert restored.get_data() == group.get_data()
        assert restored.format is restored.format


class TestFormatProperty:
    def test_is_one_object_until_something_changes(self, sample):
        format = sample.format
        sample["meta"]["time"] = 1
        sample.set_do_convert(False)
        assert sample.format is format

    def test_follows_edits_far_below(self, sample):
        before = sample.format
        sample["cameras"][1].add_data_field("depth", FLOAT)
        sample["cameras"][0].change_type_of_data_and_remove_data("label", FLOAT)
        sample["meta"].remove_field("token")
        assert sample.field_names_flat[1:7] == (
            "meta.time",
            "cameras.[0].image",
            "cameras.[0].label",
            "cameras.[1].image",
            "cameras.[1].label",
            "cameras.[1].depth",
        )
        assert sample.field_types_flat[3] == FLOAT
        assert before.num_leaves == 10

    def test_settles(self, sample):
        sample["meta"] = group_of(token=STRING, time=FLOAT)  # another object of an equal format
        assert sample.format is sample.format
        assert sample["meta"].format is sample.format.at(("meta",))

    def test_replaced_group_with_another_mapping(self):
        parent = group_of(child=group_of(a=INT32))
        child = SampleDataGroup()
        child.add_data_field("a", INT32, {"car": 1}, ndim=0)
        parent["child"] = child
        assert parent.format.at(("child", "a")).ndim == 0
        assert parent.get_empty_like_self()["child"].format == child.format

    def test_one_group_in_two_places(self):
        shared = group_of(a=FLOAT)
        parent = group_of(x=group_of(a=FLOAT), y=group_of(a=FLOAT))
        parent["x"] = shared
        parent["y"] = shared
        shared.add_data_field("b", FLOAT)
        assert parent.field_names_flat == ("x.a", "x.b", "y.a", "y.b")


class TestReading:
    def test_items(self, sample):
        sample["image"] = [1, 2]
        assert sample["image"].tolist() == [1, 2]
        assert sample["meta"] is sample["meta"]
        assert sample["meta"]["time"] is None

    def test_paths(self, sample):
        sample["cameras"][1]["label"] = 5
        sample["meta"]["token"] = "abc"
        assert sample.get_item_in_path(()) is sample
        assert sample.get_item_in_path([]) is sample
        assert sample.get_item_in_path("meta") is sample["meta"]
        assert sample.get_item_in_path(("meta",)) is sample["meta"]
        assert sample.get_item_in_path(["cameras", 1, "label"]) == 5
        assert sample.get_item_in_path(("meta", "token")) == "abc"
        assert sample["cameras"].get_item_in_path(1) is sample["cameras"][1]

    def test_parent(self, sample):
        assert sample.get_parent_of_path("image") is sample
        assert sample.get_parent_of_path(("image",)) is sample
        assert sample.get_parent_of_path(("cameras", 1, "label")) is sample["cameras"][1]

    def test_types(self, sample):
        assert sample.get_type_of_field("image") == UINT8
        assert sample.get_type_of_field("meta") is SampleDataGroup
        assert sample["meta"].get_type_of_field("token") == STRING
        assert sample.get_type_of_item_in_path(()) is SampleDataGroup
        assert sample.get_type_of_item_in_path(["meta", "time"]) == FLOAT
        assert sample.get_type_of_item_in_path(("cameras", 1)) is SampleDataGroup
        assert sample.get_type_of_item_in_path("image") == UINT8

    @pytest.mark.parametrize(
        ("path", "is_single"),
        [("a", True), (0, True), (None, True), (np.zeros(2), True), ((), False), ([], False), (("a",), False)],
    )
    def test_path_is_single_name(self, path, is_single):
        assert SampleDataGroup.path_is_single_name(path) is is_single

    @pytest.mark.parametrize(
        ("path", "exists", "is_group"),
        [
            ("image", True, False),
            ("meta", True, True),
            ((), True, True),
            ([], True, True),
            (("cameras", 1), True, True),
            (("cameras", 1, "label"), True, False),
            ("x", False, False),
            (0, False, False),
            (("cameras", 2), False, False),
            (("x", "y"), False, False),
            (("x", "y", "z"), False, False),
            (("image", "x"), False, False),
            (("image", "x", 0), False, False),
            (("cameras", "1"), False, False),
        ],
    )
    def test_path_exists(self, sample, path, exists, is_group):
        assert sample.path_exists(path) is exists
        assert sample.path_exists_and_is_data_group_field(path) is is_group

    def test_kinds(self, sample):
        assert (sample.has_child("image"), sample.has_child("meta"), sample.has_child("time")) == (
            True,
            True,
            False,
        )
        assert (sample.is_data_field("image"), sample.is_data_field("meta")) == (True, False)
        assert (sample.is_data_group_field("image"), sample.is_data_group_field("meta")) == (False, True)

    def test_arrays(self, sample):
        def kinds(*field):
            return (
                sample.is_array(*field),
                sample.is_data_field_array(*field),
                sample.is_data_group_field_array(*field),
            )

        sample.add_data_group_field("nothing", SampleDataGroup())
        assert kinds() == (False, False, False)
        assert kinds("cameras") == (True, False, True)
        assert kinds("scores") == (True, True, False)
        assert kinds("nothing") == (True, True, True)
        assert kinds("meta") == (False, False, False)
        assert kinds("image") == (False, False, False)
        sample["cameras"].add_data_field(2, FLOAT)
        assert kinds("cameras") == (True, False, False)
        sample["scores"].remove_field(0)
        assert kinds("scores") == (False, False, False)
        assert sample["cameras"][0].is_array() is False

    def test_array_names_must_be_integers_in_order(self):
        group = SampleDataGroup()
        group.add_data_field(1, FLOAT)
        group.add_data_field(0, FLOAT)
        assert not group.is_array()
        assert not SampleDataGroup.from_format(GroupFormat(("0",), (leaf_format(FLOAT),))).is_array()

    def test_like_a_mapping(self, sample):
        sample["meta"]["token"] = "abc"
        assert list(sample) == ["image", "meta", "cameras", "scores"]
        assert "image" in sample
        assert "token" not in sample
        assert 0 in sample["scores"]
        assert sample.keys() == ("image", "meta", "cameras", "scores")
        assert sample["meta"].values() == ("abc", None)
        assert sample["meta"].items() == (("token", "abc"), ("time", None))
        assert sample["meta"].get("token") == "abc"
        assert sample.get("x") is None
        assert sample.get("x", 5) == 5
        assert dict(**sample["meta"]) == {"token": "abc", "time": None}
        assert sample._ipython_key_completions_() == ["image", "meta", "cameras", "scores"]
        del sample["image"]
        assert "image" not in sample

    def test_dictionary(self, sample):
        sample.add_data_group_field("nothing", SampleDataGroup())
        sample["meta"]["token"] = "abc"
        sample["scores"][1] = 2
        assert sample.to_dictionary() == {
            "image": None,
            "meta": {"token": "abc", "time": None},
            "cameras": {0: {"image": None, "label": None}, 1: {"image": None, "label": None}},
            "scores": {0: None, 1: np.float32(2), 2: None},
            "nothing": {},
        }


class TestBulkTransfer:
    @given(groups)
    def test_round_trip(self, group):
        values = [object() for _ in range(group.format.num_leaves)]
        group.set_data(values)
        assert group.get_data() == tuple(values)
        assert group.get_data(as_list_type=True) == values
        other = group.get_empty_like_self()
        other.set_data(group.get_data())
        for path, value in zip(group.format.flat_paths, values, strict=True):
            parent = other.get_parent_of_path(path)
            if parent.get_type_of_field(path[-1]) != STRING:
                assert parent[path[-1]] is value
        assert other.get_data() == tuple(values)

    def test_text_is_handed_over_as_bytes(self, sample):
        sample["meta"]["token"] = "ab"
        assert sample.get_data()[1].tolist() == [97, 98]
        other = sample.get_empty_like_self()
        other.set_data(sample.get_data(True))
        assert other["meta"]["token"] == "ab"

    def test_nothing_is_mapped_or_converted(self):
        group = SampleDataGroup()
        group.add_data_field("a", INT32, {"car": 1})
        group.set_data(("car",))
        assert group["a"] == "car"

    def test_other_iterables(self, sample):
        sample.set_data(iter(range(10)))
        assert sample.get_data() == tuple(range(10))

    def test_surplus_is_no_index_error(self, sample):
        with pytest.raises(FieldValueError) as info:
            sample.set_data([0] * 11)
        assert not isinstance(info.value, IndexError)

    def test_what_an_iterable_raises_is_passed_on(self, sample):
        with pytest.raises(ConnectionError, match="gone"):
            sample.set_data(value if value < 3 else _fail() for value in range(10))

    def test_iterator_output(self, sample):
        outputs = {name: i for i, name in enumerate(sample.field_names_flat)} | {"more": 99}
        sample.set_data_from_dali_generic_iterator_output([{}, outputs], index=1)
        assert sample.get_data() == tuple(range(10))

    def test_iterator_output_with_missing_names(self, sample):
        outputs = dict.fromkeys(sample.field_names_flat, 0)
        del outputs["meta.time"]
        with pytest.raises(KeyError, match=r"meta\.time"):
            sample.set_data_from_dali_generic_iterator_output([outputs], 0)
        with pytest.raises(IndexError):
            sample.set_data_from_dali_generic_iterator_output([outputs], 1)
        assert set(sample.get_data()) == {None}


class TestAssignment:
    def test_paths(self, sample):
        sample.set_item_in_path("image", [1])
        sample.set_item_in_path(("meta", "time"), 2)
        sample.set_item_in_path(["cameras", 1, "label"], 3)
        assert sample["image"].tolist() == [1]
        assert sample["meta"]["time"] == 2
        assert sample["cameras"][1]["label"] == 3

    def test_only_who_assigns_is_told_to_declare_new_fields(self, sample):
        with pytest.raises(FieldNotFoundError) as info:
            sample["imag"]
        assert "declared" not in str(info.value)

    def test_groups_are_stored_by_reference(self, sample):
        meta = group_of(token=STRING, time=FLOAT)
        sample["meta"] = meta
        assert sample["meta"] is meta
        sample.set_item_in_path(("cameras", 1), sample["cameras"][0])
        assert sample["cameras"][1] is sample["cameras"][0]

    @pytest.mark.parametrize(
        ("other", "difference"),
        [
            (group_of(token=STRING), "time: missing"),
            (group_of(token=STRING, time=INT32), "time: must be FLOAT, got INT32"),
            (
                group_of(time=FLOAT, token=STRING),
                "order of the fields differs: expected token, time; got time, token",
            ),
            (group_of(token=STRING, time=FLOAT, more=FLOAT), "more: not in the blueprint"),
            (group_of(token=group_of(a=FLOAT), time=FLOAT), r"token: missing\n.*token\.a: not in the blueprint"),
            (group_of(token=STRING, time=FLOAT, more=SampleDataGroup()), "groups without data fields"),
        ],
    )
    def test_groups_of_another_format(self, sample, other, difference):
        with pytest.raises(
            GroupFormatMismatchError, match=f"(?s)^meta: .* another format than the field:\n  - .*{difference}"
        ):
            sample["meta"] = other
        with pytest.raises(KeyError, match=r"^outer\.meta: "):
            group_of(outer=sample).set_item_in_path(("outer", "meta"), other)

    def test_mappings_of_an_assigned_group_may_differ(self):
        parent = group_of(child=group_of(a=INT32))
        child = SampleDataGroup()
        child.add_data_field("a", INT32, {"car": 1})
        parent["child"] = child
        parent["child"]["a"] = "car"
        assert parent["child"]["a"] == 1

    def test_nodes_are_stored_untouched(self, sample):
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            node = fn.constant(idata=[1])
            sample["image"] = node
            sample["meta"]["time"] = node
            assert sample["image"] is node
            assert sample["meta"]["time"] is node

    def test_nodes_of_debug_pipelines(self, sample):
        # Without a GPU no debug pipeline can run, but its nodes can be made.
        node = DataNodeDebug.__new__(DataNodeDebug)
        sample["image"] = node
        assert sample["image"] is node

    def test_constants_in_the_graph(self):
        group = group_of(a=FLOAT)

        @pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def define():
            group["a"] = [1, 2]
            return group.get_data()

        pipeline = define()
        pipeline.build()
        (output,) = pipeline.run()
        assert output.as_array().tolist() == [[1, 2], [1, 2]]
        assert output.dtype == FLOAT


class TestStructureEdits:
    def test_remove(self, sample):
        sample["scores"][2] = 5
        sample.remove_field("cameras")
        assert sample.contained_top_level_field_names == ("image", "meta", "scores")
        assert sample["scores"][2] == 5

    def test_removed_names_can_be_used_again(self):
        group = SampleDataGroup()
        group.add_data_field("a", INT32, {"car": 1})
        group.remove_field("a")
        group.add_data_field("a", INT32)
        with pytest.raises(FieldValueError):
            group["a"] = "car"

    def test_find(self):
        group = group_of(
            annotation=group_of(x=FLOAT, annotation=group_of(annotation=FLOAT)), other=group_of(x=FLOAT)
        )
        assert group.find_all_occurrences("annotation") == [
            ("annotation",),
            ("annotation", "annotation"),
            ("annotation", "annotation", "annotation"),
        ]
        assert group.find_all_occurrences("x") == [("annotation", "x"), ("other", "x")]
        assert group.find_all_occurrences("missing") == []
        assert group.find_all_occurrences(None) == []
        assert group.get_num_occurrences("annotation") == 3
        assert isinstance(group.find_all_occurrences("x"), list)

    def test_own_child_comes_first(self):
        group = group_of(first=group_of(image=FLOAT), image=FLOAT)
        assert group.find_all_occurrences("image") == [("image",), ("first", "image")]

    def test_remove_all(self, sample):
        sample["meta"]["time"] = 5
        sample.remove_all_occurrences("image")
        sample.remove_all_occurrences("missing")
        assert sample.field_names_flat[:4] == ("meta.token", "meta.time", "cameras.[0].label", "cameras.[1].label")
        assert sample["meta"]["time"] == 5

    def test_remove_all_with_groups_in_groups(self):
        group = group_of(
            annotation=group_of(annotation=group_of(a=FLOAT)), other=group_of(annotation=FLOAT, b=FLOAT)
        )
        group.remove_all_occurrences("annotation")
        assert group.field_names_flat == ("other.b",)

    @given(groups, st.sampled_from(["a", "image", 0]))
    def test_what_was_removed_is_not_found(self, group, name):
        kept = [path for path in group.format.flat_paths if name not in path]
        group.remove_all_occurrences(name)
        assert group.find_all_occurrences(name) == []
        assert list(group.format.flat_paths) == kept

    def test_change_type(self):
        group = SampleDataGroup()
        group.add_data_field("a", INT32, {"car": 1})
        group.add_data_field("b", FLOAT)
        group["a"] = 5
        group.change_type_of_data_and_remove_data("a", FLOAT)
        assert group["a"] is None
        assert group.contained_top_level_field_names == ("a", "b")
        assert group.field_types_flat == (FLOAT, FLOAT)
        with pytest.raises(FieldValueError):
            group["a"] = "car"
        group.change_type_of_data_and_remove_data(("a",), INT32, {"bike": 2})
        group["a"] = "bike"
        assert group["a"] == 2

    def test_change_type_of_a_group(self, sample):
        blueprint = group_of(x=FLOAT)
        blueprint["x"] = 1
        sample.change_type_of_data_and_remove_data(("cameras", 0), blueprint)
        assert sample["cameras"][0]["x"] is None
        assert sample["cameras"][0] is not blueprint
        assert sample.field_names_flat[3:5] == ("cameras.[0].x", "cameras.[1].image")

    def test_check_has_children(self, sample):
        assert (
            sample.check_has_children(
                data_field_children="image",
                data_group_field_children=["meta", "cameras"],
                data_field_array_children=("scores",),
                data_group_field_array_children="cameras",
            )
            is None
        )
        sample["scores"].check_has_children(data_field_children=[0, 1])


class TestComparison:
    def test_type_matches(self, sample):
        other = sample.get_empty_like_self()
        sample["image"] = [1]
        other.set_do_convert(False)
        assert sample.type_matches(other)
        other["meta"].add_data_field("x", FLOAT)
        assert not sample.type_matches(other)
        assert not other.type_matches(sample)

    @pytest.mark.parametrize("other", [None, 5, {"a": 1}, FLOAT, GroupFormat()], ids=str)
    def test_type_matches_nothing_else(self, other):
        assert SampleDataGroup().type_matches(other) is False

    def test_first_discrepancy(self):
        first = group_of(a=FLOAT, b=group_of(c=INT32, d=FLOAT), e=FLOAT)
        for other, index in [
            (group_of(a=FLOAT, b=group_of(c=INT32, d=FLOAT), e=FLOAT), -1),
            (group_of(a=FLOAT, x=SampleDataGroup(), b=group_of(c=INT32, d=FLOAT), e=FLOAT), -1),
            (group_of(a=FLOAT, b=group_of(c=FLOAT, d=FLOAT), e=FLOAT), 1),
            (group_of(a=FLOAT, b=group_of(c=INT32, x=FLOAT), e=FLOAT), 2),
            (group_of(a=FLOAT), 1),
            (group_of(a=FLOAT, b=group_of(c=INT32, d=FLOAT), e=FLOAT, f=FLOAT), 4),
            (SampleDataGroup(), 0),
        ]:
            assert first.get_flat_index_first_discrepancy_to_other(other) == index
            assert other.get_flat_index_first_discrepancy_to_other(first) == index

    @pytest.mark.parametrize(
        ("value", "other", "equal"),
        [
            ([1, 2], [1, 2], True),
            ([1, 2], [1, 3], False),
            ([1, 2], [[1, 2]], False),
            ([np.nan], [np.nan], True),
            ([np.nan], [1], False),
            ([1], None, False),
            (None, None, True),
        ],
    )
    def test_equality(self, value, other, equal):
        first, second = group_of(a=group_of(b=FLOAT)), group_of(a=group_of(b=FLOAT))
        first["a"]["b"] = value
        second["a"]["b"] = other
        assert (first == second) is equal
        assert (first != second) is not equal

    def test_equality_of_stored_types(self):
        first, second = group_of(a=FLOAT), group_of(a=FLOAT)
        first.set_data([np.zeros(2, np.float32)])
        second.set_data([np.zeros(2, np.float64)])
        assert first != second
        second.set_data([[0.0, 0.0]])
        assert first != second

    def test_equality_of_other_objects(self):
        class Grumpy:
            def __eq__(self, other):
                raise RuntimeError

        torch = pytest.importorskip("torch")
        first, second = group_of(a=FLOAT), group_of(a=FLOAT)
        for value, other, equal in [
            ({"x": 1}, {"x": 1}, True),
            (Grumpy(), Grumpy(), False),
            ([np.zeros(2), "a"], [np.zeros(2), "a"], True),
            (torch.ones(2), torch.ones(2), True),
            (torch.ones(2), torch.zeros(2), False),
            (torch.ones(2), np.ones(2, np.float32), False),
        ]:
            first.set_data([value])
            second.set_data([other])
            assert (first == second) is equal
            second.set_data([value])
            assert first == second

    def test_nodes_are_compared_by_identity(self):
        first, second = group_of(a=FLOAT), group_of(a=FLOAT)
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            nodes = [fn.constant(fdata=[1.0]) for _ in range(2)]
            first["a"], second["a"] = nodes
            assert first != second
            second["a"] = nodes[0]
            assert first == second

    def test_mappings_and_switches_do_not_count(self):
        first, second = SampleDataGroup(), SampleDataGroup()
        first.add_data_field("a", INT32, {"car": 1})
        second.add_data_field("a", INT32, ndim=0)
        second.set_do_convert(False)
        assert first == second

    def test_foreign_types(self):
        assert SampleDataGroup() != 5
        assert SampleDataGroup() != {}
        assert SampleDataGroup().__eq__(5) is NotImplemented
        with pytest.raises(TypeError, match="unhashable"):
            hash(SampleDataGroup())


class TestText:
    def test_repr(self, sample):
        sample["image"] = np.zeros((2, 3))
        sample["meta"]["token"] = "abc"
        assert repr(sample).splitlines() == [
            "SampleDataGroup of 10 fields",
            "image                UINT8 (2, 3)  0",
            "meta.token           STRING 'abc'",
            "meta.time            FLOAT",
            "cameras[0..1].image  UINT8",
            "cameras[0..1].label  INT32",
            "scores[0..2]         FLOAT",
        ]

    def test_repr_of_other_values(self):
        group = group_of(a=FLOAT)
        group.set_data(["x" * 1000])
        assert len(repr(group)) < 100
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            group["a"] = fn.constant(fdata=[1.0])
            assert "Constant" in repr(group)

    def test_repr_of_large_groups_is_short(self):
        assert len(repr(SampleDataGroup.create_data_field_array(FLOAT, 1000))) < 300

    def test_str(self):
        group = SampleDataGroup()
        group.add_data_field("a", INT32, {"car": 1})
        group.add_data_group_field("g", group_of(b=STRING))
        group["a"] = 1
        assert str(group) == (
            "{\n"
            "  a: DALIDataType.INT32   (is set: True; mapping available: True)\n"
            "  g:\n"
            "  {\n"
            "    b: DALIDataType.STRING   (is set: False; mapping available: False)\n"
            "  }\n"
            "}\n"
        )
        assert group.get_string_no_details() == (
            "{\n  a: DALIDataType.INT32   \n  g:\n  {\n    b: DALIDataType.STRING   \n  }\n}\n"
        )
        assert str(SampleDataGroup()) == "{\n}\n"
        assert SampleDataGroup().get_string_no_details() == "{\n}\n"


class TestUniformSize:
    def test_all_fields(self):
        group = group_of(a=FLOAT, inner=group_of(b=INT32))

        @pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def define():
            group.set_data(
                fn.external_source(
                    source=lambda: (
                        [np.ones((1, 2), np.float32), np.ones((2, 1), np.float32)],
                        [np.array([1, 2, 3], np.int32), np.array([], np.int32)],
                    ),
                    num_outputs=2,
                )
            )
            group.ensure_uniform_size_in_batch(-1)
            return group.get_data()

        pipeline = define()
        pipeline.build()
        a, b = pipeline.run()
        assert a.as_array().tolist() == [[[1, 1], [-1, -1]], [[1, -1], [1, -1]]]
        assert b.as_array().tolist() == [[1, 2, 3], [-1, -1, -1]]

    def test_needs_data(self):
        with pytest.raises(FieldValueError, match=r"^inner\.b: is not set"):
            group_of(inner=group_of(b=INT32)).ensure_uniform_size_in_batch(0)


def _fail():
    raise ConnectionError("gone")
