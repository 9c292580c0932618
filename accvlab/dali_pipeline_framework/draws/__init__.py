# SPDX-License-Identifier: Apache-2.0
"""Random numbers as data: declared by steps, keyed, computed."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
