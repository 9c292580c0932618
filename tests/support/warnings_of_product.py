"""Warnings of the product among others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


def of_product(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Leave out warnings of others, which other tests of the same process may cause.

    Python warns about forks in processes with threads, and about sockets that DALI leaves open, whenever they are
    collected; JAX, once it is imported, about each fork. Those of the product are for users.
    """
    return [each for each in caught if issubclass(each.category, UserWarning)]
