# SPDX-License-Identifier: Apache-2.0
"""Processing steps: what a pipeline does to the samples."""

from ..public_names import public_names, published_modules

__getattr__, __dir__ = public_names(__name__, __file__)
published_modules(
    __name__,
    group_to_apply_to_selected_step_base="GroupToApplyToSelectedStepBase",
    data_group_in_path_applied_step="DataGroupInPathAppliedStep",
    data_groups_with_name_applied_step="DataGroupsWithNameAppliedStep",
    data_group_array_in_path_elements_applied_step="DataGroupArrayInPathElementsAppliedStep",
    data_group_array_with_name_elements_applied_step="DataGroupArrayWithNameElementsAppliedStep",
    image_decoder="ImageDecoder",
    image_to_tile_size_padder="ImageToTileSizePadder",
    image_range_01_normalizer="ImageRange01Normalizer",
    image_mean_std_dev_normalizer="ImageMeanStdDevNormalizer",
    photo_metric_distorter="PhotoMetricDistorter",
    affine_transformer="AffineTransformer",
    coordinate_cropper="CoordinateCropper",
    padding_to_uniform="PaddingToUniform",
    axes_layout_setter="AxesLayoutSetter",
    bounding_box_to_heatmap_converter="BoundingBoxToHeatmapConverter",
    annotation_element_condition_eval="AnnotationElementConditionEval",
    bev_bboxes_transformer_3d="BEVBBoxesTransformer3D",
    visible_bbox_selector="VisibleBboxSelector",
    points_in_range_check="PointsInRangeCheck",
    conditional_element_removal="ConditionalElementRemover",
    unneeded_fields_remover="UnneededFieldRemover",
    tensor_size_adder="TensorSizeAdder",
)
