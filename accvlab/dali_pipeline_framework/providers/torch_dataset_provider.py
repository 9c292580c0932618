# SPDX-License-Identifier: Apache-2.0
"""A map-style data set of PyTorch as a data provider."""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import field_names, instance, listed, setting_error, shown
from ..draws.keyed_draws import kept_global_generators, seed_by_sample
from ..errors import DuplicateFieldError, FieldValueError, SettingError, text_of
from ..sample_data import FieldPath, FieldValue, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.dtypes import get_dali_type_for_numpy_type
from ..sample_data.names import Name, format_path, format_paths
from ..unknown_arguments import explains_unknown_arguments
from .data_provider import BlueprintProvider

_DT = types.DALIDataType

Part: TypeAlias = Any
"""An item of a data set, or a part of one: a nested structure, an array, a number or a text."""


class TorchDatasetProvider(BlueprintProvider):
    """The items of a map-style data set of PyTorch: any object with ``__getitem__`` and ``__len__``.

    Items are nested dicts, dataclasses and named tuples; or tuples, lists or single values, with ``names``. Their
    parts are converted:

    ========================================================  ==================================================
    in an item                                                in a sample
    ========================================================  ==================================================
    dict; named tuple; object of a dataclass, or of attrs     group
    list or tuple of dicts                                    array of groups, all of the format of the first one
    list or tuple of arrays, of tensors, or of texts          array of fields
    array, tensor, PIL image, (nested) list of numbers        field of its type
    ``bool``, ``int``, ``float``                              BOOL, INT64, FLOAT64, as PyTorch's collation has it
    ``str``                                                   STRING
    ``bytes``                                                 UINT8, e.g. the bytes of an image file
    ========================================================  ==================================================

    Other objects are refused, and so is None: leave such a part out of a blueprint, or deliver an empty array.

    The first item shows the format, unless a blueprint is given. Then values are converted to the types of the
    blueprint, and parts without a field are left out. All items must have the fields of the format; without a
    blueprint, other fields are an error, which names the item and the part. Lists must have the same length in all
    items: pad shorter ones, or put the elements into one array. Batches are fetched by ``__getitems__``, where the
    data set has that. An attribute ``sequence_lengths`` of the data set is passed on.

    Decoding and augmentation in the data set run as before, in the worker processes. Random numbers that it draws
    from the global generators of Python (``random``), NumPy (``np.random``) and PyTorch (on the CPU) depend on
    seed, epoch and sample only, since a loader seeds these generators before each item. Only if the data set has
    ``__getitems__``, the loader seeds them once per batch, and the numbers depend on the batch as well. Without
    a loader the generators are not seeded.

    Example:
        >>> items = [{"image": np.zeros((4, 6, 3), np.uint8), "boxes": np.ones((2, 4), np.float32), "name": "a"}]
        >>> provider = TorchDatasetProvider(items)
        >>> print(repr(provider.get_data(0)))
        SampleDataGroup of 3 fields
        image  UINT8 (4, 6, 3)  0
        boxes  FLOAT (2, 4)  1
        name   STRING 'a'
    """

    @explains_unknown_arguments
    def __init__(
        self, dataset: Any, *, names: Sequence[Name] | None = None, blueprint: SampleDataGroup | None = None
    ) -> None:
        """Wrap a data set.

        Args:
            dataset: The data set. Spawned workers get a pickled copy.
            names: Names of the fields, for items that are tuples, lists, or single values.
            blueprint: Format of the samples; None: the format of item 0, which is loaded here.

        Raises:
            SettingError: It is not a map-style data set, or is empty, or an argument is not valid.
            FieldValueError: The first item cannot be a sample; the message names the part of it.
        """
        if isinstance(dataset, type) or not all(hasattr(dataset, name) for name in ("__getitem__", "__len__")):
            rule = "a map-style data set, with `__getitem__` and `__len__`"
            raise setting_error("dataset", rule, dataset, "For an iterable one derive from IterableBase.")
        if blueprint is not None:
            instance(blueprint, "blueprint", SampleDataGroup)
        if len(dataset) < 1:
            raise SettingError(f"The data set is empty: the length of {type(dataset).__name__} is {len(dataset)}.")
        self._dataset = dataset
        self._names = None if names is None else field_names(names, "names")
        if self._names and len({*self._names}) < len(self._names):
            raise DuplicateFieldError(f"`names` must be different, got {shown(self._names)}.")
        self._is_found = blueprint is None
        if blueprint is None:
            with kept_global_generators():
                blueprint = _blueprint_of(self._named(dataset[0]), ())
        self._blueprint = blueprint.get_empty_like_self()

    @property
    def sequence_lengths(self) -> npt.ArrayLike:
        """Number of items of each sequence, ``(S,)``: the attribute of the data set, or an AttributeError."""
        lengths: npt.ArrayLike = self._dataset.sequence_lengths
        return lengths

    def get_number_of_samples(self) -> int:
        """Get the length of the data set."""
        return len(self._dataset)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Get an item as a sample.

        Raises:
            FieldValueError: The item is not of the format; the message names it, and the part of it.
        """
        return self._sample(_drawing(operator.itemgetter(sample_index), self._dataset, sample_index), sample_index)

    def describe_sample(self, sample_index: int) -> str:
        """Name the item."""
        return f"item {sample_index} of {type(self._dataset).__name__}"

    @property
    def loads_batches(self) -> bool:
        """Whether the data set has ``__getitems__``; for a ``Subset`` of PyTorch, whether its data set has."""
        dataset, torch = self._dataset, sys.modules.get("torch")
        if torch is not None:
            subset = torch.utils.data.Subset
            while isinstance(dataset, subset) and type(dataset).__getitems__ is subset.__getitems__:
                dataset = dataset.dataset
        return callable(getattr(dataset, "__getitems__", None))

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Get several items, by one call of ``__getitems__``."""
        if not self.loads_batches:
            return super().load_batch(sample_indices, slots)
        items = _drawing(lambda dataset: dataset.__getitems__([*sample_indices]), self._dataset, *sample_indices)
        return map(self._sample, items, sample_indices)

    def _named(self, item: Part) -> Part:
        """Get an item as a dict."""
        if isinstance(item, Mapping) or _fields_of(item) is not None:
            return item
        elements = item if isinstance(item, tuple | list) else (item,)
        if self._names is None or len(self._names) != len(elements):
            given = "none" if self._names is None else str(len(self._names))
            why = f"items of the data set are no dicts, but {type(item).__name__}."
            names = (f"'{name}'" for name in ("image", "label", "boxes")[: len(elements)])
            advice = f"Pass e.g. names=[{', '.join(names)}{', ...' if len(elements) > 3 else ''}]."
            problem = f"`names` must name the {len(elements)} element(s) of an item, got {given}: {why}"
            raise SettingError(f"{problem} {advice}")
        return dict(zip(self._names, elements, strict=True))

    def _sample(self, item: Part, sample_index: int) -> SampleDataGroup:
        sample = self._blueprint.get_empty_like_self()
        try:
            _fill(sample, sample, self._named(item), (), self._is_found)
        except (FieldValueError, SettingError) as error:
            expected = "differs in structure from item 0" if self._is_found else "does not fit the blueprint"
            raise FieldValueError(f"{self.describe_sample(sample_index)} {expected}. {error}") from error
        return sample


