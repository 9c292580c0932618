# SPDX-License-Identifier: Apache-2.0
"""How a pipeline is put together, and how its batches come out."""

from ..public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
