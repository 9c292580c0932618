# SPDX-License-Identifier: Apache-2.0
"""How long a batch takes on its way from the workers to the training loop, in the process of the loop."""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import Any

import attrs


@attrs.define
class StageTimes:
    """Counters of one pipeline; they only grow.

    Attributes:
        workers_ns: Time in which nothing was there from the workers.
        input_ns: Time to hand over inputs to the graph, with ``workers_ns``, and with loading where this process
            loads.
        run_ns: Time until outputs of the graph were there, with ``input_ns``.
        conversion_ns: Time to make tensors or arrays of outputs.
        post_process_ns: Time in ``post_process_func``.
        num_samples: Samples that were delivered.
        num_inputs: Batches that were asked for from the workers.
        num_ahead: Batches that were loaded already when one was asked for, added up over ``num_inputs``.
        num_empty: How often none was loaded.
    """

    workers_ns: int = 0
    input_ns: int = 0
    run_ns: int = 0
    conversion_ns: int = 0
    post_process_ns: int = 0
    num_samples: int = 0
    num_inputs: int = 0
    num_ahead: int = 0
    num_empty: int = 0

    def count_input(self, num_ahead: int) -> None:
        """Count a batch that is asked for while so many are loaded."""
        self.num_inputs += 1
        self.num_ahead += max(0, num_ahead)
        self.num_empty += num_ahead <= 0


def time_waits(pool: Any, times: StageTimes) -> None:
    """Have a pool of DALI (``WorkerPool.pool``) count how long it waits for its workers."""
    pool_class: Any = type(pool)
    pool.__class__ = _timed(pool_class)
    pool.stage_times = times


@functools.cache
def _timed(pool_class: Any) -> Any:
    class TimedPool(pool_class):  # type: ignore[misc]
        def wait_for_res(self) -> Any:
            began = perf_counter_ns()
            try:
                return super().wait_for_res()
            finally:
                self.stage_times.workers_ns += perf_counter_ns() - began

    return TimedPool