def _drawing(load: Callable[[Any], Part], dataset: object, *sample_indices: int) -> Part:
    """Load items of a data set, with generators that are seeded by the items."""
    knows_torch = "torch" in sys.modules
    is_seeded = seed_by_sample(*sample_indices)
    items = load(dataset)
    if is_seeded and not knows_torch and "torch" in sys.modules:  # its generator was not seeded
        seed_by_sample(*sample_indices)
        items = load(dataset)
    return items


def _children(value: Part) -> dict[Name, Part] | None:
    """Get the children of a group; None where a value is a field."""
    if isinstance(value, Mapping):
        return {**value}
    fields = _fields_of(value)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, list | tuple) and value and (_children(value[0]) is not None or _is_whole(value[0])):
        return {**dict(enumerate(value))}
    return None


def _fields_of(value: object) -> Sequence[str] | None:
    """Names of the fields of a named tuple, or of an object of a dataclass or of attrs; None for others."""
    if isinstance(value, tuple):
        return getattr(value, "_fields", None)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    cls = type(value)
    return [field.name for field in attrs.fields(cls)] if attrs.has(cls) else None


def _is_whole(value: object) -> bool:
    """Whether a list item becomes its own field, rather than a row of one array."""
    return isinstance(value, str | bytes) or (hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0)


