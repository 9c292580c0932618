# SPDX-License-Identifier: Apache-2.0
"""Operators on nodes of the graph. They are made of DALI's operators; Numba, which gave the name, is not used.

element_operators  elements of a tensor: number, selection, range, NaN
box_operators      boxes and points
matrix_operators   matrices from vectors, and their application
numba_operators    all of them in one module, where existing code imports them from
"""

from accvlab.dali_pipeline_framework.operators_impl.numba_operators.numba_operators import (
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
