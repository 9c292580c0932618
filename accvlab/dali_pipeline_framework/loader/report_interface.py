# SPDX-License-Identifier: Apache-2.0
"""What a loader tells about the time that its loops take."""

from __future__ import annotations

import copy
import itertools
import time
from abc import ABC
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ..checks import whole_number
from ..errors import ClosedError, SettingError
from .loop_times import LoopTimes, make_report
from .report import LoaderReport

if TYPE_CHECKING:
    from .data_loader import DataLoader
    from .loop import Loop

# Reading clocks of processes and threads takes microseconds, so it is not done for each batch.


_PROGRESS_INTERVAL_S = 0.5


class ReportInterface(ABC):
    """Methods of a loader that tell where the time goes."""

    _times: LoopTimes

    def report(self, since: LoaderReport | None = None) -> LoaderReport:
        """Tell where the time of the loop goes: of the running one, or of the last one.

        It changes nothing, so several parts of a program can ask. The first batch of a loop does not count.

        Args:
            since: An earlier report. Where it is of the same loop, only what came after it counts.
        """
        loader = cast("DataLoader", self)
        pipeline = loader._run.pipeline
        return make_report(self._times, since, pipeline.depth, pipeline.num_threads, loader.shard.shard_id)

    def replayed(self, num_batches: int, num_kept: int = 1) -> Iterator[Any]:
        """Get the next few batches again and again, to find out how quick a loop is that never waits.

        A loop over them is measured, and later reports tell its samples per second. The loader stays where it
        stands; only inputs without random access (iterables, native readers) lose the batches that are taken.

        Args:
            num_batches: How many batches to deliver.
            num_kept: How many different batches to take from the loader. They are the same objects each time, so
                a loop that changes them in place changes them for the next time, too.

        Raises:
            SettingError: A number is less than 1, or an epoch has no batch.
            ClosedError: A loop over the loader is running.
        """
        num_batches = whole_number(num_batches, "num_batches", at_least=1)
        num_kept = whole_number(num_kept, "num_kept", at_least=1)
        loader = cast("DataLoader", self)
        if loader._is_running:
            raise ClosedError(
                "A loop over the loader is running. Replay batches before it, or after it has ended."
            )
        batches = _peek(loader, num_kept)
        if not batches:
            raise SettingError("There is nothing to replay: the loader delivers no batch.")
        return self._replay(batches, num_batches)

    def _replay(self, batches: list[Any], num_batches: int) -> Iterator[Any]:
        num_samples, began_s = 0, 0.0
        for number, batch in enumerate(itertools.islice(itertools.cycle(batches), num_batches)):
            if number == 1:  # the loop has warmed up
                began_s = time.perf_counter()
            elif number > 1:
                num_samples += cast("DataLoader", self).batch_size
                self._times.replayed_per_s = num_samples / (time.perf_counter() - began_s)
            yield batch

    def progress(self, **settings: Any) -> Iterator[Any]:
        """Run a loop with a bar of tqdm that shows the rate, and how long the loop waits.

        Args:
            **settings: Settings of ``tqdm.auto.tqdm``, e.g. ``desc``.

        Raises:
            SettingError: tqdm is not installed.
        """
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise SettingError(
                "A bar of the progress needs tqdm, which is not installed. Install the extra `progress`."
            ) from error
        loader = cast("DataLoader", self)
        batches = iter(loader)
        try:
            total: int | None = len(loader)
        except TypeError:
            total = None
        return self._with_bar(
            batches, tqdm(**{"total": total, "unit": "batch", "dynamic_ncols": True, **settings})
        )

    def _with_bar(self, batches: Iterator[Any], bar: Any) -> Iterator[Any]:
        last: LoaderReport | None = None
        shown_at = time.perf_counter()
        with bar:
            for batch in batches:
                yield batch
                bar.update()
                now = time.perf_counter()
                if now - shown_at < _PROGRESS_INTERVAL_S:
                    continue
                shown_at = now
                report = self.report(since=last)
                if report.num_batches:
                    bar.set_postfix_str(
                        f"{report.samples_per_s:.1f} samples/s, waits {100 * report.wait_share:.0f} %",
                        refresh=False,
                    )
                    last = report


def _peek(loader: DataLoader, num_batches: int) -> list[Any]:
    """Take the next few batches, and have the loader go on as if it had not, where its input can be told to."""
    progress = loader._progress
    before = copy.copy(progress)
    batches: list[Any] = []
    is_on, loader._ledger.is_on = loader._ledger.is_on, False  # the loop is yet to receive them
    try:
        loop = cast("Loop", iter(loader))
        while len(batches) < num_batches:
            batches.append(loader._next(loop))
            progress.delivered = progress.pipeline
    except StopIteration:
        pass
    finally:
        loader._ledger.is_on = is_on
    loop.has_ended = True
    loader._leave_accelerate()
    if loader._bound.is_callable and not loader._bound.parts.native:
        progress.go_back(before)
    return batches
