"""Imports and signatures of the published API: code that is written for it runs unchanged.

Positional order, names and defaults are compared. Further arguments are keyword-only and have defaults; arguments
that were required may have one.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
from nvidia.dali import types

NAME = "accvlab.dali_pipeline_framework"

# Module, class, arguments. PyTorch's iterator is the default as it was, but is not named by its class.
CONSTRUCTORS = """\
pipeline.sample_data_group SampleDataGroup ()
pipeline.pipeline PipelineDefinition (data_loading_callable_iterable, preprocess_functors=None, \
check_data_format=True, use_parallel_external_source=True, prefetch_queue_depth=2, \
print_sample_data_group_format=False, copy_external_source_passthrough_outputs=None, \
passthrough_copy_field_names=None, passthrough_copy_field_names_scope_paths=None, \
passthrough_copy_branch_paths=None)
pipeline.dali_structured_output_iterator DALIStructuredOutputIterator (num_batches_in_epoch, pipeline, \
sample_data_structure_blueprint, contained_dataset=None, dali_generic_iterator_class=None, \
convert_sample_data_group_to_dict=True, post_process_func=None)
pipeline._insert_copy_for_passthrough _InsertCopyForPassthrough (data_empty, field_names=None, \
field_names_scope_paths=None, branch_paths=None)
inputs.shuffled_sharded_input_callable ShuffledShardedInputCallable (data_provider, batch_size, shard_id=0, \
num_shards=1, shuffle=False, seed=21)
inputs.sfuffled_sharded_input_callable ShuffledShardedInputCallable (data_provider, batch_size, shard_id=0, \
num_shards=1, shuffle=False, seed=21)
inputs.sampler_input_callable SamplerInputCallable (data_provider, sampler, max_num_iterations, \
pre_fetch_queue_length, shard_id=0, num_shards=1)
inputs.sampler_input_iterable SamplerInputIterable (data_provider, sampler, shard_id=0, num_shards=1)
inputs.sequence_sampler SequenceSampler (total_batch_size, sequence_lenghts, seed, randomize=True)
processing_steps ImageDecoder (image_name, use_device_mixed, hw_decoder_load=0.65, as_bgr=False)
processing_steps ImageToTileSizePadder (image_name, tile_size_to_pad_to)
processing_steps ImageRange01Normalizer (image_name)
processing_steps ImageMeanStdDevNormalizer (image_name, mean, std_dev, \
output_type=DT.FLOAT)
processing_steps PhotoMetricDistorter (image_name, min_max_brightness, min_max_hue, \
min_max_contrast, min_max_saturation, prob_brightness_aug=0.5, prob_hue_aug=0.5, prob_contrast_aug=0.5, \
prob_saturation_aug=0.5, prob_swap_channels=0.5, is_bgr=False, enforce_process_on_gpu=True)
processing_steps AffineTransformer (output_hw, resizing_mode, resizing_anchor=None, \
image_field_names=None, image_hw_field_names=None, projection_matrix_field_names=None, point_field_names=None, \
transformation_steps=None, transform_image_on_gpu=True)
processing_steps AffineTransformer.Translation (prob, min_xy, max_xy=None)
processing_steps AffineTransformer.Rotation (prob, min_rot, max_rot=None)
processing_steps AffineTransformer.UniformScaling (prob, min_scaling, max_scaling=None)
processing_steps AffineTransformer.NonUniformScaling (prob, min_scaling_xy, max_scaling_xy=None)
processing_steps AffineTransformer.Shearing (prob, min_shearing_xy, max_shearing_xy=None)
processing_steps AffineTransformer.ShiftInsideOriginalImage (prob, shift_x, shift_y)
processing_steps AffineTransformer.ShiftToAlignWithOriginalImageBorder (prob, border)
processing_steps AffineTransformer.Selection (prob, option_probs, options)
processing_steps CoordinateCropper (points_fields_name, minimum_point, maximum_point)
processing_steps PaddingToUniform (field_names=None, fill_value=0.0)
processing_steps AxesLayoutSetter (names_fields_to_set, layout_to_set)
processing_steps TensorSizeAdder (tensor_name, size_postfix, store_size_as_type=DT.INT32)
processing_steps UnneededFieldRemover (unneeded_field_names)
processing_steps ConditionalElementRemover (annotation_field_name, mask_field_name, \
field_names_to_process, field_dims_to_process, fields_to_process_num_dims, remove_mask_field)
processing_steps PointsInRangeCheck (points_fields_name, is_inside_field_name, \
minimum_point, maximum_point)
processing_steps VisibleBboxSelector (bboxes_field_name, resulting_mask_field_path, \
image_field_name=None, image_hw_field_name=None, image_hw=None, check_for_bbox_occlusion=True, \
check_for_minimum_size=True, depths_field_name=None, minimum_bbox_size=None)
processing_steps AnnotationElementConditionEval (annotation_field_name, \
condition, remove_data_fields_used_in_condition)
processing_steps BEVBBoxesTransformer3D (data_field_names_points, \
data_field_names_velocities, data_field_names_sizes, data_field_names_orientation, \
data_field_names_proj_matrices_and_extrinsics, data_field_names_ego_to_world, data_field_names_world_to_ego, \
rotation_range, rotation_axis, scaling_range, translation_max_abs)
processing_steps BoundingBoxToHeatmapConverter (annotation_field_name, \
bboxes_in_name, heatmap_out_name, heatmap_hw, image_field_name=None, image_hw_field_name=None, \
categories_in_name=None, num_categories=None, min_object_size=None, per_category_min_object_sizes=None, \
use_per_category_heatmap=True, is_valid_opt_in_name=None, center_opt_in_name=None, is_active_opt_out_name=None, \
center_opt_out_name=None, center_offset_opt_out_name=None, height_width_bboxes_heatmap_opt_out_name=None, \
bboxes_heatmap_opt_out_name=None, min_fraction_area_clipping=0.25, min_radius=0.5, max_radius=10.0, \
radius_scaling_factor=0.8, radius_to_sigma_factor=1/3)
processing_steps GroupToApplyToSelectedStepBase (processing_step_to_apply)
processing_steps DataGroupInPathAppliedStep (processing_step_to_apply, \
path_to_apply_to)
processing_steps DataGroupsWithNameAppliedStep (processing_step_to_apply, \
names_of_groups_to_apply_to, check_minimum_one_name_match=True)
processing_steps DataGroupArrayInPathElementsAppliedStep \
(processing_step_to_apply, path_to_array_to_apply_to)
processing_steps DataGroupArrayWithNameElementsAppliedStep \
(processing_step_to_apply, name_of_arrays_to_apply_to, check_minimum_one_name_match=True)
"""

FUNCTIONS = """\
numba_operators pad_to_size (input, num_dims, data_type, size)
numba_operators remove_inactive (data, active_mask, masked_dimension, num_dims, data_type)
numba_operators ensure_range (data, min_value, max_value, period, num_dims, data_type)
numba_operators replace_nans (data, replacement_value, num_dims, data_type=DT.FLOAT)
numba_operators check_bbox_visibiity (bboxes, depths, image_hw, shrink_bbox_to_obtain_int_coords=False)
numba_operators check_minimum_bbox_size (bboxes, min_size, image_hw)
numba_operators check_points_in_box (points, min_point, max_point)
numba_operators crop_coordinates (points, min_point_np, max_point_np, dtype)
numba_operators get_rot_mat_from_rot_vector (rot_vector, as_homog=False, eps=1e-07)
numba_operators get_translation_mat_from_vector (translation)
numba_operators get_scaling_mat_from_vector (scaling, as_homog=False)
numba_operators apply_matrix (to_apply_to, matrix, make_apply_to_homog, to_apply_to_is_transposed, \
matrix_is_transposed, matrix_is_inverted, multiply_matrix_from_right)
numba_operators _apply_matrix_2d_input_ensured (to_apply_to, matrix, make_apply_to_homog, \
to_apply_to_is_transposed, matrix_is_transposed, matrix_is_inverted, multiply_matrix_from_right)
numba_operators get_center_from_bboxes (bboxes, dtype_in=DT.FLOAT)
numba_operators get_radii_from_bboxes (bboxes, dtype_bboxes=DT.FLOAT, scaling_factor=0.8, centers=None, \
dtype_center=DT.FLOAT)
python_operator_functions apply_transform_to_points (points, transform)
python_operator_functions add_post_transform_to_projection_matrix (proj_mat, transform)
python_operator_functions apply_clipping_and_get_with_clipping_info (rects, centers, scaling_trafo, image_hw)
python_operator_functions get_is_active (hw, classes, fraction_areas, min_object_size, \
per_class_min_object_sizes, num_classes, min_fraction_area_thresh)
python_operator_functions pad_to_common_size (*inputs, fill_value)
"""

# Methods, functions of classes and properties ("-").
METHODS = """\
SampleDataGroup.create_data_field_array (type, num_fields, mapping=None)
SampleDataGroup.create_data_group_field_array (sample_data_group, num_fields)
SampleDataGroup.set_apply_mapping (self, apply)
SampleDataGroup.set_do_convert (self, convert)
SampleDataGroup.set_do_check_type (self, check_type)
SampleDataGroup.get_empty_like_self (self)
SampleDataGroup.get_copy (self)
SampleDataGroup.type_matches (self, other)
SampleDataGroup.__setitem__ (self, name, value)
SampleDataGroup.__getitem__ (self, name)
SampleDataGroup.set_item_in_path (self, path, value)
SampleDataGroup.get_item_in_path (self, path)
SampleDataGroup.get_parent_of_path (self, path)
SampleDataGroup.get_type_of_item_in_path (self, path)
SampleDataGroup.path_is_single_name (path)
SampleDataGroup.path_exists (self, path)
SampleDataGroup.path_exists_and_is_data_group_field (self, path)
SampleDataGroup.get_type_of_field (self, name)
SampleDataGroup.get_string_no_details (self)
SampleDataGroup.__str__ (self)
SampleDataGroup.__len__ (self)
SampleDataGroup.is_array (self, field=None)
SampleDataGroup.is_data_field_array (self, field=None)
SampleDataGroup.is_data_group_field_array (self, field=None)
SampleDataGroup.contained_top_level_field_names -
SampleDataGroup.field_top_level_types -
SampleDataGroup.field_names_flat -
SampleDataGroup.field_types_flat -
SampleDataGroup.get_data (self, as_list_type=False)
SampleDataGroup.set_data (self, data)
SampleDataGroup.set_data_from_dali_generic_iterator_output (self, data, index)
SampleDataGroup.has_child (self, name)
SampleDataGroup.add_data_field (self, name, type, mapping=None)
SampleDataGroup.add_data_group_field (self, name, blueprint_sample_data_group)
SampleDataGroup.add_data_field_array (self, name, type, num_fields, mapping=None)
SampleDataGroup.add_data_group_field_array (self, name, blueprint_sample_data_group, num_fields)
SampleDataGroup.remove_field (self, name)
SampleDataGroup.remove_all_occurrences (self, name_to_remove)
SampleDataGroup.find_all_occurrences (self, name_to_find)
SampleDataGroup.get_num_occurrences (self, name_to_find)
SampleDataGroup.change_type_of_data_and_remove_data (self, path, new_type, new_mapping=None)
SampleDataGroup.get_flat_index_first_discrepancy_to_other (self, other)
SampleDataGroup.ensure_uniform_size_in_batch (self, fill_value)
SampleDataGroup.ensure_uniform_size_in_batch_for_all_strings (self)
SampleDataGroup.is_data_field (self, name)
SampleDataGroup.is_data_group_field (self, name)
SampleDataGroup.to_dictionary (self)
SampleDataGroup.get_numpy_type_for_dali_type (dali_type)
SampleDataGroup.check_has_children (self, data_field_children=None, data_group_field_children=None, \
data_field_array_children=None, data_group_field_array_children=None, current_name=None)
PipelineDefinition.input_data_structure -
PipelineDefinition.check_and_get_output_data_structure (self)
PipelineDefinition.get_dali_pipeline (self, *args, **kwargs)
DALIStructuredOutputIterator.__iter__ (self)
DALIStructuredOutputIterator.reset (self)
DALIStructuredOutputIterator.__len__ (self)
DALIStructuredOutputIterator.sample_data_structure_blueprint -
DALIStructuredOutputIterator.internal_iterator -
DALIStructuredOutputIterator.dataset -
DALIStructuredOutputIterator.CreateAsDataLoaderObject (*args, **kwargs)
DALIStructuredOutputIterator.SimpleIterator.__next__ (self)
DALIStructuredOutputIterator.SimpleIterator.__iter__ (self)
DALIStructuredOutputIterator.SimpleIterator.reset (self)
DALIStructuredOutputIterator.SimpleIterator.__len__ (self)
"""

# Package -> names that are imported from it; and modules beside those of the constructors.
EXPORTS = {
    "": "__version__ inputs internal_helpers operators_impl pipeline processing_steps",
    "inputs": "CallableBase DataProvider IterableBase SamplerBase SamplerInputCallable SamplerInputIterable "
    "SequenceSampler ShuffledShardedInputCallable",
    "pipeline": "PipelineDefinition DALIStructuredOutputIterator SampleDataGroup",
    "processing_steps": "PipelineStepBase GroupToApplyToSelectedStepBase DataGroupInPathAppliedStep "
    "DataGroupsWithNameAppliedStep DataGroupArrayInPathElementsAppliedStep "
    "DataGroupArrayWithNameElementsAppliedStep ImageDecoder ImageToTileSizePadder ImageRange01Normalizer "
    "ImageMeanStdDevNormalizer PhotoMetricDistorter AffineTransformer CoordinateCropper PaddingToUniform "
    "AxesLayoutSetter BoundingBoxToHeatmapConverter AnnotationElementConditionEval BEVBBoxesTransformer3D "
    "VisibleBboxSelector PointsInRangeCheck ConditionalElementRemover UnneededFieldRemover TensorSizeAdder",
    "operators_impl": "numba_operators python_operator_functions",
    **{
        f"operators_impl.{module}": " ".join(
            line.split(" ")[1] for line in FUNCTIONS.splitlines() if line.startswith(module)
        )
        for module in ("numba_operators", "python_operator_functions")
    },
    "internal_helpers": "check_type print_tensor_op print_tensor_size_op get_mapped get_as_data_node mini_parser",
    "internal_helpers.mini_parser": "Parser AST Assignment Literal Variable Comparison Or And Not UnaryMinus "
    "Lexer TokenType Token",
}
MODULES = {
    **EXPORTS,
    "inputs.callable_base": "CallableBase",
    "inputs.iterable_base": "IterableBase",
    "inputs.data_provider": "DataProvider",
    "inputs.sampler_base": "SamplerBase",
    "pipeline._insert_copy_for_passthrough": "PathType fn",
    "pipeline._dali_structured_output_iterator_data_loader_wrapper": "get_masked_as_type",
    "processing_steps.pipeline_step_base": "PipelineStepBase",
    "internal_helpers.debug_helpers": "print_tensor_op print_tensor_size_op",
    "internal_helpers.helper_functions": "get_mapped get_as_data_node",
    "internal_helpers.check_type": "check_type",
    "internal_helpers.mini_parser.ast": "AST Assignment Literal Variable Comparison Or And Not UnaryMinus",
    "internal_helpers.mini_parser.lexer": "Lexer TokenType Token",
    "internal_helpers.mini_parser.parser": "Parser",
    **{f"{module}.{module.split('.')[1]}": names for module, names in EXPORTS.items() if "_impl." in module},
}

# Modules of steps that are not named as their class is.
OTHER_MODULES = {
    "BEVBBoxesTransformer3D": "bev_bboxes_transformer_3d",
    "ConditionalElementRemover": "conditional_element_removal",
    "UnneededFieldRemover": "unneeded_fields_remover",
}
for name in EXPORTS["processing_steps"].split():
    words = re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Z])", "_", name).lower()
    MODULES[f"processing_steps.{OTHER_MODULES.get(name, words)}"] = name

_POSITIONAL = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signature_of(published: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {published[1:-1]}: None", {"DT": types.DALIDataType}))


def differences(function: Any, published: str) -> list[str]:
    """What code that is written for the published arguments would trip over."""
    expected = signature_of(published)
    found = inspect.signature(function)
    positional = [parameter for parameter in found.parameters.values() if parameter.kind in _POSITIONAL]
    wanted = [parameter for parameter in expected.parameters.values() if parameter.kind in _POSITIONAL]
    problems = []
    if [parameter.name for parameter in positional] != [parameter.name for parameter in wanted]:
        problems.append(f"positional arguments are {found}")
    for parameter in wanted:
        has_default = parameter.default is not parameter.empty
        other = found.parameters.get(parameter.name)
        if has_default and other is not None and other.default != parameter.default:
            problems.append(f"{parameter.name} is {other.default!r} by default")
    for parameter in found.parameters.values():
        is_new = parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in expected.parameters
        if is_new and parameter.default is parameter.empty:
            problems.append(f"{parameter.name} is required")
    for kind in _VARIADIC:
        is_wanted = any(parameter.kind is kind for parameter in expected.parameters.values())
        if is_wanted and all(parameter.kind is not kind for parameter in found.parameters.values()):
            problems.append(f"{kind.description} is missing")
    return problems


def member(module: str, path: str) -> Any:
    found = importlib.import_module(f"{NAME}.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    return found


class TestSignatures:
    @pytest.mark.parametrize("line", CONSTRUCTORS.splitlines(), ids=lambda line: line.split(" ")[1])
    def test_of_constructors(self, line: str) -> None:
        module, name, arguments = line.split(" ", 2)
        found = member(module, name)
        assert differences(found, arguments) == []
        assert name.startswith("_") or member(module.split(".")[0], name) is found

    @pytest.mark.parametrize("line", METHODS.splitlines(), ids=lambda line: line.split(" ")[0])
    def test_of_methods(self, line: str) -> None:
        path, arguments = line.split(" ", 1)
        found = member("pipeline", path)
        if arguments == "-":
            assert isinstance(found, property)
        else:
            assert differences(found, arguments) == []

    @pytest.mark.parametrize("line", FUNCTIONS.splitlines(), ids=lambda line: line.split(" ")[1])
    def test_of_functions(self, line: str) -> None:
        module, name, arguments = line.split(" ", 2)
        function = member(f"operators_impl.{module}", name)
        assert differences(function, arguments) == []
        assert inspect.signature(function).parameters.keys() == signature_of(arguments).parameters.keys()
        assert member(f"operators_impl.{module}.{module}", name) is function

    def test_of_what_a_step_overrides(self) -> None:
        base = member("processing_steps", "PipelineStepBase")
        assert base.__abstractmethods__ == {"_process", "_check_and_adjust_data_format_input_to_output"}
        assert differences(base._process, "(self, data)") == []
        assert differences(base._check_and_adjust_data_format_input_to_output, "(self, data_empty)") == []
        assert differences(base.check_input_data_format_and_set_output_data_format, "(self, data_empty)") == []
        assert differences(base.__call__, "(self, data)") == []
        wrapper = member("processing_steps", "GroupToApplyToSelectedStepBase")
        assert differences(wrapper._check_and_get_paths_to_apply_to, "(self, data)") == []


class TestNames:
    @pytest.mark.parametrize("module", MODULES, ids=lambda module: module or "package")
    def test_of_modules(self, module: str) -> None:
        found, names = importlib.import_module(f"{NAME}.{module}".rstrip(".")), {*MODULES[module].split()}
        assert {name for name in names if not hasattr(found, name)} == set()
        room = importlib.import_module(f"{NAME}.{module.split('.')[0]}".rstrip("."))
        assert all(getattr(room, name, None) in (None, getattr(found, name)) for name in names)
        assert module not in EXPORTS or names <= {*found.__all__}
        assert "_impl." not in module or names == {*found.__all__}

    def test_members_of_enumerations(self) -> None:
        transformer = member("processing_steps", "AffineTransformer")
        assert {mode.name: mode.value for mode in transformer.ResizingMode} == {"STRETCH": 0, "PAD": 1, "CROP": 2}
        anchors = {anchor.name: anchor.value for anchor in transformer.ResizingAnchor}
        assert anchors == {"CENTER": 0, "TOP_OR_LEFT": 1, "BOTTOM_OR_RIGHT": 2}
        borders = transformer.ShiftToAlignWithOriginalImageBorder.Border
        assert {border.name: border.value for border in borders} == {"TOP": 0, "LEFT": 1, "BOTTOM": 2, "RIGHT": 3}
        assert inspect.isabstract(transformer.TransformationStep)

    def test_types_of_tokens(self) -> None:
        token_type = member("internal_helpers.mini_parser", "TokenType")
        names = "LITERAL VARIABLE ASSIGNMENT COMPARISON LOGICAL_OR LOGICAL_AND LOGICAL_NOT MINUS PARENTHESIS_OPEN"
        published = {name: name.lower() for name in [*names.split(), "PARENTHESIS_CLOSE"]} | {"EOL": "end_of_line"}
        assert {name: getattr(token_type, name) for name in published} == published

    def test_members_of_abstract_inputs(self) -> None:
        members = {
            "CallableBase": {"used_sample_data_structure", "__call__", "length"},
            "IterableBase": {"used_sample_data_structure", "__iter__", "__next__", "length"},
            "DataProvider": {"get_data", "get_number_of_samples", "sample_data_structure"},
            "SamplerBase": {"get_next_batch_indices", "is_epoch_based", "reset", "length"},
        }
        for name, expected in members.items():
            assert member("inputs", name).__abstractmethods__ == expected
