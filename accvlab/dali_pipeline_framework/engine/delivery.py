# SPDX-License-Identifier: Apache-2.0
"""Where the fields of a sample stand in the outputs of a graph, and how to get them from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.tensors import TensorCPU, TensorListCPU, TensorListGPU

from .transport import Block, TransportLayout, Unpacker

Tensors: TypeAlias = "TensorListCPU | TensorListGPU"


@attrs.frozen
class FieldPlace:
    """Where a field stands.

    Attributes:
        output: Position of the output of the graph that holds it; for a packed field, position in the buffer.
        is_packed: Whether it is packed.
        dtype: NumPy type of its elements.
        is_text: Whether it is text, which is padded with zeros to the length of the longest of the batch.
        element: Which element it is, where the output holds several.
        count: How many it holds.
    """

    output: int
    is_packed: bool
    dtype: np.dtype[Any]
    is_text: bool = False
    element: int = 0
    count: int = 1


class Delivery:
    """Gets the fields out of the outputs of a graph.

    Attributes:
        places: Where each field of the output format stands, in flat order.
        layout: What the workers send; None for a graph whose outputs are the fields.
    """

    def __init__(self, places: Sequence[FieldPlace], layout: TransportLayout | None) -> None:
        """Set up."""
        self.places = tuple(places)
        self.layout = layout
        packed: dict[int, FieldPlace] = {place.output: place for place in places if place.is_packed}
        blocks = [packed[index] for index in sorted(packed)]
        self._unpacker = Unpacker([each.dtype for each in blocks], [each.count for each in blocks])
        self.has_buffer = bool(packed)

    @staticmethod
    def of_plain_outputs(dtypes: Sequence[np.dtype[Any]]) -> Delivery:
        """For a graph with an output for each field."""
        return Delivery([FieldPlace(index, False, dtype) for index, dtype in enumerate(dtypes)], None)

    @property
    def is_by_sample(self) -> bool:
        """Whether the elements of an output are ordered sample by sample."""
        return self.layout is not None and self.layout.is_by_sample

    def packed_of(self, outputs: Sequence[Any]) -> PackedBatch | None:
        """Get the packed fields of a batch."""
        if not self.has_buffer:
            return None
        rows = np.asarray(outputs[0].as_tensor())
        buffer = rows.reshape(-1)
        num_samples, blocks = self._unpacker.blocks(buffer)
        return PackedBatch(buffer, num_samples, blocks, self.layout is not None and self.layout.is_by_sample)

    def tensor_lists(self, outputs: Sequence[Any]) -> Iterator[Tensors]:
        """Make one list of tensors for each field, as an ordinary pipeline has it; nothing large is copied."""
        packed = self.packed_of(outputs)
        for place in self.places:
            if packed is not None and place.is_packed:
                yield packed.tensor_list(place)
            elif place.count == 1:
                yield outputs[place.output]
            else:
                yield self.element_of(outputs[place.output], place)

    def element_of(self, tensors: Any, place: FieldPlace, contiguous: bool = False) -> Tensors:
        """Get the tensors of one element from a list of those of all elements."""
        chosen = [tensors[index] for index in self.entries_of(place, len(tensors) // place.count)]
        element: Tensors = type(tensors)(chosen, layout=tensors.layout() or None, contiguous=contiguous)
        return element

    def entries_of(self, place: FieldPlace, num_samples: int) -> range:
        """Get the entries of an output that belong to a field."""
        if self.is_by_sample:
            return range(place.element, num_samples * place.count, place.count)
        return range(place.element * num_samples, (place.element + 1) * num_samples)


@attrs.frozen
class PackedBatch:
    """The packed fields of a batch, as views of the buffer.

    Attributes:
        buffer: The buffer, ``(bytes,)``.
        num_samples: Number of samples.
        blocks: Where the fields stand.
        is_by_sample: Whether the elements of a field are ordered sample by sample.
    """

    buffer: npt.NDArray[np.uint8]
    num_samples: int
    blocks: Sequence[Block]
    is_by_sample: bool

    def array(self, place: FieldPlace) -> npt.NDArray[Any] | None:
        """Get a field as one array with the samples as first axis; None where their shapes differ."""
        block = self.blocks[place.output]
        if len(block.shapes) == 1:
            shape = block.shapes[0]
            if place.count == 1:
                return np.ndarray((self.num_samples, *shape), place.dtype, self.buffer, block.starts[0])
            if not self.is_by_sample:
                start = block.starts[place.element * self.num_samples]
                return np.ndarray((self.num_samples, *shape), place.dtype, self.buffer, start)
            stack = self.stack(place)
            return None if stack is None else stack[:, place.element]
        arrays = self.arrays(place)
        if place.is_text:
            longest = max(len(text) for text in arrays)
            padded = np.zeros((len(arrays), longest), np.uint8)
            for row, text in zip(padded, arrays, strict=True):
                row[: len(text)] = text
            return padded
        if len({array.shape for array in arrays}) > 1:
            return None
        if not self.is_by_sample:  # only other elements have other shapes
            start = block.starts[place.element * self.num_samples]
            return np.ndarray((self.num_samples, *arrays[0].shape), place.dtype, self.buffer, start)
        return np.stack(arrays)

    def stack(self, place: FieldPlace) -> npt.NDArray[Any] | None:
        """Get all elements of a field that is ordered by samples, ``(samples, elements, ...)``."""
        block = self.blocks[place.output]
        if len(block.shapes) > 1:
            return None
        shape = (self.num_samples, place.count, *block.shapes[0])
        return np.ndarray(shape, place.dtype, self.buffer, block.starts[0])

    def arrays(self, place: FieldPlace) -> list[npt.NDArray[Any]]:
        """Get a field as one array per sample."""
        block = self.blocks[place.output]
        entries = slice(place.element * self.num_samples, (place.element + 1) * self.num_samples)
        if self.is_by_sample:
            entries = slice(place.element, None, place.count)
        starts = block.starts[:-1][entries]
        shapes = block.shapes[entries] if len(block.shapes) > 1 else [block.shapes[0]] * len(starts)
        return [
            np.ndarray(shape, place.dtype, self.buffer, start) for shape, start in zip(shapes, starts, strict=True)
        ]

    def tensor_list(self, place: FieldPlace) -> TensorListCPU:
        """Get a field as DALI's list of tensors."""
        array = self.array(place)
        if array is not None:
            return TensorListCPU(np.ascontiguousarray(array))
        tensors: Any = [TensorCPU(each) for each in self.arrays(place)]
        return cast(TensorListCPU, cast(Any, TensorListCPU)(tensors, contiguous=False))
