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
from sample_data_strategies import groups
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
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.conversion import encoded

FLOAT, INT32, UINT8, STRING = (DALIDataType.FLOAT, DALIDataType.INT32, DALIDataType.UINT8, DALIDataType.STRING)


@pytest.fixture
def sample():
    group = group_of(image=UINT8, meta=group_of(token=STRING, time=FLOAT))
    group.add_data_group_field_array("cameras", group_of(image=UINT8, label=INT32), 2)
    group.add_data_field_array("scores", FLOAT, 3)
    return group


NAMES = "'image', 'meta', 'cameras', 'scores'"
MISSING = "No field with name 'x'"
TYPES = "x: the type of a data field must be one of"
BELOW = "image: is a data field, so there is nothing below it"
NEW_FIELD = "must first be declared in `sample_data_structure` of the data provider (in a step: with add_data_"
# Method, arguments, error, and words of it.
REFUSED = [
    # names, types and blueprints of new fields
    ("add_data_field", ("meta", FLOAT), DuplicateFieldError, "'meta' exists already; remove it first"),
    ("add_data_group_field", ("image", SampleDataGroup()), KeyError, "'image' exists already"),
    ("add_data_field", ("", FLOAT), SettingError, "a field name must have at least one character, got ''"),
    ("add_data_field", (None, FLOAT), NameTypeError, ""),
    ("add_data_group_field", (None, SampleDataGroup()), AssertionError, ""),
    ("add_data_field", ("x", SampleDataGroup), AssertionError, "x: ...add_data_group_field"),
    ("add_data_field", ("x", SampleDataGroup()), AssertionError, "x: ...add_data_group_field"),
    ("add_data_field", ("x", "FLOAT"), TypeError, TYPES),
    ("add_data_field", ("x", np.float32), TypeError, f"{TYPES}...For this NumPy type use DALIDataType.FLOAT"),
    ("add_data_field", ("x", torch.float16), TypeError, "For this PyTorch type use DALIDataType.FLOAT16"),
    ("add_data_field", ("x", torch.bfloat16), TypeError, f"{TYPES}...got torch.bfloat16"),
    ("add_data_group_field", ("x", FLOAT), FieldKindError, "SampleDataGroup"),
    ("create_data_group_field_array", ({"a": 1}, 1), FieldKindError, "SampleDataGroup"),
    # reading
    (
        "__getitem__",
        ("imagee",),
        FieldNotFoundError,
        f"No field with name 'imagee'. Did you mean 'image'? Available: {NAMES}",
    ),
    ("get_item_in_path", (7,), FieldNotFoundError, f"No field with name '7'. Available: {NAMES}"),
    ("get_item_in_path", (("cameras", 0, "x"),), FieldNotFoundError, f"{MISSING} in cameras[0]. Available"),
    ("get_item_in_path", (("cameras", 2, "image"),), KeyError, "No field with name '2' in cameras."),
    ("__getitem__", (True,), AssertionError, "got True"),
    ("__getitem__", (("meta", "time"),), AssertionError, "get_item_in_path"),
    ("__getitem__", (np.int64(0),), AssertionError, "convert it with int(...)"),
    *(
        row
        for method in ("get_item_in_path", "get_parent_of_path", "get_type_of_item_in_path")
        for row in [
            (method, (None,), AssertionError, "a path must be a field name"),
            (method, (("image", "x"),), FieldKindError, BELOW),
        ]
    ),
    ("path_exists", (None,), AssertionError, "a path must be a field name"),
    ("get_parent_of_path", ("x",), KeyError, "No element 'x' is present."),
    ("get_parent_of_path", (("cameras", 1, "x"),), KeyError, "No element 'x' is present in cameras[1]."),
    ("get_parent_of_path", (("x", "y"),), KeyError, MISSING),
    ("get_parent_of_path", ((),), AssertionError, "at least one name"),
    ("get_type_of_item_in_path", (("meta", "x"),), KeyError, MISSING),
    *(
        (method, ("x",), KeyError, MISSING)
        for method in (
            *("get_type_of_field", "is_data_field", "is_data_group_field"),
            *("is_array", "is_data_field_array", "is_data_group_field_array"),
        )
    ),
    ("get_flat_index_first_discrepancy_to_other", (None,), FieldKindError, ""),
    # values
    ("set_data", ([0] * 6,), IndexError, "expected 10 values, ... got 6. The first ... is cameras[1].label"),
    ("set_data", ([None] * 11,), FieldValueError, "expected 10 values, one per data field, got 11"),
    *(
        ("set_data", (data,), FieldValueError, "list or tuple")
        for data in ("0123456789", {}, None, MappingProxyType(dict.fromkeys(range(10))))
    ),
    ("__setitem__", (("meta", "time"), 1), NameTypeError, ""),
    (
        "__setitem__",
        ("imag", 1),
        FieldNotFoundError,
        f"Did you mean 'image'? Available... A new field {NEW_FIELD}",
    ),
    ("set_item_in_path", (("cameras", 1, "x"), 1), KeyError, f"{MISSING}...{NEW_FIELD}"),
    ("set_item_in_path", (("image", "x"), 1), AttributeError, BELOW),
    ("set_item_in_path", ((), 1), AssertionError, "at least one name"),
    *(("__setitem__", ("meta", value), FieldKindError, "meta: is a data group field") for value in (None, {})),
    # edits of the structure
    ("__delitem__", ("imag",), KeyError, "Cannot delete field 'imag'...Did you mean 'image'"),
    *(
        ("change_type_of_data_and_remove_data", arguments, error, words)
        for arguments, error, words in [
            (("image", SampleDataGroup()), AssertionError, "image: is a data ...must stay one"),
            (("meta", FLOAT), AssertionError, "meta: is a data ...must stay one"),
            (("meta", SampleDataGroup(), {"a": 1}), AssertionError, "meta: a group can have neither"),
            (("image", STRING, {"a": 1}), AssertionError, "image: a STRING"),
            ((("meta", "time"), "FLOAT"), TypeError, "meta.time: the type of a data field"),
            (((), FLOAT), AssertionError, ""),
            ((("meta", "x"), FLOAT), KeyError, MISSING),
        ]
    ),
    *(
        ("check_has_children", (*children, *[None] * (4 - len(children)), "frame"), FormatError, words)
        for children, words in [
            (("meta",), "`meta` of `frame` is not a data field"),
            ((["x", "y"], "image"), "child `x`...child `y`...`image` of ... is not a data group field"),
            ((None, None, "cameras"), "is not a data field array"),
            ((None, None, None, "scores"), "is not a data group field array"),
        ]
    ),
]


