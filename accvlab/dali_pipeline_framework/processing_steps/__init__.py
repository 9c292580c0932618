# SPDX-License-Identifier: Apache-2.0
"""Processing steps: what a pipeline does to the samples."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
