"""Whom the dispatch asks for what, with actors that are played here."""

from __future__ import annotations

import contextlib
import heapq
import operator
import random
from collections.abc import Callable, Container, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import examples

from accvlab.dali_pipeline_framework.cluster.dispatch import Call, Dispatch, Part, Position

NUM_BATCHES = 5  # of an epoch


def following(position: Position) -> Position | None:
    epoch, batch = position
    return (epoch, batch + 1) if batch + 1 < NUM_BATCHES else (epoch + 1, 0)


def with_actors(num_actors: int, **settings: object) -> Dispatch:
    dispatch = Dispatch(8, following, **settings)
    for number in range(num_actors):
        dispatch.join(number, 0.0)
    return dispatch


def answer(dispatch: Dispatch, call: Call, now: float) -> None:
    dispatch.answered(call, ["there"] * len(call.parts), 0.01 * len(call.parts), now)


def asked(calls: list[Call]) -> list[tuple[int, list[Position]]]:
    return [(call.member, [part.position for part in call.parts]) for call in calls]


def test_each_actor_is_asked_for_what_is_due_next_and_no_more_than_the_window() -> None:
    dispatch = with_actors(2)
    dispatch.begin((0, 3))
    assert [dispatch.owner(each) for each in [(0, 3), (0, 4), (1, 0), (1, 4)]] == [1, 0, 1, 1]
    calls = dispatch.due_calls(0.0)
    # Actor 0 has nothing left of its own, and helps.
    assert asked(calls) == [(0, [(0, 4)]), (1, [(0, 3)]), (1, [(1, 0)]), (0, [(1, 1)])]
    assert dispatch.due_calls(0.0) == []
    answer(dispatch, calls[1], 0.1)
    assert asked(dispatch.due_calls(0.1)) == [(1, [(1, 2)])]  # the first answer is no measure: it imports
    answer(dispatch, calls[2], 0.2)
    assert asked(dispatch.due_calls(0.2)) == [(1, [(1, 3), (1, 4)])]  # two of the eight each, as they are quick
    assert dispatch.due_calls(0.2) == []


BLOCKS = [(epoch, 4 * block) for epoch in range(3) for block in range(400)]


@settings(max_examples=examples(20, 200))
@given(num_actors=st.integers(1, 12), number=st.integers(12, 1000))
def test_an_actor_that_comes_or_goes_moves_its_share_of_the_blocks(num_actors: int, number: int) -> None:
    dispatch = with_actors(num_actors)
    before = {block: dispatch.owner(block) for block in BLOCKS}
    assert all(dispatch.owner((epoch, batch + 3)) == owner for (epoch, batch), owner in before.items())
    dispatch.join(number, 0.0)
    moved = {block for block in BLOCKS if dispatch.owner(block) != before[block]}
    assert {dispatch.owner(block) for block in moved} == {number}
    assert abs(len(moved) / len(BLOCKS) - 1 / (num_actors + 1)) < 0.08  # five standard deviations
    dispatch.leave(number)
    assert {block: dispatch.owner(block) for block in BLOCKS} == before


def endless(position: Position) -> Position:
    return position[0], position[1] + 1


def epochs_of_three(position: Position) -> Position:
    return (position[0], position[1] + 1) if position[1] < 2 else (position[0] + 1, 0)


def with_small_batches(
    per_actor: int,
    num_actors: int,
    num_slots: int = 0,
    *,
    follow: Callable[[Position], Position] = endless,
    is_shared: bool = False,
) -> Dispatch:
    dispatch = Dispatch(per_actor * num_actors, follow, num_slots, is_shared, num_slots or 1)
    dispatch.part_bytes = 3_000_000
    for number in range(num_actors):
        dispatch.join(number, 0.0)
    return dispatch


