# SPDX-License-Identifier: Apache-2.0
"""Names of fields, and paths made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..checks import did_you_mean, listed
from ..errors import NameTypeError

Name: TypeAlias = str | int
"""Name of one field inside its group."""

Path: TypeAlias = Name | Sequence[Name]
"""What callers may write for a path: one name, or a tuple or list of names."""

FieldPath: TypeAlias = tuple[Name, ...]
"""A checked path, as a tuple of names. The empty path is the group itself."""


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
    if isinstance(path, tuple | list):
        return tuple([checked_name(name) for name in path])
    if isinstance(path, str) or (isinstance(path, int) and not isinstance(path, bool)):
        return (checked_name(path),)
    raise NameTypeError(
        "a path must be a field name (str or int) or a tuple or list of field names, got "
        f"{path!r} of type {type(path).__name__}"
    )


def format_path(path: Iterable[Name]) -> str:
    """Write a path for messages: ``cameras[0].image``."""
    return joined_paths([tuple(path)])


def format_paths(paths: Iterable[FieldPath]) -> str:
    """Write several paths in short: ``cameras[0..5].image, time``."""
    texts: list[str] = []
    for group in alike_paths(paths):
        combinations = math.prod(len({*names}) for names in zip(*group, strict=True))
        texts += [joined_paths(group)] if combinations == len(group) else map(format_path, group)
    return ", ".join(texts)


def alike_paths(paths: Iterable[FieldPath]) -> list[list[FieldPath]]:
    """Group paths that are equal except for array indices. Each path is there once, in the given order."""
    groups: dict[tuple[object, ...], dict[FieldPath, None]] = {}
    for path in paths:
        groups.setdefault(tuple([int if isinstance(name, int) else name for name in path]), {})[path] = None
    return [[*group] for group in groups.values()]


def described_together(texts: Iterable[tuple[FieldPath | None, str]]) -> list[str]:
    """Describe fields, those with the same text together: ``cameras[0..5].image: is not set``.

    The path is None where a text is about no single field.
    """
    paths_of: dict[str, list[FieldPath]] = {}
    for path, text in texts:
        paths_of.setdefault(text, []).extend([] if path is None else [path])
    lines: list[str] = []
    for text, paths in paths_of.items():
        lines += [f"{format_paths(alike)}: {text}" for alike in alike_paths(paths)] or [text]
    return lines


def joined_paths(paths: Sequence[FieldPath]) -> str:
    """Write paths that are equal except for array indices as one: ``cameras[0..5].image``."""
    text = ""
    for names in zip(*paths, strict=True):
        is_index = isinstance(names[0], int)
        text += f"[{_index_ranges({*names})}]" if is_index else f".{names[0]}" if text else names[0]
    return text


def _index_ranges(indices: Iterable[int]) -> str:
    """Write whole numbers in short: ``0, 2..5``."""
    first, *others = sorted(indices)
    runs = [[first, first]]
    for index in others:
        if index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}..{last}" for first, last in runs)


def flat_name(path: Iterable[Name]) -> str:
    """Write a path as the name of a pipeline output: ``cameras.[0].image``."""
    return ".".join([f"[{name}]" if isinstance(name, int) else name for name in path])


def available_names_hint(name: Name, available: Sequence[Name]) -> str:
    """List the ``available`` names for a message, and the closest one to ``name``; starts with a blank."""
    if not available:
        return " The group is empty."
    return f"{did_you_mean(name, available)} Available: {listed(map(repr, available))}."
