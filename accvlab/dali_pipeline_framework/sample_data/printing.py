# SPDX-License-Identifier: Apache-2.0
"""Samples and batches as text."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

from .conversion import FieldValue
from .formats import LeafFormat
from .names import FieldPath, Name, index_ranges

if TYPE_CHECKING:
    from .sample_data_group import SampleDataGroup

_MOST_LINES = 40
_WIDEST_PATH = 44
_WIDEST_NAMES = 24
_LONGEST_VALUES = 60

_LONGEST_LINE = 240
_LONGEST_TEXT_IN_A_REPR = 40


def tree_text(group: SampleDataGroup, with_details: bool) -> str:
    """Return the whole tree, one line per field; with details: whether it is set, has a mapping, and its value."""
    lines: list[str] = []
    _add_tree(lines, group, with_details, "")
    return "\n".join(lines) + "\n"


def _add_tree(lines: list[str], group: SampleDataGroup, with_details: bool, indent: str) -> None:
    lines.append(indent + "{")
    inner = indent + "  "
    for name, child, value in _children(group):
        if isinstance(child, LeafFormat):
            details = [f"({child.content.describe()})"] if child.content.is_known else []
            if with_details:
                has_mapping = child.mapping is not None
                details.insert(0, f"(is set: {value is not None}; mapping available: {has_mapping})")
                if value is not None:
                    shown = group[name] if child.is_string else value
                    details.append(str(_leaf_of_field(group, shown, (name,))).removeprefix(child.dtype.name))
            lines.append(f"{inner}{name}: {child.dtype}   {' '.join(details)}")
        else:
            lines.append(f"{inner}{name}:")
            _add_tree(lines, value, with_details, inner)
    lines.append(indent + "}")


def short_text(group: SampleDataGroup) -> str:
    """Write names, types and values: in one line, or where that is long, in at most 40."""
    if group.format.num_leaves * len("a: INT8, ") <= _LONGEST_LINE:
        line = _one_line(group)
        if len(line) <= _LONGEST_LINE:
            return line
    rows = _rows(group, lambda value, path: _leaf_of_field(group, value, path), ())
    return "\n".join(
        [f"SampleDataGroup with {group.format.num_leaves} data fields", *_lines(rows, _MOST_LINES - 1)]
    )


def _leaf_of_field(group: SampleDataGroup, value: FieldValue, path: FieldPath) -> Leaf:
    child = group.format.get(path)
    dtype = child.dtype.name if isinstance(child, LeafFormat) else "empty"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return Leaf(dtype, shapes=(shape,), ranges=() if 0 in shape else _ranges(value))
    return Leaf(dtype, (_value_text(value).removeprefix(" = ").strip(),) if value is not None else ())


def _one_line(group: SampleDataGroup) -> str:
    parts: list[str] = []
    for name, child, value in _children(group):
        label = f"[{name}]" if isinstance(name, int) else name
        if isinstance(child, LeafFormat):
            value = group[name] if child.is_string else value
            parts.append(f"{label}: {child.dtype.name}{_value_text(value)}")
        else:
            parts.append(f"{label}: {_one_line(value)[len('SampleDataGroup') :]}")
    return f"SampleDataGroup({', '.join(parts)})"


def _value_text(value: FieldValue) -> str:
    if value is None:
        return ""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f" = {value}" if isinstance(value, np.ndarray | np.generic) and not shape else f" {tuple(shape)}"
    text = getattr(value, "name", None) if type(value).__name__.startswith("DataNode") else repr(value)
    if not isinstance(text, str):
        return f" <{type(value).__name__}>"
    if len(text) > _LONGEST_TEXT_IN_A_REPR:
        text = text[: _LONGEST_TEXT_IN_A_REPR - 1] + "…"
    return f" = {text}"


def _children(group: SampleDataGroup) -> Iterable[tuple[Name, object, FieldValue]]:
    return zip(group.format.names, group.format.children, group._values, strict=True)


# --- one line per field ---------------------------------------------------------------------------------

Row: TypeAlias = tuple[tuple[str, ...], "Leaf"]
"""Parts of the path of a field, or of several, and the field."""


@attrs.frozen
class Leaf:
    """A field, or several of one form.

    Attributes:
        form: Type, and device where it is not the CPU.
        values: What it is, of texts and single values; of several fields, each once.
        counts: Lengths of the lists around the arrays.
        shapes: Shapes of the arrays, each once; none for what has no shape.
        ranges: Smallest and largest number, where they are known.
    """

    form: str
    values: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """The key of a field; fields with equal keys are described together."""
        return self.form, self.counts, *map(len, self.shapes[:1])

    @staticmethod
    def joined(leaves: Sequence[Leaf]) -> Leaf:
        """Describe fields with the same key together."""
        values, shapes, ranges = (
            tuple(dict.fromkeys(each for leaf in leaves for each in getattr(leaf, name)))
            for name in ("values", "shapes", "ranges")
        )
        return Leaf(leaves[0].form, values, leaves[0].counts, shapes, ranges)

    def __str__(self) -> str:
        text = self.form + "".join(f" {count} x" for count in self.counts)
        if self.values:
            text += f" {_listed(self.values, _LONGEST_VALUES)}"
        if self.shapes:
            axes = [_span(str(min(axis)), "..", str(max(axis))) for axis in zip(*self.shapes, strict=True)]
            text += f" ({', '.join(axes)}{',' * (len(axes) == 1)})"
        if self.ranges:
            lows, highs = zip(*self.ranges, strict=True)
            text += f"  {_span(_number(min(lows)), ' .. ', _number(max(highs)))}"
        return text


def _number(value: float) -> str:
    if abs(value) < 1e5:
        return f"{value:.5g}"
    # Times, in seconds or as whole microseconds, and identifiers are long.
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e16 else f"{value:.13g}"


def _span(low: str, between: str, high: str) -> str:
    return low if low == high else low + between + high


def describe_batch(batch: Any) -> str:
    """Describe a batch or a sample in at most 40 lines, one for each field.

    Type, shape, device where it is not the CPU, and the range of the numbers; NaN do not count. Elements of
    arrays, and groups such as cameras, are described together where they are alike::

        cameras[0..5].image  uint8 (4, 900, 1600, 3)  0 .. 255
        boxes.centers        float32 (4, 0..71, 3)  -48.219 .. 50.774

    Args:
        batch: A batch as a loader delivers it (nested dicts of tensors), or a `SampleDataGroup`.

    Returns:
        The text.

    Example:
        >>> import numpy as np
        >>> camera = {"image": np.zeros((2, 4, 6, 3), np.uint8), "name": ["a", "b"]}
        >>> print(describe_batch({"cameras": {0: camera, 1: camera}, "speed": np.array([3.5, 4.0])}))
        cameras[0..1].image  uint8 (2, 4, 6, 3)  0
        cameras[0..1].name   str 'a', 'b' (2,)
        speed                float64 (2,)  3.5 .. 4
    """
    return "\n".join(_lines(_rows(batch, _leaf_of, ()), _MOST_LINES))


def _lines(rows: Sequence[Row], most: int) -> Iterator[str]:
    """Write a line for each row, at most ``most`` in all."""
    listed = rows if len(rows) <= most else rows[: most - 1]
    paths = ["".join(parts).lstrip(".") for parts, _ in listed]
    width = min(max(map(len, paths), default=0), _WIDEST_PATH)
    for path, (_, leaf) in zip(paths, listed, strict=True):
        yield f"{path:{width}s}  {leaf}".rstrip()
    if len(listed) < len(rows):
        tops = dict.fromkeys(parts[0].lstrip(".") for parts, _ in rows[len(listed) :])
        yield f"… and {len(rows) - len(listed)} more, of {_listed([*tops], 60)}"


def _rows(value: Any, leaf: Callable[[Any, FieldPath], Leaf], path: FieldPath) -> list[Row]:
    """Describe the fields of a nested structure by a function of their values and paths."""
    children = _children_of(value)
    if children is None:
        return [((), leaf(value, path))]
    described = [(name, child, _rows(child, leaf, (*path, name))) for name, child in children]
    rows: list[Row] = []
    for _, run in itertools.groupby(described, _form_of_child):
        names, _, rows_of_children = zip(*run, strict=True)
        for alike in zip(*rows_of_children, strict=True):
            parts, _ = alike[0]
            rows.append(((_part(names), *parts), Leaf.joined([each for _, each in alike])))
    return rows


def _form_of_child(child: tuple[Any, Any, list[Row]]) -> object:
    """Get the key of a child; adjacent children with equal keys are described together."""
    name, value, rows = child
    if not isinstance(name, int) and _children_of(value) is None:
        return name  # data fields with names of their own are distinguished
    return type(name), [(parts, leaf.key) for parts, leaf in rows]


def _children_of(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping) or hasattr(value, "contained_top_level_field_names"):  # a SampleDataGroup
        return [*value.items()]
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if is_list and all(_children_of(each) is not None for each in value):
        return [*enumerate(value)]
    return None


def _part(names: Sequence[Any]) -> str:
    if isinstance(names[0], int):
        return f"[{index_ranges([*names])}]"
    return f".{names[0]}" if len(names) == 1 else f".{{{_listed(names, _WIDEST_NAMES)}}}"


def _listed(names: Sequence[Any], most: int) -> str:
    texts = [str(name) for name in names]
    while len(texts) > 1 and len(", ".join(texts)) > most:
        texts.pop()
    return ", ".join(texts) + f", … {len(names)}" * (len(texts) < len(names))


# --- fields -------------------------------------------------------------------------------------------


def _leaf_of(value: Any, path: FieldPath = ()) -> Leaf:
    """Describe a field: an array, a tensor, a list of them, a tensor list of DALI, text, or a number."""
    if value is None:
        return Leaf("not set")
    if isinstance(value, bool | int | float | complex | str | bytes):
        return Leaf(type(value).__name__, (reprlib.repr(value),))
    if isinstance(value, list | tuple):
        return _leaf_of_list(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if callable(shape):  # a tensor of DALI; a list of them has a list of shapes
        shapes = shape() if not shape() or not isinstance(shape()[0], int) else [shape()]
        form = getattr(dtype, "name", str(dtype)) if shapes else "list"
        return Leaf(form, counts=(len(shapes),), shapes=tuple(map(tuple, shapes)))
    if shape is None or dtype is None:
        return Leaf(type(value).__name__)
    lengths = tuple(map(int, shape))
    device = str(getattr(value, "device", "cpu"))
    form = str(dtype).removeprefix("torch.") + ("" if device == "cpu" else f" {device}")
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "SUO":
        texts = () if value.dtype.kind == "O" else _first_texts(value.ravel().tolist())
        return Leaf("str" if texts else "object", texts, shapes=(lengths,))
    return Leaf(form, shapes=(lengths,), ranges=() if 0 in lengths else _ranges(value))


def _ranges(value: Any) -> tuple[tuple[float, float], ...]:
    """Get the smallest and the largest number; nothing without numbers, or without an order."""
    try:
        if np.dtype(str(value.dtype).removeprefix("torch.")).kind not in "iufb":
            return ()
        low, high = float(value.min()), float(value.max())
    except (TypeError, ValueError, RuntimeError, AttributeError):  # types of one library only
        return ()
    if np.isnan(low):
        numbers = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
        numbers = numbers[~np.isnan(numbers)]
        return ((float(numbers.min()), float(numbers.max())),) if numbers.size else ()
    return ((low, high),)


def _first_texts(texts: Sequence[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(reprlib.repr, texts[:_LONGEST_VALUES])))


def _leaf_of_list(values: Sequence[Any]) -> Leaf:
    if values and all(isinstance(each, str | bytes) for each in values):
        return Leaf(type(values[0]).__name__, _first_texts(values), shapes=((len(values),),))
    leaves = [_leaf_of(each) for each in values]
    if len({leaf.key for leaf in leaves}) != 1 or not leaves[0].shapes:
        return Leaf("list", shapes=((len(values),),))
    joined = Leaf.joined(leaves)
    return attrs.evolve(joined, counts=(len(values), *joined.counts))