@pytest.mark.parametrize(("method", "arguments", "error", "words"), REFUSED)
def test_what_is_refused_changes_nothing(sample, method, arguments, error, words):
    sample.set_data(range(10))
    format = sample.format
    caught = assert_refused(lambda: getattr(sample, method)(*arguments), words, error)
    assert isinstance(caught, FrameworkError)
    assert isinstance(caught, IndexError) == ("got 6" in words)
    assert sample.format is format
    assert sample.get_data() == tuple(range(10))


class TestConstruction:
    def test_fields_keep_their_order(self, sample):
        assert sample.contained_top_level_field_names == ("image", "meta", "cameras", "scores")
        assert sample.field_top_level_types == (UINT8, SampleDataGroup, SampleDataGroup, SampleDataGroup)
        assert " ".join(sample.field_names_flat) == (
            "image meta.token meta.time cameras.[0].image cameras.[0].label cameras.[1].image cameras.[1].label "
            "scores.[0] scores.[1] scores.[2]"
        )
        assert sample.field_types_flat == (UINT8, UINT8, FLOAT, UINT8, INT32, UINT8, INT32, FLOAT, FLOAT, FLOAT)
        assert sample.get_data() == (None,) * 10

    def test_arrays_without_elements(self):
        assert len(SampleDataGroup.create_data_field_array(FLOAT, 0)) == 0
        assert len(SampleDataGroup.create_data_group_field_array(SampleDataGroup(), -3)) == 0

    def test_blueprints_are_copied_without_values(self):
        blueprint = group_of(a=FLOAT)
        blueprint["a"] = 1
        array = SampleDataGroup.create_data_group_field_array(blueprint, 2)
        parent = group_of(child=blueprint)
        assert array.get_data() == (None, None)
        assert parent["child"]["a"] is None
        blueprint.add_data_field("b", FLOAT)
        array[0].add_data_field("c", FLOAT)
        assert parent.field_names_flat == ("child.a",)
        assert array.field_names_flat == ("[0].a", "[0].c", "[1].a")

    def test_mappings_and_numbers_of_dimensions_of_arrays_and_of_changed_fields(self):
        group = SampleDataGroup()
        group.add_data_field("image", UINT8, ndim=3)
        group.add_data_field_array("labels", INT32, 2, {"car": 3}, ndim=2)
        group["labels"][1] = "car"
        assert group["labels"][1] == 3
        copied = pickle.loads(pickle.dumps(group.get_empty_like_self().get_copy()))
        assert [leaf.ndim for leaf in copied.format.flat_leaves] == [3, 2, 2]
        with pytest.raises(SettingError, match=r"^x: ndim"):
            group.add_data_field("x", UINT8, ndim=-1)
        group.change_type_of_data_and_remove_data("image", FLOAT)
        group.change_type_of_data_and_remove_data(("labels", 0), INT32, {"bike": 2}, new_ndim=1)
        assert [leaf.ndim for leaf in group.format.flat_leaves] == [None, 1, 2]
        group["labels"][0] = "bike"
        assert [group["labels"][number] for number in range(2)] == [2, 3]
        with pytest.raises(FieldValueError):
            group["labels"][0] = "car"


