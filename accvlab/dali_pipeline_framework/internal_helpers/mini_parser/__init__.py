# SPDX-License-Identifier: Apache-2.0
"""The parser of conditions on annotations, under its published path."""

from ...public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
