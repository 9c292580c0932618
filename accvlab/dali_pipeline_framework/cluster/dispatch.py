# SPDX-License-Identifier: Apache-2.0
"""Which actor loads which part of which batch, and what is done about those that are late or die.

It knows no Ray and reads no clock: what happens is reported to it, with the time, and it returns what to do.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

import attrs

Position: TypeAlias = tuple[int, int]
"""Epoch and batch."""

WORK_PER_CALL_S = 0.2  # below that, what a call costs would show
_MOST_IN_CALL = 64
BYTES_PER_CALL = 64e6  # above that, what a call costs is little next to copying
_CALLS_PER_ACTOR = 2  # one is worked on, one waits: an actor never waits for the next
_LEAST_PER_BLOCK = 4  # of batches; more where a call takes more of them
_USUAL_SPREAD, _SHORT_S = 1.5, 1e-4  # of the times that equal actors need for a part; below that nobody is slow
LEAST_PATIENCE_S = 1.5
_FIRST_PATIENCE_S = 30.0  # the first samples import modules
_TIMES_P99 = 5
_NUM_TIMED = 200
_MOST_DEATHS = 2  # of actors that load a sample alone


@attrs.define(eq=False)
class Part:
    """A part of a batch: what one actor loads of it.

    Attributes:
        position: Epoch and batch.
        slots: The slots of the batch; None: all.
        owner: The actor that is to load it; None: any.
        asked: The actors that have been asked, and have not died since.
        is_due: Whether an actor is to be asked (again).
        num_late: How often it was late.
        is_alone: Whether it is requested alone, to find out whether it ends actors.
        num_deaths: How many actors have died while they worked on it alone.
        answer: What came back; None: nothing yet.
        came_with: Positions of the parts that came with it as one object, whose memory is freed as a whole.
    """

    position: Position
    slots: tuple[int, ...] | None = None
    owner: int | None = None
    asked: set[int] = attrs.Factory(set)
    is_due: bool = True
    num_late: int = 0
    is_alone: bool = False
    num_deaths: int = 0
    answer: Any = None
    came_with: Sequence[Position] = ()


@attrs.define(eq=False)
class Call:
    """Parts that were requested of an actor together."""

    member: int
    parts: list[Part]
    sent_at: float


@attrs.define(eq=False)
class Member:
    """An actor, as far as the dispatch knows it.

    Attributes:
        calls: What it was asked for, and has not answered, in order.
        answered_at: When it has answered last, or was ready.
        num_answered: How many calls it has answered since it was ready.
        s_per_part: Seconds of work for a part; None: not known.
        is_late: Whether it was found to be late, and has not answered since.
    """

    calls: collections.deque[Call] = attrs.Factory(collections.deque)
    answered_at: float = 0.0
    num_answered: int = 0
    s_per_part: float | None = None
    is_late: bool = False


class Dispatch:
    """Asks actors for the batches that are due next, in a window.

    Where slots keep their sequences from batch to batch, each slot stays with an actor for an epoch (rendezvous
    hashing, with a limit, so that all get equally many). In other orders a block of consecutive batches belongs to
    an actor (rendezvous hashing as well): four, or as many small ones as a call takes. While that actor is busy or
    late, actors without work help. Where several ranks share what was loaded, the actor is the same for all of
    them, and nobody helps.

    What an actor worked on when it was lost is requested slot by slot, each alone: so the sample is found that
    ends all actors.

    Attributes:
        window: How many batches may be under way, with those that are loaded and not delivered.
        part_bytes: Size of what comes back for a part; 0: not known.
        call_bytes: How large what comes back for a call may be, where it is of several parts.
        suspects: Batches at which actors were lost: how many, by slot, that worked on this slot alone.
        slowest_s: How long a sample may take.
        least_patience_s: How long an actor may take at least before it is late.
    """

    def __init__(
        self,
        window: int,
        following: Callable[[Position], Position | None],
        num_slots: int = 0,
        is_shared: bool = False,
        batch_size: int = 1,
    ) -> None:
        """Set up.

        Args:
            window: See the attribute.
            following: The position after another one; None: nothing is to be loaded ahead of it.
            num_slots: Slots of a batch, where these are to stay with actors; else 0.
            is_shared: Whether other ranks load the same.
            batch_size: Slots of a batch.
        """
        self.suspects: dict[Position, collections.Counter[int]] = {}
        self.slowest_s, self.least_patience_s = 0.0, LEAST_PATIENCE_S
        self._batch_size = batch_size
        self.window = window
        self.part_bytes, self.call_bytes = 0, BYTES_PER_CALL
        self._following = following
        self._num_slots = num_slots
        self._is_shared = is_shared
        self._members: dict[int, Member] = {}
        self._spent: dict[int, tuple[float, float]] = {}
        self._line: dict[Position, list[Part]] = {}
        self._complete: set[Position] = set()  # of the line, of which all parts are there
        self._end: Position | None = None  # the last position of the line
        self._together: list[list[Part]] = []  # what came as one object
        self._is_full = False  # since the window has become smaller
        self._per_block = _LEAST_PER_BLOCK
        self._usual_s = math.inf  # for a part; an actor that needs longer is slow
        self._times: collections.deque[float] = collections.deque(maxlen=_NUM_TIMED)  # of calls, in seconds
        self._owners: dict[Any, Any] = {}  # what was computed for the present actors

    # --- actors -----------------------------------------------------------------------------------

    def join(self, number: int, now: float) -> None:
        """An actor can be asked."""
        self._owners.clear()
        self._members[number] = Member(answered_at=now)

    def leave(self, number: int, stood_at: tuple[int, int, int] | None = None) -> list[Part]:
        """An actor cannot be asked any more; what it was asked for is due again.

        Args:
            number: Number of the actor.
            stood_at: Epoch, batch and slot of the sample at which it stood still; None where that is not known.

        Returns:
            The parts, of one slot each, that cost several actors their life.
        """
        member = self._members.pop(number, None)
        self._owners.clear()
        if member is None:
            return []
        for call in member.calls:
            for part in call.parts:
                part.asked.discard(number)
                # Of those who have it, some may be late: they are not waited for.
                part.is_due = part.is_due or not any(map(self._is_in_time, part.asked))
        for part in self._worked_on(member):
            parts = self._line.get(part.position, [])
            if part in parts:
                counts = self.suspects.setdefault(part.position, collections.Counter())
                if stood_at is not None and stood_at[:2] == part.position:
                    counts[stood_at[2]] += 1
                elif part.is_alone:
                    counts.update(part.slots or ())
                parts.remove(part)
                parts += self._one_by_one(part.position, part.slots, part.num_late)
        return self._deadly()

    def _one_by_one(self, position: Position, slots: tuple[int, ...] | None, num_late: int = 0) -> list[Part]:
        counts = self.suspects[position]
        return [
            Part(position, (slot,), num_late=num_late, is_alone=True, num_deaths=counts[slot])
            for slot in (range(self._batch_size) if slots is None else slots)
        ]

    def _deadly(self) -> list[Part]:
        found = [part for position in self.suspects for part in self._line.get(position, ())]
        return [part for part in found if part.num_deaths >= _MOST_DEATHS and part.answer is None]

    @staticmethod
    def _worked_on(member: Member) -> list[Part]:
        return [part for part in member.calls[0].parts if part.answer is None] if member.calls else []

    def at_work(self, number: int) -> list[Position]:
        """The batches of which an actor works on a part."""
        member = self._members.get(number)
        return [] if member is None else [part.position for part in self._worked_on(member)]

    def _is_in_time(self, number: int) -> bool:
        return number in self._members and not self._members[number].is_late

    @property
    def num_ready(self) -> int:
        """How many actors can be asked."""
        return len(self._members)

    def spent(self, number: int) -> tuple[float, float]:
        """Seconds of work of an actor, however often it was started, and in which it was awaited beyond that."""
        return self._spent.get(number, (0.0, 0.0))

    def owners(self, epoch: int) -> dict[int, tuple[int, ...]]:
        """The slots of each actor in an epoch: by rendezvous hashing, at most ``ceil(slots / actors)`` each."""
        if epoch in self._owners:
            return cast(dict[int, tuple[int, ...]], self._owners[epoch])
        most = math.ceil(self._num_slots / max(1, len(self._members)))
        slots_of: dict[int, list[int]] = {number: [] for number in self._members}
        for slot in range(self._num_slots):
            free = [number for number, slots in slots_of.items() if len(slots) < most]
            slots_of[max(free, key=lambda number: _weight(number, epoch, slot))].append(slot)
        self._owners[epoch] = owners = {number: tuple(slots) for number, slots in slots_of.items() if slots}
        return owners

    def owner(self, position: Position) -> int:
        """The actor that is to load a batch where slots keep no sequences, by hashing of its block."""
        epoch, batch = position
        block = epoch, batch // self._per_block * self._per_block // _LEAST_PER_BLOCK
        if block not in self._owners:
            self._owners[block] = max(self._members, key=lambda number: _weight(number, *block))
        return cast(int, self._owners[block])

    # --- batches ----------------------------------------------------------------------------------

    def begin(self, position: Position) -> bool:
        """The batch at a position is due: what comes before it is forgotten; return whether that makes room."""
        if position in self._line:
            makes_room = False
            while (first := next(iter(self._line))) != position:
                makes_room |= self.delivered(first)
            return makes_room
        self._line.clear()
        self._complete.clear()
        self._add(position)
        return True

    def forget(self) -> None:
        """What was asked for is not what is due any more, e.g. since the order was changed."""
        self._line.clear()
        self._complete.clear()
        self._end = None

    def parts(self, position: Position) -> list[Part]:
        """The parts of a batch in the window."""
        return self._line[position]

    def is_complete(self, position: Position) -> bool:
        """Whether all parts of a batch are there."""
        return position in self._complete

    def delivered(self, position: Position) -> bool:
        """A batch was delivered; return whether that makes room for others."""
        self.suspects.pop(position, None)
        self._complete.discard(position)
        line = self._line
        objects = [part.came_with for part in line.pop(position, ())]
        return self._is_full or any(not any(other in line for other in reversed(held)) for held in objects)

    def ask_whole(self, position: Position) -> None:
        """Have a batch loaded as a whole, by any actor."""
        self.suspects.pop(position, None)
        self._line[position][:] = [Part(position)]
        self._complete.discard(position)

    def _add(self, position: Position) -> None:
        self._line[position], self._end = [], position

    def _fill(self) -> int:
        """Append what fits into the window; return how many batches are delivered, but held by others."""
        line = self._line
        self._together = [parts for parts in self._together if any(part.position in line for part in parts)]
        held = {part.position for parts in self._together for part in parts if part.position not in line}
        while True:
            following = None if self._end is None else self._following(self._end)
            if following is None or len(line) + len(held) + self._block_from(following) > self.window:
                break
            self._add(following)
        for position, parts in line.items():
            if not parts:
                parts += self._divided(position)
        return len(held)

    def _block_from(self, position: Position) -> int:
        """How many batches go together from here on: a whole block where one begins, else one."""
        num, most = 1, min(self._per_block, self.window // 2)
        if self._per_block == _LEAST_PER_BLOCK or position[1] % self._per_block:
            return num
        while num < most:
            following = self._following(position)
            if following is None or following[0] != position[0]:
                break
            position, num = following, num + 1
        return num

    def _divided(self, position: Position) -> list[Part]:
        epoch, batch = position
        if position in self.suspects:
            return self._one_by_one(position, None)
        if self._num_slots and len(self._members) > 1:
            return [Part(position, slots, owner) for owner, slots in self.owners(epoch).items()]
        if self._is_shared:  # each actor once in as many batches as there are actors
            turn, place = divmod(batch, len(self._members))
            order = sorted(self._members, key=lambda number: _weight(number, epoch, turn))
            return [Part(position, None, order[place])]
        return [Part(position, None, self.owner(position))]

    @property
    def num_loaded(self) -> int:
        """How many batches are loaded and not delivered."""
        return len(self._complete)

    # --- asking -----------------------------------------------------------------------------------

    def due_calls(self, now: float) -> list[Call]:
        """What to ask whom for; it counts as asked."""
        if not self._members:
            return []
        lines = self._with_room(self._fill())
        due = [part for parts in lines for part in parts if part.is_due and part.answer is None]
        calls: list[Call] = []
        if not due:  # most often: this is called several times per batch
            return calls
        turns = [*itertools.product((False, True), range(_CALLS_PER_ACTOR))]
        if len(self._line) < _CALLS_PER_ACTOR * len(self._members):  # nothing waits while others have no work
            turns.sort(key=lambda turn: turn[1])
        for helps, num_waiting in turns:
            for number, member in self._members.items():
                if len(member.calls) == num_waiting and not member.is_late:
                    parts = self._parts_for(number, member, due, helps)
                    if parts:
                        calls.append(Call(number, parts, now))
                        member.calls.append(calls[-1])
        return calls

    def _with_room(self, num_held: int) -> list[list[Part]]:
        """The parts of the batches that may be requested; others wait where the window has become smaller."""
        room = self.window - num_held
        self._is_full = len(self._line) > room
        if not self._is_full:
            return [*self._line.values()]
        begun = [any(part.asked or part.answer is not None for part in parts) for parts in self._line.values()]
        room -= sum(begun)
        found: list[list[Part]] = []
        for parts, has_begun in zip(self._line.values(), begun, strict=True):
            if has_begun or room > 0 or not found:  # the first is awaited
                found.append(parts)
                room -= not has_begun
        return found

    def _cuts(self, taken: Sequence[Part], part: Part, most: int) -> bool:
        """Whether a call ends before a part: one that is requested alone, or a block that it could not hold."""
        if part.is_alone or self._is_shared:  # where it is shared, an actor has no blocks
            return part.is_alone
        return len(taken) + self._block_from(part.position) > most

    def _parts_for(self, number: int, member: Member, due: Sequence[Part], helps: bool) -> list[Part]:
        most = self._most_in_call(member, len(self._line))
        taken: list[Part] = []
        for part in due:
            if part.is_due and self._may_take(number, part, helps):
                if taken and self._cuts(taken, part, most):
                    break
                taken.append(part)
                if len(taken) == most or part.is_alone:
                    break
        return self._take(number, taken)

    def _most_in_call(self, member: Member, num_batches: int) -> int:
        if member.s_per_part is None:
            return 1
        share = num_batches / _CALLS_PER_ACTOR
        if not self._num_slots:  # a slow actor gets less, that the window does not wait for it
            share /= len(self._members) * max(1.0, member.s_per_part / self._usual_s)
        in_time = WORK_PER_CALL_S / max(member.s_per_part, 1e-6)
        in_room = self.call_bytes / max(self.part_bytes, 1)
        return max(1, int(min(share, _MOST_IN_CALL, in_time, in_room)))

    def _may_take(self, number: int, part: Part, helps: bool) -> bool:
        if number in part.asked:
            return False
        if part.owner in (None, number) or part.num_late > 0 or part.owner not in self._members:
            return True
        return helps and part.slots is None and not self._is_shared

    @staticmethod
    def _take(number: int, parts: list[Part]) -> list[Part]:
        for part in parts:
            part.is_due = False
            part.asked.add(number)
        return parts

    # --- answers ----------------------------------------------------------------------------------

    def answer(self, part: Part, answer: Any) -> None:
        """A part is there, or is known to fail."""
        part.answer = answer
        parts = self._line.get(part.position)
        if parts and all(each.answer is not None for each in parts):
            self._complete.add(part.position)

    def answered(self, call: Call, answers: Sequence[Any], work_s: float, now: float) -> None:
        """An actor has answered a call, of so many seconds of work; the first answer for a part counts."""
        positions = [part.position for part in call.parts]
        for part, answer in zip(call.parts, answers, strict=True):
            if part.answer is None:
                part.came_with = positions
                self.answer(part, answer)
        if len(call.parts) > 1:
            self._together.append(call.parts)
        member = self._members.get(call.member)
        if member is None or call not in member.calls:
            return
        if member.num_answered:  # not the first one, which imports
            spent_s = now - max(call.sent_at, member.answered_at)
            self._times.append(spent_s)
            before_s, way_s = self.spent(call.member)
            self._spent[call.member] = before_s + work_s, way_s + max(0.0, spent_s - work_s)
            work_s /= len(call.parts)
            old = member.s_per_part
            member.s_per_part = work_s if old is None else 0.7 * old + 0.3 * work_s
        if not self._num_slots:
            self._fit_blocks()
        member.calls.remove(call)
        member.num_answered += 1
        member.answered_at, member.is_late = now, False

    def _fit_blocks(self) -> None:
        """Have a block hold what a call takes, so that small batches need few calls."""
        known = [member for member in self._members.values() if member.s_per_part is not None]
        quickest_s = min((cast(float, member.s_per_part) for member in known), default=0.0)
        self._usual_s = max(_SHORT_S, _USUAL_SPREAD * quickest_s)
        most = min((self._most_in_call(member, self.window) for member in known), default=1)
        self._per_block = max(_LEAST_PER_BLOCK, 2 ** (most.bit_length() - 1))

    # --- actors that are late ---------------------------------------------------------------------

    @property
    def patience_s(self) -> float:
        """How long an actor may take for an answer before others are asked."""
        if not self._times:
            return _FIRST_PATIENCE_S
        ordered = sorted(self._times)
        return max(self.least_patience_s, _TIMES_P99 * ordered[int(0.99 * (len(ordered) - 1))])

    def find_late(self, now: float) -> list[int]:
        """Have others asked for what late actors were asked for.

        Returns:
            Actors that are to be replaced: others have answered all that they were asked for, or there are none.
        """
        silent = []
        for number, member in self._members.items():
            if not member.calls:
                continue
            first = member.calls[0]
            waited = now - max(first.sent_at, member.answered_at)
            parts = [part for call in member.calls for part in call.parts]
            is_new = not member.num_answered  # it may still import what samples need
            patience = self.patience_s
            if is_new and self._is_alone(number):
                patience = max(patience, _FIRST_PATIENCE_S)
            if self._is_alone(number):
                patience = max(patience, self.slowest_s)
            patience *= 2 ** min((part.num_late for part in first.parts), default=0)
            if member.is_late:
                is_covered = not any(part.answer is None for part in parts) or self._is_alone(number)
                if is_covered and (waited > _FIRST_PATIENCE_S or not is_new):
                    silent.append(number)
            elif waited > patience:
                member.is_late = True
                for part in parts:
                    part.num_late += 1
                    part.is_due = True
        return silent

    def _is_alone(self, number: int) -> bool:
        """Whether no other actor can be asked that is not late itself, and has answered before."""
        others = [member for other, member in self._members.items() if other != number]
        return all(member.is_late or not member.num_answered for member in others)


def _weight(member: int, epoch: int, place: int) -> bytes:
    return hashlib.blake2b(f"{member} {epoch} {place}".encode(), digest_size=8).digest()


def joined_slots(parts: Iterable[Part]) -> list[tuple[int, Part, int]]:
    """The slots of a batch in order, each with its part and its number there."""
    found = [(slot, part, number) for part in parts for number, slot in enumerate(part.answer.slots)]
    return sorted(found, key=lambda each: each[0])