def play(
    dispatch: Dispatch,
    num_batches: int,
    choose: Callable[[list[Call]], Call],
    follow: Callable[[Position], Position] = endless,
    failing: Container[Position] = (),
) -> Iterator[tuple[dict[Position, list[Part]], list[Call], Call]]:
    """Answer the calls that are chosen, and deliver what is complete, unless it fails.

    Before each answer it yields what is not delivered of the window, all calls, and the one to be answered. After
    each batch it looks whether there is something to be asked if, and only if, it was said so.
    """
    position, num_delivered = (0, 0), 0
    dispatch.begin(position)
    calls = dispatch.due_calls(0.0)

    def ask(is_there_room: bool) -> None:
        due = dispatch.due_calls(0.0)
        assert is_there_room or not due
        calls.extend(due)

    while num_delivered < num_batches:
        line, each = {}, position
        with contextlib.suppress(KeyError):  # it is shorter while a part of what came together is held
            for _ in range(dispatch.window):
                line[each] = dispatch.parts(each)
                each = follow(each)
        call = choose(calls)
        yield line, calls, call
        calls.remove(call)
        answer(dispatch, call, 0.0)
        calls += dispatch.due_calls(0.0)
        while dispatch.is_complete(position):
            if position not in failing:
                ask(dispatch.delivered(position))
            position, num_delivered = follow(position), num_delivered + 1
            ask(dispatch.begin(position))


@settings(max_examples=examples(40, 400))
@given(seed=st.integers(0, 2**32), num_actors=st.integers(1, 5), per_actor=st.sampled_from([4, 32]))
def test_no_actor_waits_while_others_have_more_blocks_than_they_can_load(
    seed: int, num_actors: int, per_actor: int
) -> None:
    dispatch = with_small_batches(per_actor, num_actors)
    for line, calls, _ in play(dispatch, 20 * per_actor, random.Random(seed).choice):
        if any(part.is_due for parts in line.values() for part in parts):
            members = [call.member for call in calls]
            assert all(members.count(number) == 2 for number in range(num_actors))


@settings(max_examples=examples(40, 400))
@given(
    seed=st.integers(0, 2**32),
    num_actors=st.integers(1, 5),
    per_actor=st.sampled_from([4, 32]),
    num_slots=st.sampled_from([0, 6]),
    follow=st.sampled_from([endless, epochs_of_three]),
    failing=st.sets(st.integers(0, 100)),
)
def test_what_is_held_of_objects_counts_as_part_of_the_window(
    seed: int,
    num_actors: int,
    per_actor: int,
    num_slots: int,
    follow: Callable[[Position], Position],
    failing: set[int],
) -> None:
    dispatch = with_small_batches(per_actor, num_actors, num_slots, follow=follow)
    objects: list[set[Position]] = []  # what has come, whose memory is freed as a whole
    fail = {(0, batch) for batch in failing}
    for line, _, call in play(dispatch, 10 * per_actor, random.Random(seed).choice, follow, fail):
        objects = [each for each in objects if not each.isdisjoint(line)]
        assert len({*line}.union(*objects)) <= dispatch.window
        objects.append({part.position for part in call.parts})


@settings(max_examples=examples(40, 400))
@given(
    seed=st.integers(0, 2**32),
    num_actors=st.integers(1, 5),
    smaller=st.integers(1, 31),
    num_before=st.integers(0, 9),
)
def test_a_window_that_becomes_smaller_is_kept(seed: int, num_actors: int, smaller: int, num_before: int) -> None:
    """It does where batches turn out to be large: what was not asked for by then has to wait."""
    dispatch = with_small_batches(32, num_actors)
    objects: list[set[Position]] = []
    before: set[Position] = set()
    for step, (line, calls, call) in enumerate(play(dispatch, 320, random.Random(seed).choice)):
        objects = [each for each in objects if max(each) >= next(iter(line))]
        in_store = {part.position for each in calls for part in each.parts}.union(*objects)
        if step == num_before:
            dispatch.window, before = smaller, in_store
        elif step > num_before:
            assert len(in_store) <= max(smaller, len(in_store & before)) + 1  # what is awaited is always requested
        objects.append({part.position for part in call.parts})


