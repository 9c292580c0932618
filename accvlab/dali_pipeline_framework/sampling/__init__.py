# SPDX-License-Identifier: Apache-2.0
"""Order as arithmetic: which sample is at (epoch, batch, slot). Pure NumPy; DALI is not imported."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
