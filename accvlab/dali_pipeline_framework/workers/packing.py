# SPDX-License-Identifier: Apache-2.0
"""How a batch travels from the workers through the graph, and what of it is packed into one buffer.

DALI has fixed costs per output of an external source, and per sample of it. So a field gets an output of its own
only where the graph uses it; all the others are *packed*: they travel in one buffer. What a pool loads goes around
the graph, and DALI's own workers send it through the graph, as its first output. The fields are copied out of it.

The batch of the pipeline has ``samples x slots`` entries, where ``slots`` is the greatest number of elements that
a field of the graph is folded of (see `FoldedFormat`), e.g. 24 for 4 samples of 6 cameras. A field that is folded
of ``n`` elements is in the first ``samples x n`` of them; the others are empty. Its values are ordered by
elements, or by samples where the loader stacks the elements::

    element by element    camera 0: sample 0, sample 1, ..   camera 1: sample 0, ..     cameras[c] is a slice
    sample by sample      sample 0: camera 0, camera 1, ..   sample 1: camera 0, ..     the stack is a reshape
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import OutputError
from .samples import MOST_BYTES, Array, DType, Flat, Items

_shape_of = operator.attrgetter("shape")
_nbytes_of = operator.attrgetter("nbytes")

# A field whose samples have the same shape travels as one array, at a fraction of the cost of one per sample.
# Beyond this size copying them together costs more than that.
_MAX_BYTES_TO_STACK = 1 << 16
# Blocks of the buffer begin at multiples of this: kernels of a GPU read 16 bytes at a time.
_ALIGNMENT = 16
# Who keeps a field must not keep its batch. In a buffer up to this size that does not matter: it is copied whole.
COPIED_WHOLE = 1 << 16
MOST_MEMORIES = 24  # for copies of large fields
# Fields up to this size are copied together out of a larger buffer, larger ones each for itself.
_SMALL = 1 << 12
# Above this size, filling memory that was used before costs less than filling new memory.
_LARGE = 1 << 20


@attrs.define
class TransportLayout:
    """Which outputs the workers make of a batch; in this order.

    Attributes:
        packed: The fields in the buffer; none: there is no buffer.
        sends_slots: Whether there is an output with the slot of each entry of the batch, int32.
        element_counts: For each of these numbers of elements, an output with the element of each entry, int32.
        fields: The fields with outputs of their own.
        num_slots: Entries of the batch per sample.
        is_by_sample: Whether folded fields are ordered sample by sample, otherwise element by element.
    """

    packed: tuple[Items, ...] = ()
    sends_slots: bool = False
    element_counts: tuple[int, ...] = ()
    fields: tuple[Items, ...] = ()
    num_slots: int = 1
    is_by_sample: bool = False

    @staticmethod
    def of_plain(num_items: int) -> TransportLayout:
        """A layout in which each item has an output of its own."""
        return TransportLayout(fields=tuple([(item,) for item in range(num_items)]))


class DimensionClashError(Exception):
    """Arrays of one field have different numbers of dimensions."""


class TooLargeError(Exception):
    """A sample has an array that is larger than what can travel.

    Attributes:
        items: What the field with the array is made of.
    """

    def __init__(self, items: Items) -> None:
        """Keep what it is about."""
        self.items = items


def outputs_of_batch(
    layout: TransportLayout,
    samples: Sequence[Flat],
    draws: Sequence[Array],
    memory: Memory | None = None,
) -> list[Array]:
    """Make the outputs of a batch.

    Args:
        layout: Which outputs to make.
        samples: The flat arrays of each sample.
        draws: For each draw one array, with the samples as first axis.
        memory: Memory for large buffers; None: new memory for each.

    Returns:
        For each output one array with the entries of the batch as first axis, or a list of arrays.

    Raises:
        DimensionClashError: Arrays of an output have different numbers of dimensions.
        TooLargeError: An array has more than 2**31 - 1 bytes.
    """
    num_samples = len(samples)
    num_entries = num_samples * layout.num_slots
    by_item: list[Any] = [*zip(*samples, strict=True), *draws]
    outputs: list[Array] = []
    if layout.packed:
        outputs.append(_packed(layout, by_item, num_samples, memory))
    if layout.sends_slots:
        outputs.append(np.repeat(np.arange(layout.num_slots, dtype=np.int32), num_samples))
    for count in layout.element_counts:
        elements = np.zeros(num_entries, np.int32)
        in_order = np.arange(num_samples * count, dtype=np.int32)
        elements[: len(in_order)] = in_order % count if layout.is_by_sample else in_order // num_samples
        outputs.append(elements)
    for items in layout.fields:
        arrays = by_item[items[0]] if len(items) == 1 else _in_order(by_item, items, layout.is_by_sample)
        outputs.append(_own_output(items, arrays, num_entries))
    return outputs


def _in_order(by_item: Sequence[Sequence[Array]], items: Items, is_by_sample: bool) -> Sequence[Array]:
    columns = [by_item[item] for item in items]
    if is_by_sample:
        return [array for of_sample in zip(*columns, strict=True) for array in of_sample]
    return [array for column in columns for array in column]


def _own_output(items: Items, arrays: Sequence[Array], num_entries: int) -> Any:
    shapes = set(map(_shape_of, arrays))
    first = arrays[0]
    if len(shapes) == 1 and first.nbytes <= _MAX_BYTES_TO_STACK:
        if len(arrays) == num_entries:
            return np.array(arrays)
        output = np.zeros((num_entries, *first.shape), first.dtype)
        output[: len(arrays)] = arrays
        return output
    if len(set(map(len, shapes))) > 1:
        raise DimensionClashError
    if max(map(_nbytes_of, arrays)) > MOST_BYTES:
        raise TooLargeError(items)
    arrays = [array if array.flags.c_contiguous else array.copy(order="C") for array in arrays]
    empty = np.zeros((0,) * first.ndim, first.dtype)
    return [*arrays, *[empty] * (num_entries - len(arrays))]


# --- the buffer --------------------------------------------------------------------------------------------
#
#     int64   length of the header in int64, itself included
#     int64   number of samples
#     int64   for each block of arrays:  1, number of dimensions, shape              all arrays have this shape
#                                        0, (number of dimensions, shape) each       they differ
#     int64   0 where the header has an odd number of them
#     bytes   the blocks, each from a multiple of 16 bytes on: the arrays, one after the other


def _packed(
    layout: TransportLayout, by_item: Sequence[Sequence[Array]], num_samples: int, memory: Memory | None
) -> npt.NDArray[np.uint8]:
    """Pack fields, ``(entries of the batch, bytes)``; the rows one after the other are the buffer."""
    header: list[int] = [0, num_samples]
    parts: list[Any] = [b""]
    end = 0
    for items in layout.packed:
        arrays = by_item[items[0]] if len(items) == 1 else _in_order(by_item, items, layout.is_by_sample)
        shapes = list(map(_shape_of, arrays))
        shape = shapes[0]
        size = len(shapes) * arrays[0].nbytes
        if shapes.count(shape) == len(shapes):
            header += (1, len(shape), *shape)
        else:
            if len(set(map(len, shapes))) > 1:
                _require_same_dimensions(shapes, num_samples, layout.is_by_sample)
            header.append(0)
            for each in shapes:
                header += (len(each), *each)
            size = sum([array.nbytes for array in arrays])
        if size > MOST_BYTES and max(map(_nbytes_of, arrays)) > MOST_BYTES:
            raise TooLargeError(items)
        parts += (arrays,) if isinstance(arrays, np.ndarray) else arrays
        gap = -size % _ALIGNMENT
        if gap:
            parts.append(bytes(gap))
        end += size + gap
    header += [0] * (len(header) % 2)
    header[0] = len(header)
    parts[0] = np.array(header, np.int64)
    size = 8 * len(header) + end
    num_rows = num_samples * layout.num_slots
    row = max(1, -(-size // num_rows))
    parts.append(bytes(row * num_rows - size))
    if memory is not None and size > _LARGE:
        return memory.filled(parts, row * num_rows).reshape(num_rows, row)
    try:
        buffer = b"".join(parts)
    except (BufferError, ValueError, TypeError):  # strided arrays, and types that have no buffer of their own
        buffer = b"".join([part if isinstance(part, bytes) else part.tobytes() for part in parts])
    return np.frombuffer(buffer, np.uint8).reshape(num_rows, row)


Parts: TypeAlias = Sequence["bytes | Array"]


class Memory(Protocol):
    """Where large buffers are put together."""

    def filled(self, parts: Parts, size: int) -> npt.NDArray[np.uint8]:
        """Put bytes and arrays one after the other into memory; they must add up to the size."""


def copied_one_after_the_other(parts: Parts, memory: npt.NDArray[np.uint8]) -> None:
    """Copy bytes and arrays into memory."""
    start = 0
    for part in parts:
        array = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        place = memory[start : start + array.nbytes]
        place.view(array.dtype).reshape(array.shape)[...] = array
        start += array.nbytes


class ReusedMemory:
    """Memory for large buffers, used again once nothing refers to a buffer any more.

    New memory for each would cost as much as filling it. DALI copies a batch into shared memory in another thread,
    while the next one is made, so several are in use at a time.
    """

    def __init__(self, most: int = sys.maxsize, most_times: float = math.inf) -> None:
        """Begin without memory.

        Args:
            most: Of more buffers in use, the memory of the first is not used again.
            most_times: A buffer gets no memory that is so many times as large.
        """
        self._memories: list[npt.NDArray[np.uint8]] = []
        self._references_to_unused = 0
        self._most, self._most_times = most, most_times

    def copied(self, array: Array) -> Array:
        """Copy an array into memory, if it is large."""
        if array.nbytes <= _LARGE // 8:
            return array.copy()
        memory = self._unused(array.nbytes)
        copy: Array = np.ndarray(array.shape, array.dtype, memory)
        copy[...] = array
        return copy

    def filled(self, parts: Parts, size: int) -> npt.NDArray[np.uint8]:
        """Put bytes and arrays one after the other into memory; they must add up to the size."""
        memory = self._unused(size)[:size]
        copied_one_after_the_other(parts, memory)
        return memory

    def _unused(self, size: int) -> npt.NDArray[np.uint8]:
        unused = None
        for index in range(len(self._memories)):
            if self._references(index) == self._references_to_unused:
                if size <= len(self._memories[index]) < size * self._most_times:
                    return self._memories[index]
                unused = index if unused is None else unused
        if unused is not None:
            self._memories[unused] = np.empty(size + size // 8, np.uint8)
            return self._memories[unused]
        if len(self._memories) >= self._most:
            self._memories.pop(0)
        self._memories.append(np.empty(size + size // 8, np.uint8))
        self._references_to_unused = self._references(-1)
        return self._memories[-1]

    def _references(self, index: int) -> int:
        """Number of references to a memory; each view of it has one."""
        return sys.getrefcount(self._memories[index])


def _require_same_dimensions(shapes: Sequence[tuple[int, ...]], num_samples: int, is_by_sample: bool) -> None:
    """Refuse a field whose samples have different numbers of dimensions; its elements may."""
    num_elements = len(shapes) // num_samples
    for element in range(num_elements):
        start = element * num_samples
        of_element = shapes[element::num_elements] if is_by_sample else shapes[start : start + num_samples]
        if len(set(map(len, of_element))) > 1:
            raise DimensionClashError


@attrs.frozen
class Block:
    """Places of the arrays of a packed field.

    Attributes:
        starts: Byte at which each array begins, and the byte behind the last one.
        shapes: Their shapes, in order; one shape for all where they have the same.
        before_small: For a field that is copied together with other small ones, how many bytes before it are not
            copied with them. None: its arrays are copied for themselves.
    """

    starts: Sequence[int]
    shapes: Sequence[tuple[int, ...]]
    before_small: int | None = 0


class Unpacker:
    """Finds the packed fields in a buffer. It remembers their last places: usually all is the same."""

    def __init__(self, dtypes: Iterable[DType], num_elements: Iterable[int]) -> None:
        """Set up for the types of the packed fields, and their numbers of elements."""
        self._fields = list(zip(dtypes, num_elements, strict=True))
        self._header = b""
        self._end = 0
        self._known: tuple[int, list[Block], list[slice]] = (0, [], [])

    def blocks(self, buffer: npt.NDArray[np.uint8]) -> tuple[int, list[Block], list[slice]]:
        """Get the number of samples, and the places of the fields in a buffer, ``(bytes,)``.

        Returns:
            The number, the places, and the parts of a large buffer in which its small fields are.

        Raises:
            OutputError: The buffer is not one that `outputs_of_batch` has made.
        """
        length = int(buffer[:8].view(np.int64)[0]) if len(buffer) >= 8 else 0
        header = buffer[: 8 * max(length, 0)].tobytes()
        if header != self._header or not header or len(buffer) < self._end:
            self._header = b""
            if length < 2 or len(header) < 8 * length:
                raise _damaged_buffer(f"it has a header of {length} numbers")
            try:
                self._known = self._parsed(np.frombuffer(header, np.int64).tolist(), len(buffer))
            except IndexError as error:
                raise _damaged_buffer("its header breaks off") from error
            self._header = header
        return self._known

    def _parsed(self, header: list[int], num_bytes: int) -> tuple[int, list[Block], list[slice]]:
        at, num_samples = 2, header[1]
        if not 0 <= num_samples <= num_bytes:
            raise _damaged_buffer(f"it has {num_samples} samples")
        if min(header) < 0:
            raise _damaged_buffer("it has a negative size")
        start = 8 * len(header)
        blocks = []
        for dtype, num_elements in self._fields:
            count = num_samples * num_elements
            is_uniform = header[at]
            at += 1
            shapes = []
            for _ in range(1 if is_uniform else count):
                ndim = header[at]
                shapes.append(tuple(header[at + 1 : at + 1 + ndim]))
                at += 1 + ndim
            sizes = [dtype.itemsize * math.prod(shape) for shape in shapes] * (count if is_uniform else 1)
            starts = [start]
            for size in sizes:
                starts.append(starts[-1] + size)
            start = starts[-1] + -(starts[-1] - start) % _ALIGNMENT
            if starts[-1] > num_bytes:
                raise _damaged_buffer(f"it ends at byte {num_bytes}, an array in it at {starts[-1]}")
            blocks.append(Block(starts, shapes))
        self._end = blocks[-1].starts[-1] if blocks else 0
        if num_bytes <= COPIED_WHOLE:
            return num_samples, blocks, []
        parts: list[slice] = []
        return num_samples, [_with_copies(block, parts) for block in blocks], parts


def _with_copies(block: Block, parts: list[slice]) -> Block:
    """Decide how a block is copied; where it is small, its part of the buffer is noted."""
    start, num_bytes = block.starts[0], block.starts[-1] - block.starts[0]
    if num_bytes > _SMALL:
        return attrs.evolve(block, before_small=None)
    end = block.starts[-1] + -num_bytes % _ALIGNMENT
    num_copied = sum(part.stop - part.start for part in parts)
    if parts and parts[-1].stop == start:
        parts[-1] = slice(parts[-1].start, end)
    else:
        parts.append(slice(start, end))
    return attrs.evolve(block, before_small=start - num_copied)


def _damaged_buffer(problem: str) -> OutputError:
    return OutputError(
        f"A batch was damaged on its way from the worker that has loaded it: {problem}. Something has written "
        f"into the shared memory of this process."
    )


def unpacked(
    layout: TransportLayout, outputs: Sequence[Any], dtypes: Sequence[DType], num_samples: int
) -> list[list[Array]]:
    """Get the arrays of each sample back, item by item, from what `outputs_of_batch` has made.

    Args:
        layout: As then.
        outputs: The outputs.
        dtypes: NumPy type of each item.
        num_samples: Number of samples.
    """
    items: list[list[Array]] = [[np.empty(0)] * len(dtypes) for _ in range(num_samples)]

    def take(members: Items, arrays: Any) -> None:
        for element, item in enumerate(members):
            for sample in range(num_samples):
                place = sample * len(members) + element if layout.is_by_sample else element * num_samples + sample
                items[sample][item] = np.asarray(arrays[place])

    rest = list(outputs)
    if layout.packed:
        buffer = np.asarray(rest.pop(0)).reshape(-1)
        unpacker = Unpacker([dtypes[members[0]] for members in layout.packed], map(len, layout.packed))
        for members, block in zip(layout.packed, unpacker.blocks(buffer)[1], strict=True):
            count = num_samples * len(members)
            shapes = block.shapes if len(block.shapes) > 1 else [*block.shapes] * count
            dtype = dtypes[members[0]]
            take(members, [np.ndarray(shapes[at], dtype, buffer, block.starts[at]) for at in range(count)])
    for members, arrays in zip(layout.fields, rest[len(rest) - len(layout.fields) :], strict=True):
        take(members, arrays)
    return items
