# SPDX-License-Identifier: Apache-2.0
"""Settings for loading in a Ray cluster; the published place of `RayWorkers`."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
