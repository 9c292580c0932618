"""Copies of output fields, for code that asks for them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import nvidia.dali.fn
import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.laws import each_value
from support.pipelines import make_iterator, shuffled
from support.providers import NumberProvider
from support.steps import Renamer

from accvlab.dali_pipeline_framework.pipeline import (
    PipelineDefinition,
    SampleDataGroup,
    _insert_copy_for_passthrough,
)
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
FLAG = "copy_external_source_passthrough_outputs=True"


def blueprint() -> SampleDataGroup:
    camera = group_of(image=DT.UINT8, boxes=DT.FLOAT)
    annotation = group_of(camera=group_of(boxes=DT.FLOAT), boxes=DT.FLOAT)
    return group_of(cameras=(camera, 2), index=DT.INT64, annotation=annotation)


def copied_paths(made: _InsertCopyForPassthrough, data: SampleDataGroup) -> tuple[Any, ...]:
    """Paths of the fields that are copied, in this order; the copies, which DALI makes when called, are there."""
    data.set_do_convert(False)
    data.set_do_check_type(False)
    for path in data.format.flat_paths:
        data.set_item_in_path(path, path)
    copied: list[Any] = []

    def copy(value: Any) -> str:
        copied.append(value)
        return f"copy of {value}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_insert_copy_for_passthrough, "fn", SimpleNamespace(copy=copy))
        assert made(data) is data
    for path in data.format.flat_paths:
        assert data.get_item_in_path(path) == (f"copy of {path}" if path in copied else path)
    return tuple(copied)


class TestSelection:
    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, ALL_PATHS),
            ({"field_names": []}, ()),
            ({"branch_paths": []}, ()),
            ({"field_names": [], "branch_paths": []}, ()),
            ({"field_names": ["index"]}, (("index",),)),
            (
                {"field_names": ["boxes"]},
                (
                    ("annotation", "boxes"),
                    ("annotation", "camera", "boxes"),
                    ("cameras", 0, "boxes"),
                    ("cameras", 1, "boxes"),
                ),
            ),
            ({"field_names": ["image", "index"]}, (("cameras", 0, "image"), ("cameras", 1, "image"), ("index",))),
            ({"field_names": ["camera"]}, (("annotation", "camera", "boxes"),)),
            ({"field_names": [0]}, (("cameras", 0, "boxes"), ("cameras", 0, "image"))),
            (
                {"field_names": ["boxes"], "field_names_scope_paths": ["annotation"]},
                (("annotation", "boxes"), ("annotation", "camera", "boxes")),
            ),
            (
                {"field_names": ["boxes"], "field_names_scope_paths": [("annotation", "camera"), ["cameras", 1]]},
                (("annotation", "camera", "boxes"), ("cameras", 1, "boxes")),
            ),
            ({"field_names": ["index"], "field_names_scope_paths": [()]}, (("index",),)),
            ({"branch_paths": ["index"]}, (("index",),)),
            ({"branch_paths": [("cameras", 1)]}, (("cameras", 1, "boxes"), ("cameras", 1, "image"))),
            ({"branch_paths": [["cameras", 1, "image"]]}, (("cameras", 1, "image"),)),
            ({"branch_paths": [()]}, ALL_PATHS),
            (
                {"field_names": ["image"], "branch_paths": [("cameras", 0), "index"]},
                (("cameras", 0, "boxes"), ("cameras", 0, "image"), ("cameras", 1, "image"), ("index",)),
            ),
            ({"field_names": [], "branch_paths": ["index"]}, (("index",),)),
        ],
    )
    def test_paths_to_copy(self, selection: dict[str, Any], expected: tuple[Any, ...]) -> None:
        assert copied_paths(_InsertCopyForPassthrough(blueprint(), **selection), blueprint()) == expected

    def test_the_arguments_by_position(self) -> None:
        made = _InsertCopyForPassthrough(blueprint(), ["image"], [("cameras", 1)], ["index"])
        assert copied_paths(made, blueprint()) == (("cameras", 1, "image"), ("index",))

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            ({"field_names_scope_paths": ["cameras"]}, "needs `field_names`"),
            ({"field_names": [], "field_names_scope_paths": ["cameras"]}, "needs `field_names`"),
            ({"branch_paths": ["index"], "field_names_scope_paths": ["cameras"]}, "needs `field_names`"),
            ({"field_names": ["image"], "field_names_scope_paths": ["lidar"]}, "'lidar' does not exist"),
            (
                {"field_names": ["image"], "field_names_scope_paths": [("cameras", 5, "x")]},
                r"'cameras\[5\]\.x' does not exist",
            ),
            ({"field_names": ["image"], "field_names_scope_paths": ["index"]}, "data group field"),
            ({"branch_paths": ["lidar"]}, "'lidar' does not exist"),
            ({"branch_paths": [("cameras", 2)]}, r"'cameras\[2\]' does not exist"),
            ({"branch_paths": [("lidar", "points", 3)]}, r"'lidar\.points\[3\]' does not exist"),
            ({"branch_paths": [("index", "x")]}, r"'index\.x' does not exist"),
            ({"field_names": ["imgae"]}, "'imgae' does not exist"),
        ],
    )
    def test_selections_that_do_not_fit_are_refused(self, selection: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            _InsertCopyForPassthrough(blueprint(), **selection)

    def test_numbers_and_names_may_stand_side_by_side(self) -> None:
        mixed = SampleDataGroup()
        for name in ("b", 10, "a", 2):
            mixed.add_data_field(name, DT.FLOAT)
        assert copied_paths(_InsertCopyForPassthrough(mixed), mixed) == ((2,), (10,), ("a",), ("b",))


def test_fn_is_dali_s() -> None:
    assert _insert_copy_for_passthrough.fn is nvidia.dali.fn


def operators(pipeline: Any) -> list[str]:
    """Kinds of the operators in the graph of a pipeline."""
    pipeline.build()
    return sorted(getattr(node._op, "schema_name", type(node._op).__name__) for node in pipeline._ops)


class TestPipelineDefinition:
    def test_by_default_nothing_is_copied_and_nobody_is_warned(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline = PipelineDefinition(shuffled(NumberProvider(8))).get_dali_pipeline(num_threads=1)
        kinds = operators(pipeline)
        pipeline.close()
        assert kinds == ["ExternalSource"]  # no step touches a field, so that all are packed

    @pytest.mark.parametrize("flag", [None, False])
    @pytest.mark.parametrize(
        "selection",
        [
            {"passthrough_copy_field_names": ["index"]},
            {"passthrough_copy_field_names": []},
            {"passthrough_copy_field_names_scope_paths": []},
            {"passthrough_copy_branch_paths": []},
            {"passthrough_copy_branch_paths": ["index"]},
        ],
    )
    def test_a_selection_needs_the_flag(self, flag: bool | None, selection: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=FLAG):
            PipelineDefinition(
                shuffled(NumberProvider()), copy_external_source_passthrough_outputs=flag, **selection
            )

    @each_value(
        copied=[
            ({}, 0),
            ({"copy_external_source_passthrough_outputs": False}, 0),
            ({"copy_external_source_passthrough_outputs": True}, 7),
            ({"copy_external_source_passthrough_outputs": True, "passthrough_copy_field_names": ["gain"]}, 2),
            ({"copy_external_source_passthrough_outputs": True, "passthrough_copy_field_names": []}, 0),
            ({"copy_external_source_passthrough_outputs": True, "passthrough_copy_branch_paths": ["cameras"]}, 4),
            (
                {
                    "copy_external_source_passthrough_outputs": True,
                    "passthrough_copy_field_names": ["gain"],
                    "passthrough_copy_field_names_scope_paths": [("cameras", 1)],
                    "passthrough_copy_branch_paths": ["name"],
                },
                2,
            ),
        ],
        check_data_format=[True, False],
    )
    def test_copies_what_is_selected_and_delivers_the_same(
        self, copied: tuple[dict[str, Any], int], check_data_format: bool
    ) -> None:
        definition, num_copies = {**copied[0], "check_data_format": check_data_format}, copied[1]
        with make_iterator(shuffled(NumberProvider(8)), definition=definition) as iterator:
            assert operators(iterator.internal_iterator).count("Copy") == num_copies
            batches = [*iterator]
        assert [batch["index"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert batches[1]["cameras"][1]["gain"].tolist() == [4.5, 5.5, 6.5, 7.5]
        assert batches[1]["name"] == ["x", "xx", "", "x"]

    def test_the_selection_is_about_the_output(self) -> None:
        steps = [Renamer("index", "number")]
        renamed = PipelineDefinition(
            shuffled(NumberProvider()),
            steps,
            copy_external_source_passthrough_outputs=True,
            passthrough_copy_branch_paths=["number"],
        )
        assert "number" in renamed.check_and_get_output_data_structure().field_names_flat
        pipeline = renamed.get_dali_pipeline(num_threads=1)
        num_copies = operators(pipeline).count("Copy")
        pipeline.close()
        assert num_copies == 1

    @pytest.mark.parametrize("path", ["index", ("cameras", 7), ("lidar", "points")])
    def test_a_selection_that_does_not_fit_the_output_is_refused(self, path: Any) -> None:
        definition = PipelineDefinition(
            shuffled(NumberProvider()),
            [Renamer("index", "number")],
            copy_external_source_passthrough_outputs=True,
            passthrough_copy_branch_paths=[path],
        )
        message = "Invalid pass-through output copy configuration for final output format: .*does not exist"
        with pytest.raises(ValueError, match=message):
            definition.check_and_get_output_data_structure()
        with pytest.raises(ValueError, match=message):
            definition.get_dali_pipeline(num_threads=1)

    @pytest.mark.parametrize("scope", [None, ["cameras"]])
    def test_a_name_may_be_that_of_a_field_that_a_step_has_removed(self, scope: Any) -> None:
        def define(*names: str) -> PipelineDefinition:
            return PipelineDefinition(
                shuffled(NumberProvider()),
                [Renamer("index", "number"), UnneededFieldRemover(["gain", "number"])],
                copy_external_source_passthrough_outputs=True,
                passthrough_copy_field_names=names,
                passthrough_copy_field_names_scope_paths=scope,
            )

        for removed in ("gain", "number"):  # the latter is neither in the input nor in the output
            pipeline = define(removed, "label").get_dali_pipeline(num_threads=1, py_num_workers=0)
            with pytest.warns(Warning, match="no step reads them"):
                pipeline.build()
            assert operators(pipeline).count("Copy") == 2
        with pytest.raises(ValueError, match="The field name 'gian' does not exist"):
            define("gian", "label").check_and_get_output_data_structure()
