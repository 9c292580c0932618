# SPDX-License-Identifier: Apache-2.0
"""The fields of a batch in the outputs of a graph; see `workers.packing` for how they travel there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.tensors import TensorCPU, TensorListCPU, TensorListGPU

from ..workers.packing import COPIED_WHOLE, MOST_MEMORIES, Block, ReusedMemory, TransportLayout, Unpacker
from ..workers.samples import Array, DType

Tensors: TypeAlias = "TensorListCPU | TensorListGPU"


@attrs.frozen
class FieldPlace:
    """The place of a field.

    Attributes:
        output: Position of the output of the graph that holds it; for a packed field, position in the buffer.
        is_packed: Whether it is packed.
        dtype: NumPy type of its elements.
        is_text: Whether it is text, which is padded with zeros to the length of the longest of the batch.
        element: Which element it is, where the output holds several.
        count: How many it holds.
        layout: Layout of a packed field, as DALI would have it; empty for none.
    """

    output: int
    is_packed: bool
    dtype: DType
    is_text: bool = False
    element: int = 0
    count: int = 1
    layout: str = ""


class Delivery:
    """Gets the fields out of the outputs of a graph.

    Attributes:
        places: The place of each field of the output format, in flat order.
        layout: What the workers send; None for a graph whose outputs are the fields.
        has_buffer: Whether fields are packed.
    """

    def __init__(self, places: Sequence[FieldPlace], layout: TransportLayout | None) -> None:
        """Set up."""
        self.places = tuple(places)
        self.layout = layout
        packed: dict[int, FieldPlace] = {place.output: place for place in places if place.is_packed}
        blocks = [packed[index] for index in sorted(packed)]
        self._unpacker = Unpacker([each.dtype for each in blocks], [each.count for each in blocks])
        self.has_buffer = bool(packed)
        self._memory = ReusedMemory(MOST_MEMORIES, 1.3)

    @staticmethod
    def of_plain_outputs(dtypes: Sequence[DType]) -> Delivery:
        """For a graph with an output for each field."""
        return Delivery([FieldPlace(index, False, dtype) for index, dtype in enumerate(dtypes)], None)

    @property
    def is_by_sample(self) -> bool:
        """Whether the elements of an output are ordered sample by sample; the layout may still change."""
        return self.layout is not None and self.layout.is_by_sample

    def packed_of(self, outputs: Sequence[Any], is_reused: bool = False) -> PackedBatch | None:
        """Get the packed fields of a batch.

        Args:
            outputs: The first one is their buffer: an array, or DALI's tensors.
            is_reused: Whether the memory of the buffer is used again for another batch.
        """
        if self.layout is None or not self.has_buffer:
            return None
        first = outputs[0]
        rows = first if isinstance(first, np.ndarray) else np.asarray(first.as_tensor())
        buffer = rows.reshape(-1)
        num_samples, blocks, parts = self._unpacker.blocks(buffer)
        if len(buffer) > COPIED_WHOLE:
            small = np.concatenate([buffer[part] for part in parts]) if parts else buffer[:0]
        else:
            small = buffer.copy() if is_reused else buffer
        return PackedBatch(buffer, num_samples, blocks, self.layout.is_by_sample, small, self._memory)

    def tensor_lists(self, outputs: Sequence[Any]) -> Iterator[Tensors]:
        """Make one list of tensors for each field, as an ordinary pipeline has it; nothing large is copied."""
        packed = self.packed_of(outputs)
        for place in self.places:
            if packed is not None and place.is_packed:
                yield packed.tensor_list(place)
            elif place.count == 1:
                yield outputs[place.output]
            else:
                yield self._element_of(outputs[place.output], place)

    def _element_of(self, tensors: Any, place: FieldPlace) -> Tensors:
        """Get the tensors of one element from the tensors of all elements."""
        chosen = [tensors[index] for index in self.entries_of(place, len(tensors) // place.count)]
        element: Tensors = type(tensors)(chosen, layout=tensors.layout() or None, contiguous=False)
        return element

    def entries_of(self, place: FieldPlace, num_samples: int) -> range:
        """Get the entries of an output that belong to a field."""
        return _entries_of(place, num_samples, self.is_by_sample)


def _entries_of(place: FieldPlace, num_samples: int, is_by_sample: bool) -> range:
    if is_by_sample:
        return range(place.element, num_samples * place.count, place.count)
    return range(place.element * num_samples, (place.element + 1) * num_samples)


@attrs.frozen
class PackedBatch:
    """The packed fields of a batch. Its small arrays share a memory, large ones have each their own.

    Attributes:
        buffer: The buffer, ``(bytes,)``.
        num_samples: Number of samples.
        blocks: Places of the fields.
        is_by_sample: Whether the elements of a field are ordered sample by sample.
        small: The small fields, or the whole of a small buffer.
        memory: Memory for copies of large fields.
    """

    buffer: npt.NDArray[np.uint8]
    num_samples: int
    blocks: Sequence[Block]
    is_by_sample: bool
    small: npt.NDArray[np.uint8]
    memory: ReusedMemory

    def _view(self, block: Block, shape: tuple[int, ...], dtype: DType, number: int = 0) -> Array:
        """Get the array of a block that begins with the array of a number."""
        if block.before_small is None:
            return np.ndarray(shape, dtype, self.buffer, block.starts[number])
        return np.ndarray(shape, dtype, self.small, block.starts[number] - block.before_small)

    def _owned(self, block: Block, array: Array) -> Array:
        return array if block.before_small is not None else self.memory.copied(array)

    def array(self, place: FieldPlace) -> Array | None:
        """Get a field as one array with the samples as first axis; None where their shapes differ."""
        block = self.blocks[place.output]
        if len(block.shapes) == 1:
            shape = (self.num_samples * place.count, *block.shapes[0])
            start, before = block.starts[0], block.before_small
            if before is None:
                whole = np.ndarray(shape, place.dtype, self.buffer, start)
            else:
                whole = np.ndarray(shape, place.dtype, self.small, start - before)
            if place.count > 1:
                entries = _entries_of(place, self.num_samples, self.is_by_sample)
                whole = whole[entries.start : entries.stop : entries.step]
            return whole if before is not None else self.memory.copied(whole)
        arrays = self._views(place)
        if place.is_text:
            longest = max(len(text) for text in arrays)
            padded = np.zeros((len(arrays), longest), np.uint8)
            for row, text in zip(padded, arrays, strict=True):
                row[: len(text)] = text
            return padded
        if len({array.shape for array in arrays}) > 1:
            return None
        if not self.is_by_sample:  # only other elements have other shapes
            shape = (self.num_samples, *arrays[0].shape)
            first = place.element * self.num_samples
            return self._owned(block, self._view(block, shape, place.dtype, first))
        return np.stack(arrays)

    def stack(self, place: FieldPlace) -> Array | None:
        """Get all elements of a field that is ordered by samples, ``(samples, elements, ...)``."""
        block = self.blocks[place.output]
        if len(block.shapes) > 1:
            return None
        return self._owned(
            block, self._view(block, (self.num_samples, place.count, *block.shapes[0]), place.dtype)
        )

    def arrays(self, place: FieldPlace) -> list[Array]:
        """Get a field as one array per sample."""
        block = self.blocks[place.output]
        return [self._owned(block, view) for view in self._views(place)]

    def _views(self, place: FieldPlace) -> list[Array]:
        block = self.blocks[place.output]
        entries = _entries_of(place, self.num_samples, self.is_by_sample)
        shapes = block.shapes if len(block.shapes) > 1 else [*block.shapes] * (self.num_samples * place.count)
        return [self._view(block, shapes[entry], place.dtype, entry) for entry in entries]

    def tensor_list(self, place: FieldPlace) -> TensorListCPU:
        """Get a field as DALI's list of tensors."""
        array = self.array(place)
        if array is not None:
            return TensorListCPU(np.ascontiguousarray(array), layout=place.layout)
        tensors: Any = [TensorCPU(each, layout=place.layout) for each in self.arrays(place)]
        return cast(
            TensorListCPU, cast(Any, TensorListCPU)(tensors, layout=place.layout or None, contiguous=False)
        )
