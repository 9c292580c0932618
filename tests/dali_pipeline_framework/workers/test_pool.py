"""The order in which a pool gives and takes, with workers that do what a test says."""

from __future__ import annotations

import functools
import itertools

import pytest
from scripted_workers import ScriptedWorkers, pool_of
from support.inputs import NumberIterable
from support.interrupts import is_interrupted

from accvlab.dali_pipeline_framework.faults.fault_policy import FailedSamples, FaultPolicy
from accvlab.dali_pipeline_framework.workers.local import Gone
from accvlab.dali_pipeline_framework.workers.messages import Ended, Task
from accvlab.dali_pipeline_framework.workers.plans import BatchPlan
from accvlab.dali_pipeline_framework.workers.pool import failures
from accvlab.dali_pipeline_framework.workers.pool import pool as pool_module
from accvlab.dali_pipeline_framework.workers.pool import supervisor as supervisor_module
from accvlab.dali_pipeline_framework.workers.pool.failures import Refused
from accvlab.dali_pipeline_framework.workers.pool.pool import Batch, PoolSettings
from accvlab.dali_pipeline_framework.workers.pool.supervisor import Member, NoWorkers, Supervisor

MODULES = pool_module, failures, supervisor_module


def test_a_batch_before_one_with_an_error_comes_where_no_worker_is_left() -> None:
    script = [("loads", 0), ("loads", 1), ("dies", 2), ("loads", 4), ("dies", 5), ("dies", 2)]
    pool = pool_of(9, ScriptedWorkers(script), PoolSettings(2, 4, 1e9))
    got: list[tuple[int, bool | None]] = []
    batch = 0
    while batch < 9:
        answer = pool.get((0, batch))
        got.append((batch, answer.is_tried_again if isinstance(answer, Refused) else None))
        if isinstance(answer, Refused) and answer.is_tried_again:
            pool.forgive()
        else:
            assert isinstance(answer, Batch | Refused)
            pool.release_through((0, batch))
            batch += 1
    first_and_second = [(2, True), (2, False)]
    assert got == [(0, None), (1, None), *first_and_second, (3, None), (4, None), (5, True)] + [
        (number, None) for number in range(5, 9)
    ]


@pytest.mark.parametrize("num_deaths", [1, 2])
def test_workers_that_are_lost_at_a_substitute_are_counted_anew(num_deaths: int) -> None:
    failed = FailedSamples(FaultPolicy(samples="replace"))
    workers = ScriptedWorkers([("dies", 0)] * (2 + num_deaths))
    pool = pool_of(9, workers, PoolSettings(1, 1, 1e9, restarts=9), failed)
    batch = pool.get((0, 0))
    assert isinstance(batch, Batch)
    assert len(failed.not_tried) == 1 + num_deaths // 2
    assert batch.task.instead[0] not in failed.not_tried


def test_what_an_iterable_has_read_is_lost_with_its_worker_also_between_two_tasks() -> None:
    supervisor = Supervisor(BatchPlan(NumberIterable(8), 4), NoWorkers(), 1, 0, None, None)
    member = Member(0, 0, is_ready=True)
    gone = Gone("was ended", is_own_doing=True)
    assert supervisor.is_no_loss(member, gone)
    member.is_in_epoch = True
    assert not supervisor.is_no_loss(member, gone)


@pytest.mark.parametrize("num_deaths", [0, 1])
def test_each_batch_comes_once_at_whatever_moment_a_handler_raises(num_deaths: int) -> None:
    num_repairs = 0
    for moment in itertools.count():
        workers = ScriptedWorkers([("dies", 0)] * num_deaths)
        pool = pool_of(3, workers, PoolSettings(1, 2, 1e9, restarts=5))
        was_interrupted = is_interrupted(functools.partial(pool.get, (0, 0)), moment, *MODULES)
        pool.start()
        for batch in range(3):
            assert isinstance(pool.get((0, batch)), Batch)
            pool.release_through((0, batch))
        # Of an iterable, a second request would be for the batch behind.
        requested = [(0, batch) for batch in [*[0] * num_deaths, 0, 1, 2]]
        assert (workers.sent[: len(requested)], workers.num_starts) == (requested, 1 + num_deaths)
        num_repairs += workers.num_repairs
        if not was_interrupted:
            break
    assert num_repairs > 200


def test_what_is_loaded_ahead_for_the_next_epoch_is_kept_at_the_end_of_this_one() -> None:
    workers = ScriptedWorkers()
    pool = pool_of(3, workers, PoolSettings(1, 3, 1e9))
    for epoch in range(4):
        for batch in range(3):
            assert isinstance(pool.get((epoch, batch)), Batch)
            pool.release_through((epoch, batch))
        assert isinstance(pool.get((epoch, 3)), Ended)
    assert workers.sent[:12] == [(epoch, batch) for epoch in range(4) for batch in range(3)]


@pytest.mark.parametrize("stage", [-1, 0, 1])
def test_nothing_is_lost_with_a_worker_that_was_never_ready_to_read_an_iterable(stage: int) -> None:
    supervisor = Supervisor(BatchPlan(NumberIterable(8), 4), NoWorkers(), 1, 0, None, None)
    member = Member(0, 0, {0: Task((0, 0))})
    gone = Gone("was ended in the middle of a message", stage, was_killed=True, is_own_doing=True)
    assert supervisor.is_no_loss(member, gone)
    member.is_ready = True
    assert supervisor.is_no_loss(member, gone) == (stage < 0)


@pytest.mark.parametrize("num_sent_before", [0, 1])
def test_a_worker_has_what_was_sent_to_it_whenever_handlers_raise(num_sent_before: int) -> None:
    task = Task((0, 0))
    for send_at, set_right_at in itertools.product(range(60), range(80)):
        workers = ScriptedWorkers()
        supervisor = Supervisor(BatchPlan(NumberIterable(8), 4), workers, 1, None, None, None)
        supervisor.start_missing()
        for _ in range(num_sent_before):  # to a worker that was lost
            supervisor.send(supervisor.members[0], task)
        member = supervisor.members[0] = Member(0, 1)
        send = functools.partial(supervisor.send, member, task)
        calls = {send: send_at, supervisor.set_right: set_right_at}
        raised = [is_interrupted(call, moment, supervisor_module) for call, moment in calls.items()]
        supervisor.set_right()
        assert (task.number in member.tasks) == (len(workers.sent) > num_sent_before)
    assert raised == [False, False]  # at the last moments, both had ended
