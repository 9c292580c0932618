# SPDX-License-Identifier: Apache-2.0
"""What is done to a sample: one public step per module."""

from typing import TYPE_CHECKING

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework.processing_steps.affine_transformer import AffineTransformer
    from accvlab.dali_pipeline_framework.processing_steps.annotation_element_condition_eval import (
        AnnotationElementConditionEval,
    )
    from accvlab.dali_pipeline_framework.processing_steps.axes_layout_setter import AxesLayoutSetter
    from accvlab.dali_pipeline_framework.processing_steps.bev_bboxes_transformer_3d import BEVBBoxesTransformer3D
    from accvlab.dali_pipeline_framework.processing_steps.bounding_box_to_heatmap_converter import (
        BoundingBoxToHeatmapConverter,
    )
    from accvlab.dali_pipeline_framework.processing_steps.conditional_element_removal import (
        ConditionalElementRemover,
    )
    from accvlab.dali_pipeline_framework.processing_steps.coordinate_cropper import CoordinateCropper
    from accvlab.dali_pipeline_framework.processing_steps.data_group_array_in_path_elements_applied_step import (
        DataGroupArrayInPathElementsAppliedStep,
    )
    from accvlab.dali_pipeline_framework.processing_steps.data_group_array_with_name_elements_applied_step import (
        DataGroupArrayWithNameElementsAppliedStep,
    )
    from accvlab.dali_pipeline_framework.processing_steps.data_group_in_path_applied_step import (
        DataGroupInPathAppliedStep,
    )
    from accvlab.dali_pipeline_framework.processing_steps.data_groups_with_name_applied_step import (
        DataGroupsWithNameAppliedStep,
    )
    from accvlab.dali_pipeline_framework.processing_steps.frame_sequence_decoder import FrameSequenceDecoder
    from accvlab.dali_pipeline_framework.processing_steps.group_to_apply_to_selected_step_base import (
        GroupToApplyToSelectedStepBase,
    )
    from accvlab.dali_pipeline_framework.processing_steps.horizontal_flipper import HorizontalFlipper
    from accvlab.dali_pipeline_framework.processing_steps.image_brightness_contrast_jitter import (
        ImageBrightnessContrastJitter,
    )
    from accvlab.dali_pipeline_framework.processing_steps.image_decoder import ImageDecoder
    from accvlab.dali_pipeline_framework.processing_steps.image_mean_std_dev_normalizer import (
        ImageMeanStdDevNormalizer,
    )
    from accvlab.dali_pipeline_framework.processing_steps.image_range_01_normalizer import ImageRange01Normalizer
    from accvlab.dali_pipeline_framework.processing_steps.image_resize_crop_flipper import ImageResizeCropFlipper
    from accvlab.dali_pipeline_framework.processing_steps.image_resizer import ImageResizer
    from accvlab.dali_pipeline_framework.processing_steps.image_to_tile_size_padder import ImageToTileSizePadder
    from accvlab.dali_pipeline_framework.processing_steps.padding_to_uniform import PaddingToUniform
    from accvlab.dali_pipeline_framework.processing_steps.photo_metric_distorter import PhotoMetricDistorter
    from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import PipelineStepBase
    from accvlab.dali_pipeline_framework.processing_steps.points_in_range_check import PointsInRangeCheck
    from accvlab.dali_pipeline_framework.processing_steps.tensor_size_adder import TensorSizeAdder
    from accvlab.dali_pipeline_framework.processing_steps.unneeded_fields_remover import UnneededFieldRemover
    from accvlab.dali_pipeline_framework.processing_steps.visible_bbox_selector import VisibleBboxSelector

_MODULE_OF = {
    "AffineTransformer": "affine_transformer",
    "AnnotationElementConditionEval": "annotation_element_condition_eval",
    "AxesLayoutSetter": "axes_layout_setter",
    "BEVBBoxesTransformer3D": "bev_bboxes_transformer_3d",
    "BoundingBoxToHeatmapConverter": "bounding_box_to_heatmap_converter",
    "ConditionalElementRemover": "conditional_element_removal",
    "CoordinateCropper": "coordinate_cropper",
    "DataGroupArrayInPathElementsAppliedStep": "data_group_array_in_path_elements_applied_step",
    "DataGroupArrayWithNameElementsAppliedStep": "data_group_array_with_name_elements_applied_step",
    "DataGroupInPathAppliedStep": "data_group_in_path_applied_step",
    "DataGroupsWithNameAppliedStep": "data_groups_with_name_applied_step",
    "FrameSequenceDecoder": "frame_sequence_decoder",
    "GroupToApplyToSelectedStepBase": "group_to_apply_to_selected_step_base",
    "HorizontalFlipper": "horizontal_flipper",
    "ImageBrightnessContrastJitter": "image_brightness_contrast_jitter",
    "ImageDecoder": "image_decoder",
    "ImageMeanStdDevNormalizer": "image_mean_std_dev_normalizer",
    "ImageRange01Normalizer": "image_range_01_normalizer",
    "ImageResizeCropFlipper": "image_resize_crop_flipper",
    "ImageResizer": "image_resizer",
    "ImageToTileSizePadder": "image_to_tile_size_padder",
    "PaddingToUniform": "padding_to_uniform",
    "PhotoMetricDistorter": "photo_metric_distorter",
    "PipelineStepBase": "pipeline_step_base",
    "PointsInRangeCheck": "points_in_range_check",
    "TensorSizeAdder": "tensor_size_adder",
    "UnneededFieldRemover": "unneeded_fields_remover",
    "VisibleBboxSelector": "visible_bbox_selector",
}

__all__ = [
    "AffineTransformer",
    "AnnotationElementConditionEval",
    "AxesLayoutSetter",
    "BEVBBoxesTransformer3D",
    "BoundingBoxToHeatmapConverter",
    "ConditionalElementRemover",
    "CoordinateCropper",
    "DataGroupArrayInPathElementsAppliedStep",
    "DataGroupArrayWithNameElementsAppliedStep",
    "DataGroupInPathAppliedStep",
    "DataGroupsWithNameAppliedStep",
    "FrameSequenceDecoder",
    "GroupToApplyToSelectedStepBase",
    "HorizontalFlipper",
    "ImageBrightnessContrastJitter",
    "ImageDecoder",
    "ImageMeanStdDevNormalizer",
    "ImageRange01Normalizer",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "ImageToTileSizePadder",
    "PaddingToUniform",
    "PhotoMetricDistorter",
    "PipelineStepBase",
    "PointsInRangeCheck",
    "TensorSizeAdder",
    "UnneededFieldRemover",
    "VisibleBboxSelector",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
