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
    from accvlab.dali_pipeline_framework.processing_steps.box_area_filter import BoxAreaFilter
    from accvlab.dali_pipeline_framework.processing_steps.box_format_converter import BoxFormatConverter
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
    from accvlab.dali_pipeline_framework.processing_steps.draw_scope import DrawRecording
    from accvlab.dali_pipeline_framework.processing_steps.frame_sequence_decoder import FrameSequenceDecoder
    from accvlab.dali_pipeline_framework.processing_steps.grid_masker import GridMasker
    from accvlab.dali_pipeline_framework.processing_steps.group_to_apply_to_selected_step_base import (
        GroupToApplyToSelectedStepBase,
    )
    from accvlab.dali_pipeline_framework.processing_steps.horizontal_flipper import HorizontalFlipper
    from accvlab.dali_pipeline_framework.processing_steps.image_brightness_contrast_jitter import (
        ImageBrightnessContrastJitter,
    )
    from accvlab.dali_pipeline_framework.processing_steps.image_color_space_converter import (
        ImageColorSpaceConverter,
    )
    from accvlab.dali_pipeline_framework.processing_steps.image_decoder import ImageDecoder
    from accvlab.dali_pipeline_framework.processing_steps.image_gaussian_blurrer import ImageGaussianBlurrer
    from accvlab.dali_pipeline_framework.processing_steps.image_jpeg_distorter import ImageJpegDistorter
    from accvlab.dali_pipeline_framework.processing_steps.image_mean_std_dev_normalizer import (
        ImageMeanStdDevNormalizer,
    )
    from accvlab.dali_pipeline_framework.processing_steps.image_range_01_normalizer import ImageRange01Normalizer
    from accvlab.dali_pipeline_framework.processing_steps.image_resize_crop_flipper import ImageResizeCropFlipper
    from accvlab.dali_pipeline_framework.processing_steps.image_resizer import ImageResizer
    from accvlab.dali_pipeline_framework.processing_steps.image_to_tile_size_padder import ImageToTileSizePadder
    from accvlab.dali_pipeline_framework.processing_steps.lambda_step import LambdaStep
    from accvlab.dali_pipeline_framework.processing_steps.padding_to_uniform import PaddingToUniform
    from accvlab.dali_pipeline_framework.processing_steps.photo_metric_distorter import PhotoMetricDistorter
    from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import PipelineStepBase
    from accvlab.dali_pipeline_framework.processing_steps.point_cloud_range_filter import PointCloudRangeFilter
    from accvlab.dali_pipeline_framework.processing_steps.points_in_range_check import PointsInRangeCheck
    from accvlab.dali_pipeline_framework.processing_steps.points_padder import PointsPadder
    from accvlab.dali_pipeline_framework.processing_steps.random_eraser import RandomEraser
    from accvlab.dali_pipeline_framework.processing_steps.tensor_size_adder import TensorSizeAdder
    from accvlab.dali_pipeline_framework.processing_steps.time_difference_adder import TimeDifferenceAdder
    from accvlab.dali_pipeline_framework.processing_steps.unneeded_fields_remover import UnneededFieldRemover
    from accvlab.dali_pipeline_framework.processing_steps.visible_bbox_selector import VisibleBboxSelector

_MODULE_OF = {
    "AffineTransformer": "affine_transformer",
    "AnnotationElementConditionEval": "annotation_element_condition_eval",
    "AxesLayoutSetter": "axes_layout_setter",
    "BEVBBoxesTransformer3D": "bev_bboxes_transformer_3d",
    "BoundingBoxToHeatmapConverter": "bounding_box_to_heatmap_converter",
    "BoxAreaFilter": "box_area_filter",
    "BoxFormatConverter": "box_format_converter",
    "ConditionalElementRemover": "conditional_element_removal",
    "CoordinateCropper": "coordinate_cropper",
    "DataGroupArrayInPathElementsAppliedStep": "data_group_array_in_path_elements_applied_step",
    "DataGroupArrayWithNameElementsAppliedStep": "data_group_array_with_name_elements_applied_step",
    "DataGroupInPathAppliedStep": "data_group_in_path_applied_step",
    "DataGroupsWithNameAppliedStep": "data_groups_with_name_applied_step",
    "DrawRecording": "draw_scope",
    "FrameSequenceDecoder": "frame_sequence_decoder",
    "GridMasker": "grid_masker",
    "GroupToApplyToSelectedStepBase": "group_to_apply_to_selected_step_base",
    "HorizontalFlipper": "horizontal_flipper",
    "ImageBrightnessContrastJitter": "image_brightness_contrast_jitter",
    "ImageColorSpaceConverter": "image_color_space_converter",
    "ImageDecoder": "image_decoder",
    "ImageGaussianBlurrer": "image_gaussian_blurrer",
    "ImageJpegDistorter": "image_jpeg_distorter",
    "ImageMeanStdDevNormalizer": "image_mean_std_dev_normalizer",
    "ImageRange01Normalizer": "image_range_01_normalizer",
    "ImageResizeCropFlipper": "image_resize_crop_flipper",
    "ImageResizer": "image_resizer",
    "ImageToTileSizePadder": "image_to_tile_size_padder",
    "LambdaStep": "lambda_step",
    "PaddingToUniform": "padding_to_uniform",
    "PhotoMetricDistorter": "photo_metric_distorter",
    "PipelineStepBase": "pipeline_step_base",
    "PointCloudRangeFilter": "point_cloud_range_filter",
    "PointsInRangeCheck": "points_in_range_check",
    "PointsPadder": "points_padder",
    "RandomEraser": "random_eraser",
    "TensorSizeAdder": "tensor_size_adder",
    "TimeDifferenceAdder": "time_difference_adder",
    "UnneededFieldRemover": "unneeded_fields_remover",
    "VisibleBboxSelector": "visible_bbox_selector",
}

__all__ = [
    "AffineTransformer",
    "AnnotationElementConditionEval",
    "AxesLayoutSetter",
    "BEVBBoxesTransformer3D",
    "BoundingBoxToHeatmapConverter",
    "BoxAreaFilter",
    "BoxFormatConverter",
    "ConditionalElementRemover",
    "CoordinateCropper",
    "DataGroupArrayInPathElementsAppliedStep",
    "DataGroupArrayWithNameElementsAppliedStep",
    "DataGroupInPathAppliedStep",
    "DataGroupsWithNameAppliedStep",
    "DrawRecording",
    "FrameSequenceDecoder",
    "GridMasker",
    "GroupToApplyToSelectedStepBase",
    "HorizontalFlipper",
    "ImageBrightnessContrastJitter",
    "ImageColorSpaceConverter",
    "ImageDecoder",
    "ImageGaussianBlurrer",
    "ImageJpegDistorter",
    "ImageMeanStdDevNormalizer",
    "ImageRange01Normalizer",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "ImageToTileSizePadder",
    "LambdaStep",
    "PaddingToUniform",
    "PhotoMetricDistorter",
    "PipelineStepBase",
    "PointCloudRangeFilter",
    "PointsInRangeCheck",
    "PointsPadder",
    "RandomEraser",
    "TensorSizeAdder",
    "TimeDifferenceAdder",
    "UnneededFieldRemover",
    "VisibleBboxSelector",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
