# SPDX-License-Identifier: Apache-2.0
"""Sample data groups as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .conversion import FieldValue
from .formats import LeafFormat
from .names import Name

if TYPE_CHECKING:
    from .value_queries import ValueQueries

_MOST_CHILDREN_IN_A_REPR = 12
_LONGEST_TEXT_IN_A_REPR = 40


def tree_text(group: ValueQueries, with_details: bool) -> str:
    """Return the whole tree, one line per field; with details: whether it is set, and has a mapping."""
    lines: list[str] = []
    _add_tree(lines, group, with_details, "")
    return "\n".join(lines) + "\n"


def _add_tree(lines: list[str], group: ValueQueries, with_details: bool, indent: str) -> None:
    lines.append(indent + "{")
    inner = indent + "  "
    for name, child, value in _children(group):
        if isinstance(child, LeafFormat):
            details = [f"({child.content.describe()})"] if child.content.is_known else []
            if with_details:
                has_mapping = child.mapping is not None
                details.insert(0, f"(is set: {value is not None}; mapping available: {has_mapping})")
            lines.append(f"{inner}{name}: {child.dtype}   {' '.join(details)}")
        else:
            lines.append(f"{inner}{name}:")
            _add_tree(lines, value, with_details, inner)
    lines.append(indent + "}")


def one_line(group: ValueQueries) -> str:
    """Return a short form: names, types, and what is set."""
    parts: list[str] = []
    for name, child, value in _children(group):
        if len(parts) == _MOST_CHILDREN_IN_A_REPR:
            parts.append(f"… {len(group)} fields in total")
            break
        label = f"[{name}]" if isinstance(name, int) else name
        if isinstance(child, LeafFormat):
            parts.append(f"{label}: {child.dtype.name}{_value_text(value)}")
        else:
            parts.append(f"{label}: {one_line(value)[len('SampleDataGroup') :]}")
    return f"SampleDataGroup({', '.join(parts)})"


def _value_text(value: FieldValue) -> str:
    if value is None:
        return ""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f" {tuple(shape)}"
    text = getattr(value, "name", None) if type(value).__name__.startswith("DataNode") else repr(value)
    if not isinstance(text, str):
        return f" <{type(value).__name__}>"
    if len(text) > _LONGEST_TEXT_IN_A_REPR:
        text = text[: _LONGEST_TEXT_IN_A_REPR - 1] + "…"
    return f" = {text}"


def _children(group: ValueQueries) -> Iterable[tuple[Name, object, FieldValue]]:
    return zip(group.format.names, group.format.children, group._values, strict=True)
