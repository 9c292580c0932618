"""Where a loader stands: arithmetic, played against the calls of a loop."""

from __future__ import annotations

from accvlab.dali_pipeline_framework.loader.progress import LoopProgress, Position


def progress(*, is_endless: bool = False, is_stream: bool = False) -> LoopProgress:
    return LoopProgress(is_endless, is_stream)


def play(loop: LoopProgress, num_batches: int, *, ends: bool) -> None:
    loop.end_setting()
    loop.begin()
    for _ in range(num_batches):
        loop.leave_pipeline()
        loop.delivered = loop.pipeline
    if ends:
        loop.end_loop()


def test_an_epoch_that_ends_and_one_that_is_left() -> None:
    loop = progress()
    play(loop, 3, ends=True)
    assert (loop.delivered, loop.next_start) == (Position(1), Position(1))
    play(loop, 2, ends=False)
    assert (loop.delivered, loop.pipeline, loop.next_start) == (Position(1, 2), Position(1, 2), Position(2))
    play(loop, 0, ends=True)
    assert loop.delivered == Position(3)


def test_a_batch_that_could_not_be_converted_is_left_behind() -> None:
    loop = progress()
    play(loop, 1, ends=False)
    loop.leave_pipeline()
    assert (loop.delivered, loop.pipeline) == (Position(0, 1), Position(0, 2))


def test_an_epoch_that_is_set() -> None:
    loop = progress()
    loop.set_epoch(5, is_running=False)
    assert (loop.delivered, loop.next_start) == (Position(5), Position(5))
    loop.end_setting()
    loop.begin()
    loop.set_epoch(2, is_running=True)
    assert loop.delivered == Position(5)
    loop.leave_pipeline()
    loop.delivered = loop.pipeline
    assert (loop.delivered, loop.next_start) == (Position(5, 1), Position(2))
    loop.end_loop()
    assert (loop.delivered, loop.next_start) == (Position(2), Position(2))
    loop.set_epoch(2, is_running=False)
    play(loop, 1, ends=True)
    assert loop.next_start == Position(3)


def test_a_position_within_the_epoch_that_is_set_stays() -> None:
    loop = progress()
    loop.continue_at(Position(4, 7))
    loop.set_epoch(4, is_running=False)
    assert (loop.delivered, loop.next_start) == (Position(4, 7), Position(4, 7))
    play(loop, 2, ends=False)
    assert (loop.delivered, loop.next_start) == (Position(4, 9), Position(5))


def test_an_endless_input_in_loops() -> None:
    loop = progress(is_endless=True)
    play(loop, 3, ends=True)
    assert (loop.pipeline, loop.next_start) == (Position(1), Position(1))  # nothing has to be told to the pipeline


def test_a_stream_goes_on_where_it_stands() -> None:
    loop = progress(is_endless=True, is_stream=True)
    play(loop, 3, ends=False)
    assert (loop.pipeline, loop.next_start) == (Position(0, 3), Position(0, 3))
    play(loop, 2, ends=True)
    assert (loop.delivered, loop.next_start) == (Position(0, 5), Position(0, 5))
