"""Warnings of the product among others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


def of_product(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Leave out warnings of Python: about forks in processes with threads, and about garbage of other tests.

    DALI leaves sockets open. Python warns about each when it is collected, which is at any time.
    """
    return [each for each in caught if not issubclass(each.category, ResourceWarning | DeprecationWarning)]