def _blueprint_of(value: Part, path: FieldPath) -> SampleDataGroup:
    children = _children(value) or {}
    if not children:
        raise _error(path, "is empty, so it does not show a format. Give a `blueprint`.")
    if isinstance(value, list | tuple) and _fields_of(value) is None:
        return _array_of(children, path)
    group = SampleDataGroup()
    for name, child in children.items():
        if _children(child) is not None:
            group.add_data_group_field(name, _blueprint_of(child, (*path, name)))
        else:
            dtype, ndim = _type_of(child, (*path, name))
            group.add_data_field(name, dtype, ndim=ndim)
    return group


def _array_of(elements: Mapping[Name, Part], path: FieldPath) -> SampleDataGroup:
    first = elements[0]
    if _children(first) is not None:
        blueprint = _blueprint_of(first, (*path, 0))
        return SampleDataGroup.create_data_group_field_array(blueprint, len(elements))
    dtype, ndim = _type_of(first, (*path, 0))
    return SampleDataGroup.create_data_field_array(dtype, len(elements), ndim=ndim)


def _type_of(value: Part, path: FieldPath) -> tuple[types.DALIDataType, int | None]:
    if isinstance(value, str):
        return _DT.STRING, None
    if isinstance(value, bytes | bytearray):
        return _DT.UINT8, 1
    if value is None:
        advice = "Deliver an empty array in place of it, or give a `blueprint` (which may leave it out)."
        raise _error(path, f"is None, which does not show a format. {advice}")
    try:
        array = np.asarray(_as_value(value))
        return get_dali_type_for_numpy_type(array.dtype), array.ndim
    except Exception as error:
        problem = f"{type(value).__name__} {shown(value)} cannot be a field: {text_of(error)}"
        rule = "Items are made of dicts, lists, arrays, tensors, numbers and text"
        advice = "convert it in the data set, or leave it out of a `blueprint`"
        raise _error(path, f"{problem}. {rule}; {advice}.") from error


def _fill(sample: SampleDataGroup, group: SampleDataGroup, value: Part, path: FieldPath, is_found: bool) -> None:
    children = _children(value)
    if children is None:
        raise _error(path, f"must be a dict or a list of {len(group)}, got {shown(value)}.")
    is_array = group.is_array()
    if is_array and len(children) != len(group):
        advice = "Put lists of varying length into one array (texts as numbers, or as one text), or pad them."
        raise _error(path, f"must have {len(group)} elements, as the format has, got {len(children)}. {advice}")
    missing = [(*path, name) for name in group if name not in children]
    if missing:
        have = listed(map(repr, children))
        raise FieldValueError(f"The item has no {format_paths(missing)}; at that place it has {have}.")
    if is_found and len(children) != len(group):
        others = [(*path, name) for name in children if name not in group]
        advice = "Give a `blueprint` that leaves out what not all items have."
        raise FieldValueError(f"The item has {format_paths(others)} as well. {advice}")
    for name, format in zip(group, group.format.children, strict=True):
        if isinstance(format, GroupFormat):
            _fill(sample, group[name], children[name], (*path, name), is_found)
        else:
            child = _as_value(children[name])
            if is_found:
                _require_same_kind(child, format, (*path, name))
            try:
                sample.set_item_in_path((*path, name), child)
            except FieldValueError as error:
                if not is_found:
                    raise
                raise FieldValueError(
                    f"{error}. Its type is that in item 0; a `blueprint` sets others."
                ) from error


def _require_same_kind(value: Part, format: LeafFormat, path: FieldPath) -> None:
    if value is None:
        raise _error(path, "is None. Deliver an empty array in place of it.")
    ndim = getattr(value, "ndim", None)
    if ndim is not None and format.ndim is not None and ndim != format.ndim:
        advice = "An array without rows has the others too, e.g. np.zeros((0, 4))."
        raise _error(path, f"must have {format.ndim} dimension(s), got shape {tuple(value.shape)}. {advice}")


def _as_value(value: Part) -> FieldValue:
    """Get a value that can be assigned; images of PIL are arrays, tensors have no gradient."""
    if getattr(value, "requires_grad", False):
        return value.detach()
    return np.asarray(value) if hasattr(value, "__array_interface__") and not hasattr(value, "dtype") else value


def _error(path: FieldPath, problem: str) -> FieldValueError:
    return FieldValueError(f"{format_path(path) if path else 'The item'}: {problem}")
