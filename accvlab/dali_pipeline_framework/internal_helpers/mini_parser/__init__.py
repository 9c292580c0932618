# SPDX-License-Identifier: Apache-2.0
"""The published path of the language of conditions on annotations."""

from ...public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
