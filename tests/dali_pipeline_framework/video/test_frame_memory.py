"""Memory of frames is used again, and never while an array refers to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.video.frame_memory import FrameMemory


def address(array: npt.NDArray[np.uint8]) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_after_the_last_view() -> None:
    memory = FrameMemory()
    frames = memory.array((2, 4, 6, 3))
    assert (frames.shape, frames.dtype) == ((2, 4, 6, 3), np.uint8)
    assert frames.flags.c_contiguous
    assert frames.flags.writeable
    first = address(frames)
    view = frames[1][::-1, 2:][1, 2]
    del frames
    assert address(memory.array((2, 4, 6, 3))) != first
    del view
    assert address(memory.array((72, 2))) == first  # the number of bytes counts


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=30))
def test_arrays_in_use_never_share(steps: list[tuple[bool, int]]) -> None:
    memory, held = FrameMemory(), list[npt.NDArray[np.uint8]]()
    for number, (is_new, size) in enumerate(steps):
        if is_new or not held:
            held.append(memory.array((size, 5)))
            held[-1][:] = number
            held[-1] = held[-1][:, 1:]
        else:
            held.pop(size % len(held))
        values = [each.flat[0] for each in held]
        assert len(set(values)) == len(values)
        assert all((each == value).all() for each, value in zip(held, values, strict=True))
