# SPDX-License-Identifier: Apache-2.0
"""Helpers for users' own processing steps.

The modules::

    helper_functions   labels to numbers, values to nodes of the graph
    check_type         a type check at run time, for debugging
    debug_helpers      operators that show what flows through the graph
    mini_parser        the language of conditions on annotations
"""

from . import mini_parser
from .check_type import check_type  # also once the module of this name is imported
from .debug_helpers import print_tensor_op, print_tensor_size_op
from .helper_functions import get_as_data_node, get_mapped

__all__ = [
    "check_type",
    "get_as_data_node",
    "get_mapped",
    "mini_parser",
    "print_tensor_op",
    "print_tensor_size_op",
]
