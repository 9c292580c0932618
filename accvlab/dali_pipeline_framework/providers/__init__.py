# SPDX-License-Identifier: Apache-2.0
"""Random access to data sets: the base class, wrappers, and data sets of files, frames and videos."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
