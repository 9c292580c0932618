# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ...operators.published.annotation_operators import (
    _apply_matrix_2d_input_ensured,
    apply_matrix,
    check_bbox_visibiity,
    check_minimum_bbox_size,
    check_points_in_box,
    crop_coordinates,
    ensure_range,
    get_center_from_bboxes,
    get_radii_from_bboxes,
    get_rot_mat_from_rot_vector,
    get_scaling_mat_from_vector,
    get_translation_mat_from_vector,
    pad_to_size,
    remove_inactive,
    replace_nans,
)

__all__ = [
    "_apply_matrix_2d_input_ensured",
    "apply_matrix",
    "check_bbox_visibiity",
    "check_minimum_bbox_size",
    "check_points_in_box",
    "crop_coordinates",
    "ensure_range",
    "get_center_from_bboxes",
    "get_radii_from_bboxes",
    "get_rot_mat_from_rot_vector",
    "get_scaling_mat_from_vector",
    "get_translation_mat_from_vector",
    "pad_to_size",
    "remove_inactive",
    "replace_nans",
]
