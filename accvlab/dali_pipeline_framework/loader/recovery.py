# SPDX-License-Identifier: Apache-2.0
"""How a loader goes on after a fault: at exactly the batch behind the last one that was delivered.

Order and draws are arithmetic, so a pipeline that was lost can be replaced by another one of the same arguments,
which begins at any batch and delivers the same, bit for bit.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from ..errors import ClosedError, FrameworkError, NotSupportedError, WorkerDiedError

if TYPE_CHECKING:
    from ..faults.fault_policy import FaultPolicy
    from .pipeline_owner import LoaderPipeline
    from .position import LoopProgress, Position

_logger = logging.getLogger(__name__)


class Recovery:
    """Gets the batches of a loader, and replaces its pipeline where that was lost.

    Attributes:
        num_restarts: How often the pipeline was replaced because of a fault of the workers.
    """

    def __init__(self, run: LoaderPipeline, progress: LoopProgress, faults: FaultPolicy) -> None:
        """Set up.

        Args:
            run: The pipeline.
            progress: Where the loop stands.
            faults: What to do about faults.
        """
        self._run = run
        self._progress = progress
        self._faults = faults
        self.num_restarts = 0

    def _can_go_on(self, error: BaseException | None) -> bool:
        """Whether a new pipeline can begin where the old one stood when it failed.

        Not with iterables and streams, and not where a batch of native readers failed: they cannot step over it.
        """
        try:
            self._run.require_resumable()
        except NotSupportedError:
            return False
        return isinstance(error, WorkerDiedError | ClosedError) or not self._run.has_native_readers

    def next_batch(self) -> Any:
        """Get the next batch.

        Where this raises, the loader stays usable as far as its input can be positioned: the next call goes on
        behind a batch that failed by itself, and at the batch that was due where the workers have failed.
        """
        run, progress = self._run, self._progress
        if run.is_lost:
            self.renew()
        while True:
            pipeline: Any = run.pipeline
            num_before = pipeline.num_delivered
            pipeline.watch.waiting_since = time.monotonic()
            try:
                return run.iterator.next_batch()  # type: ignore[union-attr]
            except FrameworkError as error:
                # Else the batch could not be converted, that is all.
                if pipeline.failure is None or not self._goes_on(error):
                    raise
            finally:
                pipeline.watch.waiting_since = None
                if pipeline.num_delivered > num_before:  # also where the batch could not be converted
                    progress.leave_pipeline()
            self.renew()

    def _goes_on(self, error: FrameworkError) -> bool:
        """Decide whether to go on without a word to the loop, and else prepare the next call."""
        if not self._can_go_on(error):
            return False
        if isinstance(error, WorkerDiedError) and self.num_restarts < self._faults.restarts:
            self.num_restarts += 1
            _logger.warning("%s Restart %d of at most %d.", error, self.num_restarts, self._faults.restarts)
            return True
        if isinstance(error, ClosedError):  # the wait for a batch was interrupted
            return True
        if not isinstance(error, WorkerDiedError):
            if self._run.resolves(error):  # samples that failed were found, and will not be tried again
                return True
            self._progress.leave_pipeline()
        self._run.is_lost = True
        return False

    def renew(self) -> None:
        """Replace the pipeline by one that goes on where the loop stands."""
        self._run.renew(self._progress.pipeline)

    def restore(self) -> None:
        """Before a new loop: replace the pipeline where it was lost."""
        run = self._run
        failure = run.pipeline.failure
        if run.is_lost or (failure is not None and self._can_go_on(failure)):
            self.renew()

    def go_to(self, position: Position) -> None:
        """Have the pipeline go on at a position. What was prepared before is thrown away, also where it fails."""
        run = self._run
        pipeline: Any = run.pipeline
        pipeline.watch.waiting_since = time.monotonic()
        try:
            run.go_to(position)
        except FrameworkError:  # of a batch that nobody has asked for
            if not self._can_go_on(run.pipeline.failure):
                raise
            run.renew(position)
        finally:
            pipeline.watch.waiting_since = None
