"""How a batch is put together in a worker, and taken apart where it arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from accvlab.dali_pipeline_framework.engine.transport import Delivery, FieldPlace
from accvlab.dali_pipeline_framework.workers.packing import (
    DimensionClashError,
    ReusedMemory,
    TransportLayout,
    outputs_of_batch,
    unpacked,
)

DTYPES = [np.dtype(code) for code in ("?", "u1", "i1", "u2", "i2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")]


class Output:
    """What the code asks of a list of tensors of DALI."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def as_tensor(self) -> np.ndarray:
        return self._array


def plain(samples: Sequence[Any]) -> list[Any]:
    return outputs_of_batch(TransportLayout.of_plain(len(samples[0])), samples, ())


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.sampled_from([(), (3,), (0, 4), (2, 2)]))
def test_an_output_holds_the_samples_in_order(lengths: list[int], tail: tuple[int, ...]) -> None:
    samples = [(np.full((length, *tail), slot, np.float32),) for slot, length in enumerate(lengths)]
    [output] = plain(samples)
    assert isinstance(output, np.ndarray) == (len(set(lengths)) == 1)
    assert len(output) == len(samples)
    for got, (expected,) in zip(output, samples, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)


def test_large_fields_are_not_copied_together() -> None:
    samples = [(np.zeros(100_000, np.uint8),), (np.ones(100_000, np.uint8),)]
    [output] = plain(samples)
    assert isinstance(output, list)
    assert [array is sample[0] for array, sample in zip(output, samples, strict=True)] == [True, True]


def test_strided_arrays_are_made_contiguous() -> None:
    strided = np.arange(400_000, dtype=np.uint8)[::2]
    [output] = plain([(strided,), (strided[:7],)])
    assert all(array.flags.c_contiguous for array in output)
    np.testing.assert_array_equal(output[0], strided)


@pytest.mark.parametrize("is_packed", [False, True])
def test_samples_of_different_dimensions_clash(is_packed: bool) -> None:
    samples = [(np.zeros(2, np.int8),), (np.zeros((2, 1), np.int8),)]
    layout = TransportLayout(packed=((0,),)) if is_packed else TransportLayout.of_plain(1)
    with pytest.raises(DimensionClashError):
        outputs_of_batch(layout, samples, ())


def test_elements_of_different_dimensions_clash_only_where_the_graph_uses_them() -> None:
    samples = [(np.zeros(2, np.int8), np.zeros((2, 1), np.int8))] * 3
    outputs_of_batch(TransportLayout(packed=((0, 1),), num_slots=2), samples, ())
    with pytest.raises(DimensionClashError):
        outputs_of_batch(TransportLayout(fields=((0, 1),), num_slots=2), samples, ())


@given(st.data())
def test_what_is_packed_comes_out_as_it_was(data: st.DataObject) -> None:
    """Any types, shapes, strides; fields of one and of several elements; both orders."""
    num_samples = data.draw(st.integers(1, 4))
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dtypes = [data.draw(st.sampled_from(DTYPES)) for _ in counts]
    items: list[tuple[int, ...]] = []
    columns: list[list[np.ndarray]] = []  # per item, its samples
    for count, dtype in zip(counts, dtypes, strict=True):
        items.append(tuple(range(len(columns), len(columns) + count)))
        ndim = data.draw(st.integers(0, 3))
        usual = data.draw(st_numpy.array_shapes(min_dims=ndim, max_dims=ndim, min_side=0, max_side=3))
        for _ in range(count):
            columns.append([])
            for _ in range(num_samples):
                shape = data.draw(st.just(usual) | st_numpy.array_shapes(min_dims=ndim, max_dims=ndim, min_side=0))
                array = data.draw(st_numpy.arrays(dtype, shape))
                columns[-1].append(array.T.copy().T if data.draw(st.booleans()) else array)
    if data.draw(st.booleans()):  # in a large buffer fields are copied
        at = data.draw(st.integers(0, len(counts)))
        for of_field, value in ((counts, 1), (dtypes, np.dtype("u1")), (items, (len(columns),))):
            of_field.insert(at, value)
        columns.append([np.full(70_000, number, np.uint8) for number in range(num_samples)])
    is_by_sample = data.draw(st.booleans())
    layout = TransportLayout(tuple(items), num_slots=data.draw(st.integers(1, 5)), is_by_sample=is_by_sample)
    [rows] = outputs_of_batch(layout, [*zip(*columns, strict=True)], ())
    assert len(rows) == num_samples * layout.num_slots
    places = [
        FieldPlace(block, True, dtype, False, element, count)
        for block, (count, dtype) in enumerate(zip(counts, dtypes, strict=True))
        for element in range(count)
    ]
    packed = Delivery(places, layout).packed_of([Output(rows)])
    assert packed is not None
    for place, expected in zip(places, [columns[item] for field in items for item in field], strict=True):
        shapes = {array.shape for array in expected}
        array = packed.array(place)
        assert (array is None) == (len(shapes) > 1)
        if array is not None:
            assert array.dtype == place.dtype
            assert array.tobytes() == np.stack(expected).tobytes()
        for got, one in zip(packed.arrays(place), expected, strict=True):
            assert (got.dtype, got.shape, got.tobytes()) == (one.dtype, one.shape, one.tobytes())
            assert got.flags.aligned
    samples = unpacked(layout, [rows], [column[0].dtype for column in columns], num_samples)
    for number, sample in enumerate(samples):
        assert [array.tobytes() for array in sample] == [column[number].tobytes() for column in columns]
        assert [array.shape for array in sample] == [column[number].shape for column in columns]


