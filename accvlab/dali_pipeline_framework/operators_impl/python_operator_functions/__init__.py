# SPDX-License-Identifier: Apache-2.0
"""Functions on arrays, to be wrapped in ``fn.python_function``."""

from ...public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
