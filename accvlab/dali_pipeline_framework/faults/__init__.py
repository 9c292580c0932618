# SPDX-License-Identifier: Apache-2.0
"""Handling of samples that fail, of workers that die, and of a run that hangs."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
