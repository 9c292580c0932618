# SPDX-License-Identifier: Apache-2.0
"""Names of fields, and paths made of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..errors import NameTypeError

Name: TypeAlias = str | int
"""Name of one field inside its group."""

Path: TypeAlias = Name | Sequence[Name]
"""What callers may write for a path: one name, or a tuple or list of names."""

FieldPath: TypeAlias = tuple[Name, ...]
"""A path in its one normal form. The empty path is the group itself."""

_MOST_NAMES_IN_A_MESSAGE = 20


def checked_name(name: object) -> Name:
    """Return ``name`` as a plain ``str`` or ``int`` (subclasses such as ``np.str_`` are reduced).

    Raises:
        NameTypeError: If it is neither. A ``bool`` is no name, although Python counts it as an ``int``.
    """
    if isinstance(name, str):
        return str.__str__(name)
    if isinstance(name, int) and not isinstance(name, bool):
        return int(name)
    raise NameTypeError(
        f"a field name must be a str or an int, got {name!r} of type {type(name).__name__}{_name_advice(name)}"
    )


def _name_advice(name: object) -> str:
    if isinstance(name, tuple | list):
        return "; for a path use the methods that take one, e.g. get_item_in_path or set_item_in_path"
    if hasattr(name, "__index__") and not isinstance(name, bool):
        return "; convert it with int(...)"
    return ""


def normalized_path(path: object) -> FieldPath:
    """Return ``path`` (a name, or a tuple or list of names) as a tuple of names.

    Raises:
        NameTypeError: If it, or one of its parts, is of another type.
    """
    if type(path) is str or type(path) is int:
        return (path,)
    if isinstance(path, tuple | list):
        return tuple([checked_name(name) for name in path])
    if isinstance(path, str) or (isinstance(path, int) and not isinstance(path, bool)):
        return (checked_name(path),)
    raise NameTypeError(
        "a path must be a field name (str or int) or a tuple or list of field names, got "
        f"{path!r} of type {type(path).__name__}"
    )


def format_path(path: Iterable[Name]) -> str:
    """Write a path as people read it: ``cameras[0].image``."""
    text = ""
    for name in path:
        if isinstance(name, int):
            text += f"[{name}]"
        else:
            text += f".{name}" if text else name
    return text


def flat_name(path: Iterable[Name]) -> str:
    """Write a path as the name of a pipeline output: ``cameras.[0].image``."""
    return ".".join([f"[{name}]" if isinstance(name, int) else name for name in path])


def available_names_hint(name: Name, available: Sequence[Name]) -> str:
    """Say which of the ``available`` names may have been meant; starts with a blank."""
    if not available:
        return " The group is empty."
    by_text = {str(known): known for known in available}
    # An exact match here means the right text in the wrong type: '0' instead of 0.
    close = difflib.get_close_matches(str(name), by_text, n=1)
    shown = ", ".join(repr(known) for known in available[:_MOST_NAMES_IN_A_MESSAGE])
    if len(available) > _MOST_NAMES_IN_A_MESSAGE:
        shown += f", … ({len(available)} in total)"
    meant = f" Did you mean {by_text[close[0]]!r}?" if close else ""
    return f"{meant} Available: {shown}."
