# SPDX-License-Identifier: Apache-2.0
"""The loader of training loops: binding of inputs, epochs, position, state."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
