# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ...operators.published.helpers import (
    add_post_transform_to_projection_matrix,
    apply_clipping_and_get_with_clipping_info,
    apply_transform_to_points,
    get_is_active,
    pad_to_common_size,
)

__all__ = [
    "add_post_transform_to_projection_matrix",
    "apply_clipping_and_get_with_clipping_info",
    "apply_transform_to_points",
    "get_is_active",
    "pad_to_common_size",
]
