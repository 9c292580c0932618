# SPDX-License-Identifier: Apache-2.0
"""Limits on the size of files and images, and on the number of workers."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