@pytest.mark.parametrize(
    ("num_actors", "follow", "least"),
    [(1, endless, 15), (2, endless, 15), (5, endless, 15), (1, epochs_of_three, 14)],
)
def test_small_batches_take_few_calls(
    num_actors: int, follow: Callable[[Position], Position], least: float
) -> None:
    """Of a window of 32 per actor, each is asked for 16 at a time, and has the next ones while it loads them."""
    dispatch = with_small_batches(32, num_actors, follow=follow)
    sizes = [len(call.parts) for *_, call in play(dispatch, 3200, operator.itemgetter(0), follow)]
    later = sizes[len(sizes) // 2 :]
    assert sum(later) / len(later) > least


def test_small_batches_that_ranks_share_take_few_calls() -> None:
    """An actor has one of four batches, so that what it is asked for does not end where a block would."""
    dispatch = with_small_batches(32, 4, is_shared=True)
    sizes = [len(call.parts) for *_, call in play(dispatch, 3200, operator.itemgetter(0))]
    assert sum(sizes) / len(sizes) > 8


def seconds_of(seconds_per_part: Sequence[float], num_batches: int) -> float:
    """How long actors take, each of which needs so many seconds for a batch; the loop takes no time."""
    dispatch = with_small_batches(32, len(seconds_per_part))
    dispatch.part_bytes = 1000
    free_at = [0.0] * len(seconds_per_part)
    events: list[tuple[float, int, Call, float]] = []
    position, now, number = (0, 0), 0.0, 0
    dispatch.begin(position)
    while position < (0, num_batches):
        for call in dispatch.due_calls(now):
            spent_s = seconds_per_part[call.member] * len(call.parts)
            free_at[call.member] = max(now, free_at[call.member]) + spent_s
            number += 1
            heapq.heappush(events, (free_at[call.member], number, call, spent_s))
        now, _, call, spent_s = heapq.heappop(events)
        dispatch.answered(call, ["there"] * len(call.parts), spent_s, now)
        while dispatch.is_complete(position):
            dispatch.delivered(position)
            position = endless(position)
            dispatch.begin(position)
    return now


@pytest.mark.parametrize("seconds", [(0.001, 0.01), (0.001, 0.002), (0.001, 0.001, 0.001, 0.004), (0.001, 0.001)])
def test_slow_actors_do_not_hold_up_quick_ones(seconds: tuple[float, ...]) -> None:
    ideal = 1500 / sum(1 / each for each in seconds)
    assert ideal <= seconds_of(seconds, 1500) < 1.15 * ideal


def test_few_large_parts_come_together() -> None:
    for part_bytes, most in ((0, 4), (1_000_000, 4), (30_000_000, 2), (100_000_000, 1)):
        dispatch = with_actors(1)
        dispatch.part_bytes = part_bytes
        dispatch.begin((0, 0))
        for time in (0.1, 0.2):
            answer(dispatch, dispatch.due_calls(time)[0], time)
        assert max(len(call.parts) for call in dispatch.due_calls(0.3)) == most


def test_what_a_dead_actor_was_asked_for_is_asked_for_again_first() -> None:
    dispatch = with_actors(2)
    dispatch.begin((0, 0))
    calls = dispatch.due_calls(0.0)
    first = next(call for call in calls if call.parts[0].position == (0, 0))
    second = next(call for call in calls if call.member != first.member)
    assert dispatch.leave(first.member) == []
    answer(dispatch, second, 0.1)
    assert asked(dispatch.due_calls(0.1)) == [(second.member, [(0, 0)])]


@pytest.mark.parametrize(("is_known", "num_lost"), [(False, 3), (True, 2)])
@pytest.mark.parametrize("num_slots", [0, 4])
def test_a_sample_that_ends_actors_is_found_among_those_of_its_batch(
    num_slots: int, is_known: bool, num_lost: int
) -> None:
    dispatch = with_actors(2, num_slots=num_slots, batch_size=4)
    dispatch.begin((0, 0))
    deadly: list[Part] = []
    lost = 0  # actors that were asked for the sample
    while not deadly:
        for call in dispatch.due_calls(0.0):
            if any(part.position == (0, 2) and 1 in (part.slots or range(4)) for part in call.parts):
                assert lost == 0 or len(call.parts) == 1
                lost += 1
                deadly = dispatch.leave(call.member, (0, 2, 1) if is_known else None)
                dispatch.join(call.member, 0.0)
            else:
                answer(dispatch, call, 0.0)
    assert lost == num_lost
    assert [(part.position, part.slots) for part in deadly] == [((0, 2), (1,))]
    dispatch.answer(deadly[0], "failed")
    assert dispatch.is_complete((0, 2))


def warmed_up(num_actors: int) -> Dispatch:
    """Actors that have taken 0.01 s for each of ten answers."""
    dispatch = with_actors(num_actors)
    dispatch.begin((0, 0))
    position = (0, 0)
    for _ in range(10 * num_actors):
        for call in dispatch.due_calls(0.0):
            answer(dispatch, call, 0.01)
        dispatch.delivered(position)
        position = following(position)
        dispatch.begin(position)
    dispatch.begin((90, 0))
    return dispatch


def test_others_are_asked_for_what_is_late_and_an_actor_that_all_others_have_replaced_is_named() -> None:
    dispatch = warmed_up(2)
    late, other = dispatch.due_calls(100.0)[:2]
    answer(dispatch, other, 100.1)
    assert dispatch.find_late(101.4) == []
    assert not any(
        call.member == other.member and call.parts[0] in late.parts for call in dispatch.due_calls(101.4)
    )
    dispatch.find_late(101.6)
    assert dispatch.find_late(101.6) == []
    for _ in range(5):
        for call in dispatch.due_calls(101.6):
            assert call.member == other.member
            answer(dispatch, call, 101.7)
    assert dispatch.find_late(101.8) == [late.member]


def test_what_a_late_actor_has_is_asked_for_again_when_the_one_that_was_to_help_is_lost() -> None:
    dispatch = warmed_up(2)
    calls = dispatch.due_calls(100.0)
    late = calls[0].parts
    others = [call for call in calls if call.member != calls[0].member]
    answer(dispatch, others.pop(0), 101.5)
    dispatch.find_late(101.6)
    while not any(part in late for part in others[-1].parts):  # until it has that after what it works on
        others += dispatch.due_calls(101.6)
        if len(others) < 2:
            answer(dispatch, others.pop(0), 101.6)
    assert len(others) == 2
    dispatch.leave(others[0].member)
    dispatch.join(7, 101.7)
    for _ in range(20):
        for call in dispatch.due_calls(101.8):
            answer(dispatch, call, 101.8)
    assert all(part.answer is not None for part in late)


def test_an_actor_that_is_alone_has_more_time_each_time_it_is_late() -> None:
    dispatch = warmed_up(1)
    for limit in (1.5, 60.0, 120.0):  # a new one imports what samples need
        dispatch.due_calls(100.0)
        dispatch.find_late(100.0 + limit - 0.1)
        assert dispatch.find_late(100.0 + limit - 0.1) == []
        dispatch.find_late(100.0 + limit + 0.1)
        assert dispatch.find_late(100.0 + limit + 0.1) == [0]
        dispatch.leave(0)
        dispatch.join(0, 100.0)


def test_a_new_actor_that_is_late_is_not_replaced_as_long_as_it_may_import() -> None:
    dispatch = warmed_up(1)
    dispatch.join(1, 100.0)
    old, new = dispatch.due_calls(100.0)[:2]
    answer(dispatch, old, 101.0)
    dispatch.find_late(101.6)
    (again,) = [call for call in dispatch.due_calls(101.6) if new.parts[0] in call.parts]
    assert again.member == 0
    answer(dispatch, again, 101.7)
    assert new.member not in dispatch.find_late(129.9)
    assert new.member in dispatch.find_late(130.1)


def test_slots_are_dealt_evenly_and_few_move_when_an_actor_joins() -> None:
    moved, num_slots = [], 24
    for epoch in range(20):
        owners = with_actors(3, num_slots=num_slots).owners(epoch)
        assert sorted(map(len, owners.values())) == [8, 8, 8]
        assert sorted(slot for slots in owners.values() for slot in slots) == list(range(num_slots))
        more = with_actors(4, num_slots=num_slots).owners(epoch)
        assert sorted(map(len, more.values())) == [6, 6, 6, 6]
        moved.append(sum(slot not in more[number] for number in owners for slot in owners[number]))
    assert sum(moved) / 20 < 12  # dealt anew, 18 of 24 would move


@settings(max_examples=examples(60, 500))
@given(seed=st.integers(0, 2**32), num_actors=st.integers(1, 4), num_slots=st.sampled_from([0, 5]))
def test_whatever_happens_to_actors_each_batch_comes_once_and_in_order(
    seed: int, num_actors: int, num_slots: int
) -> None:
    chance, now = random.Random(seed), 0.0
    batch_size = num_slots or 2
    dispatch = with_actors(num_actors, num_slots=num_slots, batch_size=batch_size)
    calls: list[Call] = []
    came: list[list[Position]] = []  # together, so that their memory is freed together
    stopped: set[int] = set()
    position, num_events = (0, 0), 0
    dispatch.begin(position)
    while position < (3, 0):
        num_events += 1
        assert num_events < 20000
        now += chance.expovariate(10)
        calls += dispatch.due_calls(now)
        under_way = {part.position for call in calls for part in call.parts if part.answer is None}
        came = [together for together in came if any(each >= position for each in together)]
        held = {each for together in came for each in together}
        assert len({each for each in under_way if each >= position} | held) <= dispatch.window
        for number in dispatch.find_late(now):
            dispatch.leave(number)
            stopped.discard(number)
            calls = [call for call in calls if call.member != number]
            dispatch.join(number, now)
        answerable = [call for call in calls if call.member not in stopped]
        if answerable and chance.random() < 0.8:
            call = min((each for each in answerable), key=lambda each: each.sent_at)
            calls.remove(call)
            answer(dispatch, call, now)
            came.append([part.position for part in call.parts])
        elif chance.random() < 0.02:
            stopped.add(chance.randrange(num_actors))
        if chance.random() < 0.005:
            number = chance.randrange(num_actors)
            for part in dispatch.leave(number):
                dispatch.answer(part, "deadly")
            calls = [call for call in calls if call.member != number]
            stopped.discard(number)
            dispatch.join(number, now)
        while dispatch.is_complete(position):
            slots = [part.slots for part in dispatch.parts(position)]
            if slots != [None]:
                assert sorted(slot for each in slots for slot in each) == list(range(batch_size))
            dispatch.delivered(position)
            position = following(position)
            dispatch.begin(position)


@pytest.mark.parametrize("num_actors", [1, 3])
def test_what_other_ranks_load_as_well_goes_to_the_same_actors(num_actors: int) -> None:
    ranks = [with_actors(num_actors, is_shared=True) for _ in range(2)]
    owners: list[dict[Position, int]] = [{}, {}]
    for rank, of_batch, pause in zip(ranks, owners, (0.01, 0.5), strict=True):
        position = (0, 0)
        rank.begin(position)
        while position < (4, 0):
            for call in rank.due_calls(0.0):
                of_batch.update({part.position: call.member for part in call.parts})
                answer(rank, call, pause)
            rank.delivered(position)
            position = following(position)
            rank.begin(position)
    common = owners[0].keys() & owners[1].keys()
    assert {each: owners[0][each] for each in common} == {each: owners[1][each] for each in common}
    numbers = [owners[0][(0, batch)] for batch in range(num_actors)]
    assert sorted(numbers) == list(range(num_actors))


@pytest.mark.parametrize("least_s", [1.5, 10.0])
def test_no_actor_is_late_before_the_least_patience(least_s: float) -> None:
    """It is more where answers may have to wait for room in an object store."""
    dispatch = warmed_up(2)
    dispatch.least_patience_s = least_s
    late = dispatch.due_calls(100.0)[0]
    dispatch.find_late(100.0 + least_s - 0.1)
    assert [part.num_late for part in late.parts] == [0] * len(late.parts)
    dispatch.find_late(100.0 + least_s + 0.1)
    assert [part.num_late for part in late.parts] == [1] * len(late.parts)
