# SPDX-License-Identifier: Apache-2.0
"""Leaf helpers for users' own processing steps.

helper_functions   labels to numbers, values to nodes of the graph
check_type         a type check at run time, for debugging
debug_helpers      operators that show what flows through the graph
mini_parser        the language of conditions on annotations
"""

from ..public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
