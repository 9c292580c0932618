# SPDX-License-Identifier: Apache-2.0
"""Say in DALI's own report which rule is broken where an operator fails.

DALI reports a failing operator with the calls in which it was defined: file, line, and name of the function; the
source line only where there is one, which is not so in an installation of compiled files. So the rule is the name
of a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import do_not_convert

from .texts import RULE_PREFIX


@do_not_convert
def failing_with(rule: str, define: Callable[..., Any], /, *arguments: Any, **settings: Any) -> DataNode:
    """Define operators, e.g. ``fn.reshape``, that fail where data break a rule, told in one line."""

    def call() -> DataNode:
        node: DataNode = define(*arguments, **settings)
        return node

    call.__code__ = call.__code__.replace(co_name=f"{RULE_PREFIX}{rule}")
    return call()
