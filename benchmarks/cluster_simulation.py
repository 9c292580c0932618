# SPDX-License-Identifier: Apache-2.0
"""Predicts samples per second for actors on other machines, from measured costs; nothing is run.

The dispatch of the library itself asks actors that are played here. An actor computes for a batch as long as was
measured; then the batch goes through the network of the receiving machine, one after the other; the loop takes
batches in order, each for as long as the receiver and its step need.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import attrs
from accvlab.dali_pipeline_framework.cluster.dispatch import Dispatch, Position


@attrs.frozen
class Costs:
    """What was measured.

    Attributes:
        core_s_per_sample: Processor time of an actor for a sample.
        bytes_per_sample: What is sent of it.
        send_core_s_per_gb: Processor time of an actor to send a gigabyte.
        receive_core_s_per_gb: Processor time of the receiving process for a gigabyte.
        spread: Times of batches are within this share of their mean, evenly.
    """

    core_s_per_sample: float
    bytes_per_sample: float
    send_core_s_per_gb: float = 0.25
    receive_core_s_per_gb: float = 0.2
    spread: float = 0.3


def samples_per_s(
    costs: Costs,
    num_actors: int,
    network_gb_per_s: float,
    batch_size: int = 8,
    step_s: float = 0.0,
    batches_ahead: int | None = None,
    num_batches: int = 400,
) -> float:
    """Predict the rate of a loop, in its second half.

    Args:
        costs: What was measured.
        num_actors: How many actors, each with a core of its own.
        network_gb_per_s: What the receiving machine gets through its network, in 10**9 bytes per second.
        batch_size: Samples per batch.
        step_s: Time that the loop needs for a batch.
        batches_ahead: As in `RayWorkers`.
        num_batches: How many batches to play at least; four windows.
    """
    chance = random.Random(0)
    dispatch = Dispatch(batches_ahead or 4 * num_actors, _following)
    num_batches = max(num_batches, 4 * dispatch.window)
    for number in range(num_actors):
        dispatch.join(number, 0.0)
    num_bytes = batch_size * costs.bytes_per_sample
    per_batch_s = batch_size * costs.core_s_per_sample + num_bytes / 1e9 * costs.send_core_s_per_gb
    way_s = num_bytes / network_gb_per_s / 1e9
    receive_s = num_bytes / 1e9 * costs.receive_core_s_per_gb
    events: list[tuple[float, int, str, Any]] = []
    free_at = dict.fromkeys(range(num_actors), 0.0)
    now = link_free_at = loop_free_at = began = 0.0
    position, num_delivered, number = (0, 0), 0, itertools.count()

    def after(time: float, what: str, of: Any = None) -> None:
        heapq.heappush(events, (time, next(number), what, of))

    dispatch.begin(position)
    while num_delivered < num_batches:
        for call in dispatch.due_calls(now):
            times = [per_batch_s * (1 + costs.spread * (2 * chance.random() - 1)) for _ in call.parts]
            free_at[call.member] = max(now, free_at[call.member]) + sum(times)
            after(free_at[call.member], "loaded", (call, sum(times)))
        if dispatch.is_complete(position) and loop_free_at <= now:
            dispatch.delivered(position)
            position = _following(position)
            dispatch.begin(position)
            num_delivered += 1
            began = now if num_delivered == num_batches // 2 else began  # by then all are at work
            loop_free_at = now + max(step_s, receive_s)
            after(loop_free_at, "received")
            continue
        now, _, what, of = heapq.heappop(events)
        if what == "loaded":
            link_free_at = max(now, link_free_at) + way_s * len(of[0].parts)
            after(link_free_at, "came", of)
        elif what == "came":
            call, work_s = of
            dispatch.answered(call, ["there"] * len(call.parts), work_s, now)
    return (num_batches - num_batches // 2) * batch_size / (now - began)


def _following(position: Position) -> Position:
    return position[0], position[1] + 1