@pytest.mark.parametrize("is_by_sample", [False, True])
def test_entries_beyond_the_elements_of_a_field_are_empty(is_by_sample: bool) -> None:
    samples = [tuple(np.full((2,), 10 * slot + item, np.int16) for item in range(3)) for slot in range(2)]
    draws = [np.array([[0.25], [0.5]], np.float32)]
    layout = TransportLayout((), True, (2, 3), ((0, 1, 2), (1, 2), (0,), (3, 3)), 3, is_by_sample)
    slots, of_two, of_three, three, two, one, drawn = outputs_of_batch(layout, samples, draws)
    assert slots.tolist() == [0, 0, 1, 1, 2, 2]
    if is_by_sample:
        assert of_two[:4].tolist() == [0, 1, 0, 1]
        assert of_three.tolist() == [0, 1, 2, 0, 1, 2]
        assert three[:, 0].tolist() == [0, 1, 2, 10, 11, 12]
        assert two[:4, 0].tolist() == [1, 2, 11, 12]
        assert drawn[:4, 0].tolist() == [0.25, 0.25, 0.5, 0.5]
    else:
        assert of_two[:4].tolist() == [0, 0, 1, 1]
        assert of_three.tolist() == [0, 0, 1, 1, 2, 2]
        assert three[:, 0].tolist() == [0, 10, 1, 11, 2, 12]
        assert two[:4, 0].tolist() == [1, 11, 2, 12]
        assert drawn[:4, 0].tolist() == [0.25, 0.5, 0.25, 0.5]
    assert one[:2, 0].tolist() == [0, 10]
    assert [len(output) for output in (three, two, one, drawn)] == [6] * 4
    dtypes = [np.dtype(np.int16)] * 3 + [np.dtype(np.float32)]
    got = unpacked(layout, [slots, of_two, of_three, three, two, one, drawn], dtypes, 2)
    assert [[array.tolist() for array in sample] for sample in got] == [
        [[0, 0], [1, 1], [2, 2], [0.25]],
        [[10, 10], [11, 11], [12, 12], [0.5]],
    ]


def test_memory_is_used_again_when_nothing_shows_it_any_more() -> None:
    memory = ReusedMemory()

    def address(array: np.ndarray) -> int:
        return int(array.__array_interface__["data"][0])

    first = memory.filled([bytes([1] * 100)], 100)
    second = memory.filled([bytes([2] * 90)], 90)
    row = first.reshape(10, 10)[3]
    place = address(first)
    assert address(second) != place
    del first
    third = memory.filled([np.full((5, 4), 7, np.float32)[:, ::2]], 40)  # a row of the first one is still there
    assert address(third) not in (place, address(second))
    assert row.tolist() == [1] * 10
    assert second.tolist() == [2] * 90
    assert third.view(np.float32).tolist() == [7.0] * 10
    del row
    again = memory.filled([bytes([5] * 80)], 80)
    assert address(again) == place
    larger = memory.filled([bytes(10000)], 10000)
    assert not larger.any()
    assert third.view(np.float32).tolist() == [7.0] * 10
