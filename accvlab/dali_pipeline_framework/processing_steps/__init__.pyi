from .array_step import ArrayStep as ArrayStep
from .array_step import FieldUse as FieldUse
from .boxes.bounding_box_to_heatmap_converter import BoundingBoxToHeatmapConverter as BoundingBoxToHeatmapConverter
from .boxes.boxes_and_points import BoxAreaFilter as BoxAreaFilter
from .boxes.boxes_and_points import CoordinateCropper as CoordinateCropper
from .boxes.boxes_and_points import PointCloudRangeFilter as PointCloudRangeFilter
from .boxes.boxes_and_points import PointsInRangeCheck as PointsInRangeCheck
from .boxes.boxes_and_points import PointsPadder as PointsPadder
from .boxes.boxes_and_points import VisibleBboxSelector as VisibleBboxSelector
from .boxes.element_conditions import AnnotationElementConditionEval as AnnotationElementConditionEval
from .boxes.element_conditions import ConditionalElementRemover as ConditionalElementRemover
from .geometry.affine_transformer import AffineTransformer as AffineTransformer
from .geometry.bev_bboxes_transformer_3d import BEVBBoxesTransformer3D as BEVBBoxesTransformer3D
from .geometry.image_resizers import HorizontalFlipper as HorizontalFlipper
from .geometry.image_resizers import ImageResizeCropFlipper as ImageResizeCropFlipper
from .geometry.image_resizers import ImageResizer as ImageResizer
from .geometry.image_resizers import ImageToTileSizePadder as ImageToTileSizePadder
from .image.image_colors import PhotoMetricDistorter as PhotoMetricDistorter
from .image.image_decoders import ImageDecoder as ImageDecoder
from .image.image_library_steps import AlbumentationsStep as AlbumentationsStep
from .image.image_library_steps import TorchvisionStep as TorchvisionStep
from .image.image_normalizers import ImageMeanStdDevNormalizer as ImageMeanStdDevNormalizer
from .image.image_normalizers import ImageRange01Normalizer as ImageRange01Normalizer
from .image.image_pixel_steps import GridMasker as GridMasker
from .image.video_decoders import VideoDecoder as VideoDecoder
from .image_use import ImageUse as ImageUse
from .pipeline_step_base import PipelineStepBase as PipelineStepBase
from .structure_steps import AxesLayoutSetter as AxesLayoutSetter
from .structure_steps import PaddingToUniform as PaddingToUniform
from .structure_steps import TensorSizeAdder as TensorSizeAdder
from .structure_steps import UnneededFieldRemover as UnneededFieldRemover
from .wrappers.function_steps import LambdaStep as LambdaStep
from .wrappers.function_steps import MapStep as MapStep
from .wrappers.group_steps import (
    DataGroupArrayInPathElementsAppliedStep as DataGroupArrayInPathElementsAppliedStep,
)
from .wrappers.group_steps import (
    DataGroupArrayWithNameElementsAppliedStep as DataGroupArrayWithNameElementsAppliedStep,
)
from .wrappers.group_steps import DataGroupInPathAppliedStep as DataGroupInPathAppliedStep
from .wrappers.group_steps import DataGroupsWithNameAppliedStep as DataGroupsWithNameAppliedStep
from .wrappers.group_steps import GroupToApplyToSelectedStepBase as GroupToApplyToSelectedStepBase
from .wrappers.group_steps import for_each as for_each
