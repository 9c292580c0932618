# SPDX-License-Identifier: Apache-2.0
"""Samples and batches as text."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from nvidia.dali.data_node import DataNode

from .formats import LeafFormat
from .names import FieldPath, Name, joined_paths

if TYPE_CHECKING:
    from .sample_data_group import SampleDataGroup

_MOST_LINES = 40
_WIDEST_PATH = 44
_LONGEST_VALUES = 60


def tree_text(group: SampleDataGroup, with_details: bool, indent: str = "") -> str:
    """Return the whole tree, one line per field; with details: whether it is set, and has a mapping."""
    lines = [f"{indent}{{\n"]
    inner = f"{indent}  "
    for name, child, value in zip(group.format.names, group.format.children, group._values, strict=True):
        if isinstance(child, LeafFormat):
            details = [
                f"(is set: {value is not None}; mapping available: {child.mapping is not None})"
            ] * with_details
            details += [f"({child.content.describe()})"] * child.content.is_known
            lines.append(f"{inner}{name}: {child.dtype}   {' '.join(details)}\n")
        else:
            lines += [f"{inner}{name}:\n", tree_text(value, with_details, inner)]
    return "".join([*lines, f"{indent}}}\n"])


def sample_text(sample: SampleDataGroup) -> str:
    """Write the number of fields of a sample, and a line for each."""
    title = f"SampleDataGroup of {sample.format.num_leaves} fields"
    return "\n".join([title, *_lines(sample, _MOST_LINES - 1)])


def describe_batch(batch: Any) -> str:
    """Describe a batch or a sample in at most 40 lines, one for each field.

    A line has the type, the shape, the device unless it is the CPU, and the range of the numbers without NaN.
    Elements of arrays, such as cameras, are described together if they are alike::

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
    return "\n".join(_lines(batch, _MOST_LINES))


def _lines(batch: Any, most: int) -> list[str]:
    alike: dict[object, list[tuple[FieldPath, _Leaf]]] = {}
    for path, leaf in _fields(batch):
        names = tuple(None if isinstance(name, int) else name for name in path)
        alike.setdefault((names, leaf.form, *map(len, leaf.shapes[:1])), []).append((path, leaf))
    rows = [
        (joined_paths([path for path, _ in fields]), [leaf for _, leaf in fields]) for fields in alike.values()
    ]
    listed = rows if len(rows) <= most else rows[: most - 1]
    width = min(max((len(label) for label, _ in listed), default=0), _WIDEST_PATH)
    lines = [f"{label:{width}s}  {_Leaf.joined(leaves)}".rstrip() for label, leaves in listed]
    if len(listed) < len(rows):
        others = _listed([label for label, _ in rows[len(listed) :]])
        lines.append(f"… and {len(rows) - len(listed)} more, of {others}")
    return lines


def _listed(texts: Sequence[str]) -> str:
    shown = [*texts]
    while len(shown) > 1 and len(", ".join(shown)) > _LONGEST_VALUES:
        shown.pop()
    return ", ".join(shown) + f", … {len(texts)}" * (len(shown) < len(texts))


def _fields(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, _Leaf]]:
    """Get the data fields of a sample or a batch, in order."""
    is_sample = hasattr(value, "contained_top_level_field_names")  # a SampleDataGroup
    children: Iterable[tuple[Name, Any]] = ()
    if is_sample or isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        children = enumerate(value)
    elif path:
        yield path, _leaf(value)
    for name, child in children:
        if is_sample and value.is_data_field(name):
            yield (*path, name), attrs.evolve(_leaf(child), form=value.get_type_of_field(name).name)
        else:
            yield from _fields(child, (*path, name))


# --- fields -------------------------------------------------------------------------------------------


@attrs.frozen
class _Leaf:
    """A field, or several of one form.

    Attributes:
        form: Type, device where it is not the CPU, and the length of a list of arrays.
        texts: What it is, of texts and single values; each once.
        shapes: Shapes of the arrays; none for what has no shape.
        limits: Smallest and largest numbers, where they are known.
    """

    form: str
    texts: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    limits: tuple[float, ...] = ()

    @staticmethod
    def joined(leaves: Sequence[_Leaf]) -> _Leaf:
        """Describe fields of the same form together."""
        texts, shapes, limits = (
            tuple(each for leaf in leaves for each in getattr(leaf, name))
            for name in ("texts", "shapes", "limits")
        )
        return _Leaf(leaves[0].form, tuple(dict.fromkeys(texts)), shapes, limits)

    def __str__(self) -> str:
        text = f"{self.form} {_listed(self.texts)}".rstrip()
        if self.shapes:
            axes = [_span(str(min(axis)), "..", str(max(axis))) for axis in zip(*self.shapes, strict=True)]
            text += f" ({', '.join(axes)}{',' * (len(axes) == 1)})"
        if self.limits:
            text += f"  {_span(_number(min(self.limits)), ' .. ', _number(max(self.limits)))}"
        return text


def _number(value: float) -> str:
    if abs(value) < 1e5:
        return f"{value:.5g}"
    # Times, in seconds or as whole microseconds, and identifiers are long.
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e16 else f"{value:.13g}"


def _span(low: str, between: str, high: str) -> str:
    return low if low == high else low + between + high


def _leaf(value: Any) -> _Leaf:
    """Describe a field: an array, a tensor, a list of them, a tensor list of DALI, text, or a number."""
    if value is None:
        return _Leaf("not set")
    if isinstance(value, bool | int | float | complex | str | bytes):
        return _Leaf(type(value).__name__, (reprlib.repr(value),))
    if isinstance(value, DataNode):
        return _Leaf("DataNode", (value.name,))
    if isinstance(value, list | tuple):
        return _leaf_of_list(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if callable(shape):  # a tensor of DALI; a list of them has a list of shapes
        shapes = shape() if not shape() or not isinstance(shape()[0], int) else [shape()]
        form = f"{getattr(dtype, 'name', dtype)} {len(shapes)} x" if shapes else "list"
        return _Leaf(form, shapes=tuple(map(tuple, shapes)))
    if shape is None or dtype is None:
        return _Leaf(type(value).__name__)
    lengths = tuple(map(int, shape))
    device = str(getattr(value, "device", "cpu"))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "SUO":
        texts = () if value.dtype.kind == "O" else _texts(value.ravel().tolist())
        return _Leaf("str" if texts else "object", texts, (lengths,))
    form = str(dtype).removeprefix("torch.") + ("" if device == "cpu" else f" {device}")
    return _Leaf(form, shapes=(lengths,), limits=() if 0 in lengths else _limits(value))


def _leaf_of_list(values: Sequence[Any]) -> _Leaf:
    if values and all(isinstance(each, str | bytes) for each in values):
        return _Leaf(type(values[0]).__name__, _texts(values), ((len(values),),))
    leaves = [_leaf(each) for each in values]
    if len({(leaf.form, *map(len, leaf.shapes)) for leaf in leaves}) != 1 or not leaves[0].shapes:
        return _Leaf("list", shapes=((len(values),),))
    joined = _Leaf.joined(leaves)
    return attrs.evolve(joined, form=f"{joined.form} {len(values)} x")


def _limits(value: Any) -> tuple[float, ...]:
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
        return (float(numbers.min()), float(numbers.max())) if numbers.size else ()
    return low, high


def _texts(texts: Sequence[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(reprlib.repr, texts[:_LONGEST_VALUES])))
