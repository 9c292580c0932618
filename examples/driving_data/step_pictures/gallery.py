"""All pictures, by the name of the page of their step."""

from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image

from step_pictures import object_pictures, pixel_pictures, plane_pictures
from step_pictures.scene import Scene

__all__ = ["PICTURES", "save"]

PICTURES: Mapping[str, Callable[[Scene], Image.Image]] = {
    "affine_transformer": plane_pictures.affine,
    "annotation_element_condition_eval": object_pictures.condition,
    "applied_steps": pixel_pictures.wrappers,
    "bev_bboxes_transformer_3d": object_pictures.bev,
    "bounding_box_to_heatmap_converter": object_pictures.heatmap,
    "box_area_filter": object_pictures.area_filter,
    "conditional_element_removal": object_pictures.element_remover,
    "coordinate_cropper": object_pictures.coordinate_cropper,
    "grid_masker": pixel_pictures.grid_mask,
    "horizontal_flipper": plane_pictures.flip,
    "image_decoder": pixel_pictures.decoder,
    "image_mean_std_dev_normalizer": pixel_pictures.mean_std_dev,
    "image_range_01_normalizer": pixel_pictures.range_01,
    "image_resize_crop_flipper": plane_pictures.resize_crop_flip,
    "image_resizer": plane_pictures.resize,
    "image_to_tile_size_padder": plane_pictures.tile_padding,
    "lambda_step": pixel_pictures.lambda_step,
    "padding_to_uniform": plane_pictures.padding_to_uniform,
    "photo_metric_distorter": pixel_pictures.photo_metric,
    "point_cloud_range_filter": object_pictures.point_cloud_filter,
    "points_in_range_check": object_pictures.points_check,
    "visible_bbox_selector": object_pictures.visible,
}


def save(picture: Image.Image, path: Path) -> None:
    """Write a WebP file, small enough for the documentation."""
    picture.save(path, format="WEBP", quality=80, method=6)
