from .boxes.annotation_element_condition_eval import (
    AnnotationElementConditionEval as AnnotationElementConditionEval,
)
from .boxes.bounding_box_to_heatmap_converter import BoundingBoxToHeatmapConverter as BoundingBoxToHeatmapConverter
from .boxes.box_area_filter import BoxAreaFilter as BoxAreaFilter
from .boxes.box_format_converter import BoxFormatConverter as BoxFormatConverter
from .boxes.conditional_element_removal import ConditionalElementRemover as ConditionalElementRemover
from .boxes.visible_bbox_selector import VisibleBboxSelector as VisibleBboxSelector
from .geometry.affine_transformer import AffineTransformer as AffineTransformer
from .geometry.bev_bboxes_transformer_3d import BEVBBoxesTransformer3D as BEVBBoxesTransformer3D
from .geometry.coordinate_cropper import CoordinateCropper as CoordinateCropper
from .geometry.horizontal_flipper import HorizontalFlipper as HorizontalFlipper
from .geometry.image_resize_crop_flipper import ImageResizeCropFlipper as ImageResizeCropFlipper
from .geometry.image_resizer import ImageResizer as ImageResizer
from .geometry.point_cloud_range_filter import PointCloudRangeFilter as PointCloudRangeFilter
from .geometry.points_in_range_check import PointsInRangeCheck as PointsInRangeCheck
from .geometry.points_padder import PointsPadder as PointsPadder
from .image.albumentations_step import AlbumentationsStep as AlbumentationsStep
from .image.frame_sequence_decoder import FrameSequenceDecoder as FrameSequenceDecoder
from .image.grid_masker import GridMasker as GridMasker
from .image.image_brightness_contrast_jitter import ImageBrightnessContrastJitter as ImageBrightnessContrastJitter
from .image.image_color_space_converter import ImageColorSpaceConverter as ImageColorSpaceConverter
from .image.image_decoder import ImageDecoder as ImageDecoder
from .image.image_gaussian_blurrer import ImageGaussianBlurrer as ImageGaussianBlurrer
from .image.image_jpeg_distorter import ImageJpegDistorter as ImageJpegDistorter
from .image.image_mean_std_dev_normalizer import ImageMeanStdDevNormalizer as ImageMeanStdDevNormalizer
from .image.image_range_01_normalizer import ImageRange01Normalizer as ImageRange01Normalizer
from .image.image_to_tile_size_padder import ImageToTileSizePadder as ImageToTileSizePadder
from .image.photo_metric_distorter import PhotoMetricDistorter as PhotoMetricDistorter
from .image.random_eraser import RandomEraser as RandomEraser
from .image.torchvision_step import TorchvisionStep as TorchvisionStep
from .image_use import ImageUse as ImageUse
from .pipeline_step_base import PipelineStepBase as PipelineStepBase
from .structure.axes_layout_setter import AxesLayoutSetter as AxesLayoutSetter
from .structure.padding_to_uniform import PaddingToUniform as PaddingToUniform
from .structure.tensor_size_adder import TensorSizeAdder as TensorSizeAdder
from .structure.time_difference_adder import TimeDifferenceAdder as TimeDifferenceAdder
from .structure.unneeded_fields_remover import UnneededFieldRemover as UnneededFieldRemover
from .wrappers.array_step import ArrayStep as ArrayStep
from .wrappers.data_group_array_in_path_elements_applied_step import (
    DataGroupArrayInPathElementsAppliedStep as DataGroupArrayInPathElementsAppliedStep,
)
from .wrappers.data_group_array_with_name_elements_applied_step import (
    DataGroupArrayWithNameElementsAppliedStep as DataGroupArrayWithNameElementsAppliedStep,
)
from .wrappers.data_group_in_path_applied_step import DataGroupInPathAppliedStep as DataGroupInPathAppliedStep
from .wrappers.data_groups_with_name_applied_step import (
    DataGroupsWithNameAppliedStep as DataGroupsWithNameAppliedStep,
)
from .wrappers.group_to_apply_to_selected_step_base import (
    GroupToApplyToSelectedStepBase as GroupToApplyToSelectedStepBase,
)
from .wrappers.lambda_step import LambdaStep as LambdaStep
from .wrappers.map_step import MapStep as MapStep
