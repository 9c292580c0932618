# SPDX-License-Identifier: Apache-2.0
"""Videos as samples: how they are decoded, indexed and read at any frame, and the providers over them."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