SWITCHES = {
    "apply_mapping": SampleDataGroup.set_apply_mapping,
    "do_convert": SampleDataGroup.set_do_convert,
    "do_check_type": SampleDataGroup.set_do_check_type,
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_hold_for_all_groups_below_also_for_later_ones_and_in_copies(sample, switch):
    set_switch = SWITCHES[switch]
    set_switch(sample, False)
    set_switch(sample["cameras"], True)
    sample.add_data_group_field_array("more", group_of(a=FLOAT), 1)
    sample.change_type_of_data_and_remove_data("meta", group_of(b=group_of(c=FLOAT)))
    for other in (sample, sample.get_empty_like_self(), sample.get_copy(), pickle.loads(pickle.dumps(sample))):
        parts = [other, other["more"][0], other["meta"]["b"], other["cameras"], other["cameras"][1]]
        assert [getattr(group, switch) for group in parts] == [False, False, False, True, True]
        assert all(getattr(group, name) for group in parts for name in SWITCHES if name != switch)


class TestCopies:
    def test_a_copy_shares_values_but_no_structure(self, sample):
        image, label = np.zeros(3), np.zeros(1)
        sample.set_do_convert(False)
        sample["image"], sample["cameras"][0]["label"] = image, label
        copied = sample.get_copy()
        assert copied["image"] is image
        copied["cameras"][0]["label"] = None
        copied["meta"].add_data_field("more", FLOAT)
        copied.remove_field("scores")
        assert sample["cameras"][0]["label"] is label
        assert len(sample.field_names_flat) == 10
        assert copied.field_names_flat[3:] == ("meta.more", *sample.field_names_flat[3:7])
        assert copy.deepcopy(sample)["image"] is not image

    @given(groups)
    def test_copies_of_edited_groups_are_equal(self, group):
        for path in group.format.find("image"):
            group.get_parent_of_path(path).add_data_field("added", FLOAT)
        empty = group.get_empty_like_self()
        assert empty == group == SampleDataGroup.from_format(group.format)
        assert empty.format is group.format
        group.set_data(range(group.format.num_leaves))
        assert empty.get_data() == (None,) * group.format.num_leaves
        for other in (group.get_copy(), copy.copy(group), copy.deepcopy(group), pickle.loads(pickle.dumps(group))):
            assert other == group
            assert other.format == group.format
            assert other is not group


class TestFormatProperty:
    def test_is_one_object_until_the_structure_changes(self, sample):
        format = sample.format
        sample["meta"]["time"] = 1
        sample.set_do_convert(False)
        assert sample.format is format
        sample["meta"] = group_of(token=STRING, time=FLOAT)  # another object of an equal format
        assert sample.format is format
        assert sample["meta"].format is format.at(("meta",))

    def test_follows_edits_far_below(self, sample):
        before = sample.format
        sample["cameras"][1].add_data_field("depth", FLOAT)
        sample["cameras"][0].change_type_of_data_and_remove_data("label", FLOAT)
        sample["meta"].remove_field("token")
        assert " ".join(sample.field_names_flat[1:7]) == (
            "meta.time cameras.[0].image cameras.[0].label cameras.[1].image cameras.[1].label cameras.[1].depth"
        )
        assert sample.field_types_flat[3] == FLOAT
        assert before.num_leaves == 10

    def test_follows_groups_that_are_replaced_or_in_two_places(self):
        parent = group_of(x=group_of(a=INT32), y=group_of(a=INT32))
        shared = group_of(a=(INT32, {"mapping": {"car": 1}, "ndim": 0}))
        parent["x"] = shared
        parent.set_item_in_path(("y",), shared)
        assert parent["x"] is parent["y"] is shared
        parent["x"]["a"] = "car"
        assert parent["y"]["a"] == 1
        assert parent.format.at(("x", "a")).ndim == 0
        assert parent.get_empty_like_self()["y"].format == shared.format
        shared.add_data_field("b", FLOAT)
        assert parent.field_names_flat == ("x.a", "x.b", "y.a", "y.b")


def tree_of(format, values):
    """Nested dicts with the next values."""
    return {
        name: tree_of(child, values) if isinstance(child, GroupFormat) else next(values)
        for name, child in zip(format.names, format.children, strict=True)
    }


def items_of(tree, path=()):
    """Path and value of a tree and of all that is in it."""
    yield path, tree
    if isinstance(tree, dict):
        for name, child in tree.items():
            yield from items_of(child, (*path, name))


class TestReading:
    @given(groups)
    def test_is_that_of_nested_dicts(self, group):
        leaves = group.format.flat_leaves
        values = [f"text {number}" if leaf.is_string else number for number, leaf in enumerate(leaves)]
        stored = [encoded(value) if isinstance(value, str) else value for value in values]
        group.set_data(stored)
        assert group.get_data() == tuple(stored)
        assert group.get_data(as_list_type=True) == stored
        tree = tree_of(group.format, iter(values))
        assert group.to_dictionary() == tree
        paths = dict(items_of(tree))
        for name in ("a", 0):
            ends = [path for path in paths if path[-1:] == (name,)]
            assert sorted(map(repr, group.find_all_occurrences(name))) == sorted(map(repr, ends))
        for path, item in paths.items():
            found, is_group = group.get_item_in_path(list(path)), isinstance(item, dict)
            assert group.path_exists(path)
            assert group.path_exists_and_is_data_group_field(path) == is_group
            kind = group.get_type_of_item_in_path(path)
            assert kind == (SampleDataGroup if is_group else group.format.leaves[path].dtype)
            if path:
                parent, name = group.get_parent_of_path(path), path[-1]
                assert parent is group.get_item_in_path(path[:-1])
                assert (parent[name] is found) if is_group else (parent[name] == found == item)
                assert name in parent
                assert parent.get_type_of_field(name) == kind
                assert (parent.is_data_group_field(name), parent.is_data_field(name)) == (is_group, not is_group)
            if is_group:
                assert [*found] == [*item] == [*found.keys()]
                assert [*found.items()] == [(name, found[name]) for name in item]
                assert len(found) == len(item)
                are_groups = [isinstance(child, dict) for child in item.values()]
                is_array = [*item] == [*range(len(item))]
                kinds = (is_array, is_array and not any(are_groups), is_array and all(are_groups))
                of_path = (path[-1],) if path else ()
                owner = parent if path else found
                for own, arguments in ((found, ()), (owner, of_path)):
                    methods = (own.is_array, own.is_data_field_array, own.is_data_group_field_array)
                    assert tuple(method(*arguments) for method in methods) == kinds

    def test_single_names_and_what_is_not_there(self, sample):
        assert sample.get_item_in_path("meta") is sample["meta"]
        assert sample["cameras"].get_item_in_path(1) is sample["cameras"][1]
        assert sample.get_parent_of_path("image") is sample
        assert (sample.get("x"), sample.get("x", 5), sample.get("meta")) == (None, 5, sample["meta"])
        for path in ("x", ("cameras", 2), ("x", "y"), ("image", "x"), ("cameras", "1")):
            assert not sample.path_exists(path)
            assert not sample.path_exists_and_is_data_group_field(path)
        assert [sample.is_array("image"), sample.is_data_group_field_array("image")] == [False] * 2
        single = [SampleDataGroup.path_is_single_name(path) for path in ("a", 0, None, (), [])]
        assert single == [True, True, True, False, False]
        assert sample._ipython_key_completions_() == ["image", "meta", "cameras", "scores"]


class TestBulkTransfer:
    def test_nothing_is_mapped_or_converted(self):
        group = group_of(a=(INT32, {"mapping": {"car": 1}}))
        group.set_data(iter(["car"]))
        assert group["a"] == "car"

    def test_what_an_iterable_raises_is_passed_on(self, sample):
        with pytest.raises(ZeroDivisionError):
            sample.set_data(1 // (3 - value) for value in range(10))

    def test_iterator_output(self, sample):
        outputs = {name: i for i, name in enumerate(sample.field_names_flat)} | {"more": 99}
        sample.set_data_from_dali_generic_iterator_output([{}, outputs], index=1)
        assert sample.get_data() == tuple(range(10))
        del outputs["meta.time"]
        empty = sample.get_empty_like_self()
        with pytest.raises(KeyError, match=r"meta\.time"):
            empty.set_data_from_dali_generic_iterator_output([outputs], 0)
        with pytest.raises(IndexError):
            empty.set_data_from_dali_generic_iterator_output([outputs], 1)
        assert set(empty.get_data()) == {None}


class TestAssignment:
    def test_paths(self, sample):
        sample.set_item_in_path("image", [1])
        sample.set_item_in_path(["cameras", 1, "label"], 3)
        assert sample["image"].tolist() == [1]
        assert sample["cameras"][1]["label"] == 3

    def test_only_who_assigns_is_told_to_declare_new_fields(self, sample):
        with pytest.raises(FieldNotFoundError) as info:
            sample["imag"]
        assert "declared" not in str(info.value)

    @pytest.mark.parametrize(
        ("other", "difference"),
        [
            (group_of(token=STRING, time=INT32), "time: must be FLOAT, got INT32"),
            (
                group_of(time=FLOAT, token=STRING),
                "order of the fields differs: expected token, time; got time, token",
            ),
            (group_of(token=STRING, more=FLOAT), r"time: missing\n.*more: not in the blueprint"),
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

    def test_nodes_are_stored_untouched(self, sample):
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            # Without a GPU no debug pipeline can run, but its nodes can be made.
            for node in (fn.constant(idata=[1]), DataNodeDebug.__new__(DataNodeDebug)):
                sample["image"] = sample["meta"]["token"] = node
                assert sample["image"] is sample["meta"]["token"] is node

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
        del sample["cameras"]
        assert sample.contained_top_level_field_names == ("image", "meta", "scores")
        assert sample["scores"][2] == 5
        sample.add_data_field("cameras", INT32)
        assert sample.contained_top_level_field_names == ("image", "meta", "scores", "cameras")

    def test_find_own_child_first(self):
        inner = group_of(x=FLOAT, annotation=group_of(annotation=FLOAT))
        group = group_of(other=group_of(x=FLOAT, annotation=FLOAT), annotation=inner)
        assert group.find_all_occurrences("annotation") == [
            ("annotation",),
            ("other", "annotation"),
            ("annotation", "annotation"),
            ("annotation", "annotation", "annotation"),
        ]
        assert group.get_num_occurrences("annotation") == 4
        assert group.find_all_occurrences("x") == [("other", "x"), ("annotation", "x")]
        assert group.find_all_occurrences("missing") == group.find_all_occurrences(None) == []

    @given(groups, st.sampled_from(["a", "image", 0]))
    def test_what_was_removed_is_not_found_and_the_others_keep_their_values(self, group, name):
        group.set_data(range(group.format.num_leaves))
        kept = {path: place for place, path in enumerate(group.format.flat_paths) if name not in path}
        group.remove_all_occurrences(name)
        assert group.find_all_occurrences(name) == []
        assert list(group.format.flat_paths) == list(kept)
        assert group.get_data() == tuple(kept.values())

    def test_change_type(self, sample):
        sample["image"] = 5
        sample.change_type_of_data_and_remove_data("image", FLOAT)
        assert sample["image"] is None
        assert sample.field_types_flat[0] == FLOAT
        blueprint = group_of(x=FLOAT)
        blueprint["x"] = 1
        sample.change_type_of_data_and_remove_data(("cameras", 0), blueprint)
        assert sample["cameras"][0]["x"] is None
        assert sample["cameras"][0] is not blueprint
        assert sample.field_names_flat[3:5] == ("cameras.[0].x", "cameras.[1].image")

    def test_check_has_children(self, sample):
        sample.check_has_children("image", ["meta", "cameras"], ("scores",), "cameras")
        sample["scores"].check_has_children(data_field_children=[0, 1])


class TestComparison:
    def test_type_matches(self, sample):
        other = sample.get_empty_like_self()
        sample["image"] = [1]
        other.set_do_convert(False)
        assert sample.type_matches(other)
        other["meta"].add_data_field("x", FLOAT)
        assert not sample.type_matches(other)
        assert SampleDataGroup().type_matches(GroupFormat()) is False

    def test_first_discrepancy(self):
        first = group_of(a=FLOAT, b=group_of(c=INT32, d=FLOAT), e=FLOAT)
        assert first.get_flat_index_first_discrepancy_to_other(first.get_copy()) == -1
        assert first.get_flat_index_first_discrepancy_to_other(group_of(a=FLOAT, b=group_of(c=FLOAT))) == 1

    @pytest.mark.parametrize(
        ("value", "other", "equal"),
        [
            (np.ones(2), np.ones(2), True),
            (np.ones(2), np.zeros(2), False),
            (np.ones(2), np.ones((1, 2)), False),
            (np.ones(2), np.ones(2, np.float32), False),
            (np.array([np.nan]), np.array([np.nan]), True),
            (np.zeros(2), [0.0, 0.0], False),
            (np.ones(1), None, False),
            ({"x": 1}, {"x": 1}, True),
            ([np.zeros(2), "a"], [np.zeros(2), "a"], True),
            ([1], [1, 2], False),
            (torch.ones(2), torch.ones(2), True),
            (torch.ones(2), torch.zeros(2), False),
            (torch.ones(2), np.ones(2, np.float32), False),
        ],
        ids=repr,
    )
    def test_equality_of_values(self, value, other, equal):
        first, second = group_of(a=group_of(b=FLOAT)), group_of(a=group_of(b=FLOAT))
        first.set_data([value])
        second.set_data([other])
        assert (first == second) is equal
        assert (first != second) is not equal

    def test_mappings_and_switches_do_not_count_and_foreign_types_are_never_equal(self):
        first, second = group_of(a=(INT32, {"mapping": {"car": 1}})), group_of(a=(INT32, {"ndim": 0}))
        second.set_do_convert(False)
        assert first == second
        assert first.__eq__(first) is True
        assert first != {}
        assert first.__eq__(5) is NotImplemented
        with pytest.raises(TypeError, match="unhashable"):
            hash(first)


def test_str():
    group = group_of(a=(INT32, {"mapping": {"car": 1}}), g=group_of(b=STRING))
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


def test_uniform_size_in_a_batch():
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
    with pytest.raises(FieldValueError, match=r"^inner\.b: is not set"):
        group_of(inner=group_of(b=INT32)).ensure_uniform_size_in_batch(0)
