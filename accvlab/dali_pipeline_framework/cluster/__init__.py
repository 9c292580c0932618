# SPDX-License-Identifier: Apache-2.0
"""Loading by the processors of other machines: actors of a Ray cluster take the place of worker processes."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
