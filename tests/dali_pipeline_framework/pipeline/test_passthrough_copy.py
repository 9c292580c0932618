"""Copies of output fields, for code that asks for them."""

from __future__ import annotations

from typing import Any

import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.pipelines import make_iterator, shuffled
from support.providers import NumberProvider
from support.refusals import assert_refused
from support.steps import Renamer

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline._insert_copy_for_passthrough import _InsertCopyForPassthrough
from accvlab.dali_pipeline_framework.processing_steps import UnneededFieldRemover

ALL_PATHS = (
    ("annotation", "boxes"),
    ("annotation", "camera", "boxes"),
    ("cameras", 0, "boxes"),
    ("cameras", 0, "image"),
    ("cameras", 1, "boxes"),
    ("cameras", 1, "image"),
    ("index",),
)
FLAG, NAMES, SCOPES, BRANCHES = (
    "copy_external_source_passthrough_outputs",
    "passthrough_copy_field_names",
    "passthrough_copy_field_names_scope_paths",
    "passthrough_copy_branch_paths",
)
NEEDS_FLAG, NEEDS_NAMES = f"needs `{FLAG}=True`", "`field_names_scope_paths` needs `field_names`"


def blueprint() -> SampleDataGroup:
    camera = group_of(image=DT.UINT8, boxes=DT.FLOAT)
    annotation = group_of(camera=group_of(boxes=DT.FLOAT), boxes=DT.FLOAT)
    return group_of(cameras=(camera, 2), index=DT.INT64, annotation=annotation)


@pytest.mark.parametrize(
    ("names", "scopes", "branches", "expected"),
    [
        (None, None, None, ALL_PATHS),
        ([], None, None, ()),
        (None, None, [], ()),
        (["image", "index"], None, None, (ALL_PATHS[3], ALL_PATHS[5], ALL_PATHS[6])),
        (["camera"], None, None, ALL_PATHS[1:2]),
        ([0], None, None, ALL_PATHS[2:4]),
        (["boxes"], ["annotation"], None, ALL_PATHS[:2]),
        (["boxes"], [("annotation", "camera"), ["cameras", 1]], None, (ALL_PATHS[1], ALL_PATHS[4])),
        (["index"], [()], None, ALL_PATHS[6:]),
        (None, None, ["index", ["cameras", 1, "image"]], ALL_PATHS[5:]),
        (None, None, [()], ALL_PATHS),
        (["image"], None, [("cameras", 0), "index"], (*ALL_PATHS[2:4], *ALL_PATHS[5:])),
    ],
)
def test_what_is_selected(names: Any, scopes: Any, branches: Any, expected: tuple[Any, ...]) -> None:
    assert _InsertCopyForPassthrough(blueprint(), names, scopes, branches)._paths_to_copy == expected


def test_numbers_and_names_may_stand_side_by_side() -> None:
    mixed = SampleDataGroup()
    for name in ("b", 10, "a", 2):
        mixed.add_data_field(name, DT.FLOAT)
    assert _InsertCopyForPassthrough(mixed)._paths_to_copy == ((2,), (10,), ("a",), ("b",))


def definition(*steps: Any, **arguments: Any) -> PipelineDefinition:
    return PipelineDefinition(shuffled(NumberProvider(8)), steps, **{FLAG: True, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(({FLAG: None, name: []}, NEEDS_FLAG) for name in (NAMES, SCOPES, BRANCHES)),
        ({FLAG: False, NAMES: ["number"]}, NEEDS_FLAG),
        ({SCOPES: ["cameras"]}, NEEDS_NAMES),
        ({NAMES: [], SCOPES: ["cameras"]}, NEEDS_NAMES),
        ({NAMES: ["gain"], SCOPES: [("cameras", 5, "x")]}, "The scope 'cameras[5].x' does not exist"),
        ({NAMES: ["gain"], SCOPES: ["number"]}, "The scope 'number' is not a data group field"),
        ({NAMES: ["gian"]}, "The field name 'gian' does not exist in the given scope"),
        ({BRANCHES: ["index"]}, "for final output format: ...The branch 'index' does not exist"),  # it is renamed
        ({BRANCHES: [("number", "x")]}, "The branch 'number.x' does not exist"),
    ],
)
def test_selections_that_do_not_fit_are_refused(arguments: dict[str, Any], words: str) -> None:
    def check() -> None:
        definition(Renamer("index", "number"), **arguments).check_and_get_output_data_structure()

    assert_refused(check, words)


def num_copies(pipeline: Any) -> int:
    pipeline.build()
    return sum(getattr(node._op, "schema_name", "") == "Copy" for node in pipeline._ops)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({FLAG: None}, 0),
        ({}, 7),
        ({NAMES: ["gain"], SCOPES: [("cameras", 1)], BRANCHES: ["name"], "check_data_format": False}, 2),
    ],
)
def test_what_is_copied_is_delivered_as_it_is(arguments: dict[str, Any], expected: int) -> None:
    how = {FLAG: True, **arguments}
    with make_iterator(shuffled(NumberProvider(8)), definition=how, py_num_workers=0) as iterator:
        assert num_copies(iterator.internal_iterator) == expected
        batches = [*iterator]
    assert [batch["index"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[1]["cameras"][1]["gain"].tolist() == [4.5, 5.5, 6.5, 7.5]
    assert batches[1]["name"] == ["x", "xx", "", "x"]


@pytest.mark.parametrize("scopes", [None, ["cameras"]])
def test_a_name_may_be_that_of_a_field_that_a_step_has_removed(scopes: Any) -> None:
    steps = Renamer("index", "number"), UnneededFieldRemover(["gain", "number"])
    for removed in ("gain", "number"):  # the latter is neither in the input nor in the output
        copying = definition(*steps, **{NAMES: [removed, "label"], SCOPES: scopes})
        pipeline = copying.get_dali_pipeline(num_threads=1, py_num_workers=0)
        with pytest.warns(Warning, match="no step reads them"):
            assert num_copies(pipeline) == 2
