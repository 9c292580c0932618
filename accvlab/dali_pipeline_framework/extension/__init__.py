# SPDX-License-Identifier: Apache-2.0
"""Parts that steps, samplers and providers are made of, for packages on top of this one.

They are described where they are defined, not in the documentation, and may change in each release.
"""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
