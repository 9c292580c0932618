"""Loaders with workers, what disturbs them, and how what they deliver differs from an undisturbed one."""

from __future__ import annotations

import difflib
import functools
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from support.fault_providers import ImageProvider, JpegProvider
from support.loaders import frozen
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, ImageDecoder
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.processing_steps import HorizontalFlipper

DETECTED_WITHIN_S = 5.0  # where nothing else runs, as for the table of the docs
AT_THE_LATEST_S = 60.0  # however slow the machine is; less than limits that would end what is not detected
STEPS = [ImageDecoder("image", use_device_mixed=True), HorizontalFlipper("image", prob=0.5)]
_MOST_ERRORS = 10


def loader_of(provider: Any, **arguments: Any) -> DataLoader:
    run = "graph" if isinstance(provider, JpegProvider) else "auto"
    arguments = {"num_workers": 2, "start_method": "fork", "shuffle": True, "seed": 5, "run": run, **arguments}
    return DataLoader(provider, 4, **{"steps": STEPS, "num_threads": 1, "output_type": "numpy", **arguments})


def stream(loader: DataLoader, num_epochs: int = 2) -> list[Any]:
    with loader:
        return [frozen(batch) for _ in range(num_epochs) for batch in loader]


@attrs.frozen
class Disturbance:
    """What was seen of a fault.

    Attributes:
        outcome: What was told about it: errors, restarts, samples that have failed.
        delivered: How many of the samples that were due have come, in place and bit for bit.
        found_s: Seconds from the fault until it was told.
        next_s: Seconds from the fault until the next batch was there.
    """

    outcome: str
    delivered: str = ""
    found_s: float | None = None
    next_s: float | None = None


Sample = tuple[int, bytes]


def samples_of(batch: Any) -> list[Sample]:
    """The samples of a batch: their indices, and the bytes of their images."""
    pairs = zip(batch["index"].tolist(), batch["image"], strict=True)
    return [(index, image.tobytes()) for index, image in pairs]


@functools.cache
def undisturbed(kind: type, num_samples: int = 40) -> list[list[Sample]]:
    """The batches of two epochs."""
    provider = JpegProvider(Path()) if kind is JpegProvider else ImageProvider(num_samples)
    with loader_of(provider, num_workers=0) as loader:
        return [samples_of(batch) for _ in range(2) for batch in loader]


def told(received: list[list[Sample]], due: list[list[Sample]]) -> str:
    """How many of the samples that are due were received, and how many others."""
    num_due, num_received = sum(map(len, due)), sum(map(len, received))
    if [*map(len, received)] == [*map(len, due)]:  # each has its place
        pairs = zip(received, due, strict=True)
        num_same = sum(mine == other for batches in pairs for mine, other in zip(*batches, strict=True))
    else:  # some are missing; the others follow each other as they should
        flat = [[sample for batch in batches for sample in batch] for batches in (received, due)]
        matcher = difflib.SequenceMatcher(None, *flat, autojunk=False)
        num_same = sum(block.size for block in matcher.get_matching_blocks())
    num_other = num_received - num_same
    return f"{num_same} of {num_due}" + (f", {num_other} other" if num_other else "")


_CAUSES = (
    "has ended two workers",
    "stood still",
    "memory ran out, which the kernel has counted",
    r"SIG[A-Z]+",
    r"exited with code \d+",
    r"failed with \w+",
    r"nvImageCodec failure",
)


def cause_of(message: str) -> str:
    """The words in a message that name the cause, and the sample."""
    cause = next(found.group() for pattern in _CAUSES if (found := re.search(pattern, message)))
    sample = re.search(r"[Ss]ample (\d+)", message)
    return f"{cause}, sample {sample.group(1)}" if sample else cause


class _Warnings(logging.Handler):
    """Keeps when the loader has told that it goes on, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.created, f"restart ({cause_of(record.getMessage())})"))


def disturb(
    folder: Path,
    provider: ImageProvider,
    faults: FaultPolicy,
    *,
    measured: int = 0,
    from_outside: Callable[[int], None] | None = None,
    **arguments: Any,
) -> Disturbance:
    """Run two epochs with a provider that notes its faults in a folder, and go on behind each error.

    Args:
        folder: The folder.
        provider: The provider.
        faults: The policy.
        measured: Number of the fault whose times are measured.
        from_outside: Called for each worker behind the first batch.
        arguments: Further arguments of the loader.
    """
    due = undisturbed(type(provider))
    warnings = _Warnings()
    logger = logging.getLogger("accvlab.dali_pipeline_framework.workers.pool.supervisor")
    logger.addHandler(warnings)
    found = warnings.found
    received: list[list[Sample]] = []
    times = []
    num_failed = 0
    try:
        with loader_of(provider, faults=faults, **arguments) as loader:
            for _ in range(2):
                loop = iter(loader)
                while True:
                    try:
                        batch = next(loop)
                    except StopIteration:
                        break
                    except FrameworkError as error:
                        name = type(error).__name__.partition("[")[0]
                        found.append((time.time(), f"`{name}` ({cause_of(str(error))})"))
                        if len(found) > _MOST_ERRORS:
                            raise
                        continue
                    now = time.time()
                    received.append(samples_of(batch))
                    times.append(now)
                    failed = [sample for sample in loader.failed_samples if sample.outcome != "raised"]
                    found += [
                        (now, f"sample {sample.sample_index}: {sample.outcome}") for sample in failed[num_failed:]
                    ]
                    num_failed = len(failed)
                    if from_outside is not None and len(received) == 1:
                        time.sleep(0.2)  # they have loaded ahead what they may
                        (folder / "from_outside").write_text(f"{os.getpid()} {time.time()}")
                        for pid in worker_pids():
                            from_outside(pid)
    finally:
        logger.removeHandler(warnings)
    noted = sorted(float(note.read_text().split()[1]) for note in folder.iterdir())
    since, told_at = noted[measured], found[measured][0]
    return Disturbance(
        "; ".join(text for _, text in found),
        told(received, due),
        told_at - since,
        min(when for when in times if when >= told_at) - since,
    )
