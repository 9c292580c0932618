# SPDX-License-Identifier: Apache-2.0
"""Samples and batches as text."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

from .conversion import FieldValue
from .formats import GroupFormat, LeafFormat
from .names import FieldPath, Name

if TYPE_CHECKING:
    from .value_queries import ValueQueries

_MOST_LINES = 40
_WIDEST_PATH = 44
_WIDEST_NAMES = 24
_LONGEST_VALUES = 60

_LONGEST_LINE = 240
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


def short_text(group: ValueQueries) -> str:
    """Return names, types, and what is set: in one line, or where that is long, in at most 40."""
    if group.format.num_leaves * len("a: INT8, ") <= _LONGEST_LINE:
        line = _one_line(group)
        if len(line) <= _LONGEST_LINE:
            return line
    rows = _rows(group, lambda value, path: _leaf_of_field(group, value, path), ())
    return "\n".join(
        [f"SampleDataGroup with {group.format.num_leaves} data fields", *_lines(rows, _MOST_LINES - 1)]
    )


def _leaf_of_field(group: ValueQueries, value: FieldValue, path: FieldPath) -> Leaf:
    child: object = group.format
    for name in path:
        child = child.children[child.names.index(name)] if isinstance(child, GroupFormat) else child
    dtype = child.dtype.name if isinstance(child, LeafFormat) else "empty"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return Leaf.of_shape(dtype, shape)
    return Leaf(dtype, (_value_text(value).removeprefix(" = ").strip(),) if value is not None else ())


def _one_line(group: ValueQueries) -> str:
    parts: list[str] = []
    for name, child, value in _children(group):
        label = f"[{name}]" if isinstance(name, int) else name
        if isinstance(child, LeafFormat):
            parts.append(f"{label}: {child.dtype.name}{_value_text(value)}")
        else:
            parts.append(f"{label}: {_one_line(value)[len('SampleDataGroup') :]}")
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
        least: Smallest length of each axis; None for what has no shape.
        most: Largest length of each axis.
        low: Smallest number; None where that is not known.
        high: Largest number.
    """

    form: str
    values: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    least: tuple[int, ...] | None = None
    most: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of_shape(form: str, shape: tuple[int, ...], low: float | None = None, high: float | None = None) -> Leaf:
        """Describe an array."""
        return Leaf(form, least=shape, most=shape, low=low, high=high)

    @property
    def key(self) -> tuple[object, ...]:
        """What fields that are described together have in common."""
        return self.form, self.counts, None if self.least is None else len(self.least)

    @staticmethod
    def joined(leaves: Sequence[Leaf]) -> Leaf:
        """Describe fields with the same key together."""
        first, *_ = leaves
        shapes = [(leaf.least, leaf.most) for leaf in leaves if leaf.least is not None and leaf.most is not None]
        ranges = [(leaf.low, leaf.high) for leaf in leaves if leaf.low is not None and leaf.high is not None]
        return attrs.evolve(
            first,
            values=tuple(dict.fromkeys(value for leaf in leaves for value in leaf.values)),
            least=tuple(map(min, zip(*(least for least, _ in shapes), strict=True))) if shapes else None,
            most=tuple(map(max, zip(*(most for _, most in shapes), strict=True))) if shapes else None,
            low=min((low for low, _ in ranges), default=None),
            high=max((high for _, high in ranges), default=None),
        )

    def __str__(self) -> str:
        text = self.form + "".join(f" {count} x" for count in self.counts)
        if self.values:
            text += f" {_listed(self.values, _LONGEST_VALUES)}"
        if self.least is not None and self.most is not None:
            pairs = zip(self.least, self.most, strict=True)
            axes = [f"{low}" if low == high else f"{low}..{high}" for low, high in pairs]
            text += f" ({', '.join(axes)}{',' * (len(axes) == 1)})"
        if self.low is not None and self.high is not None:
            text += f"  {self.low:.5g} .. {self.high:.5g}" if self.low != self.high else f"  {self.low:.5g}"
        return text


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
        cameras[0..1].name   str (2,)
        speed                float64 (2,)  3.5 .. 4
    """
    return "\n".join(_lines(_rows(batch, _leaf_of, ()), _MOST_LINES))


def _lines(rows: Sequence[Row], most: int) -> Iterator[str]:
    """Return a line for each row, and at most so many in all."""
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
    rows: list[Row] = []
    names: list[Any] = []  # of the children since the last one of another form
    alike: list[list[Row]] = []

    def flush() -> None:
        if names:
            part = _part(names)
            for of_child in zip(*alike, strict=True):
                parts, _ = of_child[0]
                rows.append(((part, *parts), Leaf.joined([leaf for _, leaf in of_child])))
        names.clear()
        alike.clear()

    for name, child in children:
        of_child = _rows(child, leaf, (*path, name))
        # Data fields with names of their own are told apart.
        is_foldable = isinstance(name, int) or _children_of(child) is not None
        if not (names and is_foldable and _forms(of_child) == _forms(alike[0]) and type(name) is type(names[0])):
            flush()
        names.append(name)
        alike.append(of_child)
        if not is_foldable:
            flush()
    flush()
    return rows


def _forms(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(parts, *leaf.key) for parts, leaf in rows]


def _children_of(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping) or hasattr(value, "contained_top_level_field_names"):  # a SampleDataGroup
        return [*value.items()]
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if is_list and all(_children_of(each) is not None for each in value):
        return [*enumerate(value)]
    return None


def _part(names: Sequence[Any]) -> str:
    if isinstance(names[0], int):
        if len(names) == 1:
            return f"[{names[0]}]"
        is_range = [*names] == [*range(names[0], names[0] + len(names))]
        return f"[{names[0]}..{names[-1]}]" if is_range else f"[{_listed(names, _WIDEST_NAMES)}]"
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
        leaves = [Leaf.of_shape(getattr(dtype, "name", str(dtype)), tuple(each)) for each in shapes]
        return attrs.evolve(Leaf.joined(leaves), counts=(len(leaves),)) if leaves else Leaf("list", counts=(0,))
    if shape is None or dtype is None:
        return Leaf(type(value).__name__)
    lengths = tuple(map(int, shape))
    device = str(getattr(value, "device", "cpu"))
    form = str(dtype).removeprefix("torch.") + ("" if device == "cpu" else f" {device}")
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "SUO":
        form = "object" if value.dtype.kind == "O" else "str"
    return Leaf.of_shape(form, lengths, *_range(value, lengths))


def _range(value: Any, lengths: tuple[int, ...]) -> tuple[float | None, float | None]:
    """Smallest and largest number; None where there is none, or no order."""
    if 0 in lengths:
        return None, None
    try:
        if np.dtype(str(value.dtype).removeprefix("torch.")).kind not in "iuf":
            return None, None
        low, high = float(value.min()), float(value.max())
    except (TypeError, ValueError, RuntimeError, AttributeError):  # types of one library only
        return None, None
    if np.isnan(low):
        numbers = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
        numbers = numbers[~np.isnan(numbers)]
        return (float(numbers.min()), float(numbers.max())) if numbers.size else (None, None)
    return low, high


def _leaf_of_list(values: Sequence[Any]) -> Leaf:
    if values and all(isinstance(each, str | bytes) for each in values):
        return Leaf.of_shape(type(values[0]).__name__, (len(values),))
    leaves = [_leaf_of(each) for each in values]
    if len({leaf.key for leaf in leaves}) != 1 or leaves[0].least is None:
        return Leaf.of_shape("list", (len(values),))
    joined = Leaf.joined(leaves)
    return attrs.evolve(joined, counts=(len(values), *joined.counts))
