# SPDX-License-Identifier: Apache-2.0
"""Where samples come from: data providers, samplers, and the inputs that feed DALI's workers."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
