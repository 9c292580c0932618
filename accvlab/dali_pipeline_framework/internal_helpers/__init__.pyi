from ..operators.published.debug_operators import print_tensor_op as print_tensor_op
from ..operators.published.debug_operators import print_tensor_size_op as print_tensor_size_op
from ..operators.published.type_check import check_type as check_type
from ..operators.published.value_mapping import get_as_data_node as get_as_data_node
from ..operators.published.value_mapping import get_mapped as get_mapped
from . import mini_parser as mini_parser
