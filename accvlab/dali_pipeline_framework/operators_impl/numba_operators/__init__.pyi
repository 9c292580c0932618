from ...operators.published.annotation_operators import (
    _apply_matrix_2d_input_ensured as _apply_matrix_2d_input_ensured,
)
from ...operators.published.annotation_operators import apply_matrix as apply_matrix
from ...operators.published.annotation_operators import check_bbox_visibiity as check_bbox_visibiity
from ...operators.published.annotation_operators import check_minimum_bbox_size as check_minimum_bbox_size
from ...operators.published.annotation_operators import check_points_in_box as check_points_in_box
from ...operators.published.annotation_operators import crop_coordinates as crop_coordinates
from ...operators.published.annotation_operators import ensure_range as ensure_range
from ...operators.published.annotation_operators import get_center_from_bboxes as get_center_from_bboxes
from ...operators.published.annotation_operators import get_radii_from_bboxes as get_radii_from_bboxes
from ...operators.published.annotation_operators import get_rot_mat_from_rot_vector as get_rot_mat_from_rot_vector
from ...operators.published.annotation_operators import get_scaling_mat_from_vector as get_scaling_mat_from_vector
from ...operators.published.annotation_operators import (
    get_translation_mat_from_vector as get_translation_mat_from_vector,
)
from ...operators.published.annotation_operators import pad_to_size as pad_to_size
from ...operators.published.annotation_operators import remove_inactive as remove_inactive
from ...operators.published.annotation_operators import replace_nans as replace_nans
