# SPDX-License-Identifier: Apache-2.0
"""Operators on nodes of the graph, under their published path. They call NumPy, not Numba."""

from ...public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
