# SPDX-License-Identifier: Apache-2.0
"""How many batches the workers load ahead of the one that is due.

Batches are delivered in order, and a worker loads whole batches. While a slow batch is due, the other workers go
on only as long as they may load ahead::

    worker 0   [ slow . . . . . . . . . ][ 6 ]      delivered in the order 0, 1, 2, ...
    worker 1   [ 1 ][ 2 ][ 3 ][ 4 ][ 5 ]  <- needs a depth of 6; with less, it waits for batch 0
"""

from __future__ import annotations

import math
from typing import Any

from .watching.shared_memory import free_shared_memory
from .worker_report import WorkerReport

MEMORY_FOR_DEPTH = 512 * 2**20
"""Bytes that batches loaded ahead may take, beyond the one per worker that it needs to work at all."""

_SAMPLES_PER_WORKER = 12
_BATCHES_PER_WORKER = 2


def evening_depth(num_workers: int, batch_size: int) -> int:
    """Get the depth at which a few slow samples do not hold up the workers; one worker alone waits for nobody.

    Of batches of one sample, more must be ahead than of large ones, which even out within themselves: 14 per
    worker for single samples, 8, 5 and 4 for 2, 4 and 8. Where 5 % of the samples take 20 times as long as the
    others, 2, 4 and 8 workers then reach at least 0.98 of what they could if the order were free.
    """
    if num_workers < 2:
        return num_workers
    return num_workers * (_BATCHES_PER_WORKER + math.ceil(_SAMPLES_PER_WORKER / batch_size))


class LoadAhead:
    """Deepens the queue of batches loaded ahead, as far as memory allows, once the size of a batch is known.

    DALI makes a buffer for each batch that can be ahead, and uses them in turn. A buffer that was not used yet
    takes no memory. So the queue is made as deep as it may become, but begins with as few buffers as are needed.
    """

    def __init__(self, pool: Any, groups: Any, least: int) -> None:
        """Begin with few batches, at least so many; the workers of the pool are started, and have no work yet.

        ``groups`` are DALI's external sources that they load.
        """
        self._waiting = [
            (group, context.shm_manager)
            for group, context in zip(groups, pool.contexts, strict=True)
            if group.prefetch_queue_depth > least
        ]
        self._most = {id(group): group.prefetch_queue_depth for group, _ in self._waiting}
        self._least = least
        for group, buffers in self._waiting:
            buffers.queue_depth -= group.prefetch_queue_depth - least
            group.prefetch_queue_depth = least

    def deepen(self) -> None:
        """Deepen the queue, once the first batch was received. Later calls do nothing.

        Later it could not be done. The buffer of batch ``n`` is ``n % queue_depth``, so the depth may change only
        while no buffer was used twice.
        """
        for group, buffers in self._waiting:
            depth = self._affordable(buffers.get_chunks()[0].capacity, self._most[id(group)])
            buffers.queue_depth += depth - self._least
            group.prefetch_queue_depth = depth
        self._waiting = []

    def _affordable(self, batch_bytes: int, most: int) -> int:
        free = free_shared_memory()
        budget = MEMORY_FOR_DEPTH if free is None else min(MEMORY_FOR_DEPTH, free // 2)
        return min(most, self._least + budget // batch_bytes)


def discard_loaded(pool: Any) -> None:
    """Throw away what the workers of a pool have loaded, or still load, of an abandoned epoch; also what failed.

    Nobody has asked for it, so it does not go through the graph, and a bad sample in it is no reason to fail.
    """
    for number, context in enumerate(() if pool is None else pool.contexts):
        pool.reset_context(number)
        while context.task_queue:
            try:
                pool.receive_batch(number)
            except StopIteration:
                pass
            except Exception as error:
                if WorkerReport.find(error) is None:  # a worker has died
                    raise
