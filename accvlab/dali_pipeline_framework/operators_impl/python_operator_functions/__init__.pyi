from ...operators.published.helpers import (
    add_post_transform_to_projection_matrix as add_post_transform_to_projection_matrix,
)
from ...operators.published.helpers import (
    apply_clipping_and_get_with_clipping_info as apply_clipping_and_get_with_clipping_info,
)
from ...operators.published.helpers import apply_transform_to_points as apply_transform_to_points
from ...operators.published.helpers import get_is_active as get_is_active
from ...operators.published.helpers import pad_to_common_size as pad_to_common_size
