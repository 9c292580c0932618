# SPDX-License-Identifier: Apache-2.0
"""Pipelines: their definition, and iterators and loaders over them."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
