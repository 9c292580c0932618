# SPDX-License-Identifier: Apache-2.0
"""Functions of the graph, which steps are made of."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
