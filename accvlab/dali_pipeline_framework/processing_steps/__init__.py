# SPDX-License-Identifier: Apache-2.0
"""What is done to a sample: one public step per module."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
