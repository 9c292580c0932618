# SPDX-License-Identifier: Apache-2.0
"""What limits the rate of a loop, and what would help."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Bottleneck, LoaderReport, Stage

_HIDDEN_BELOW = 0.1  # share of waiting that nobody needs to mind
_BUSY_FROM = 0.75  # share of their time in which workers load, above which they are what limits
_COMPUTES_FROM = 0.5  # processor time per time of loading, above which it computes rather than waits
_FULL_FROM = 0.9  # of the cores
_MOST_MORE_WORKERS = 32
_HEADROOM_FROM = 1.1


def judge(report: LoaderReport) -> tuple[Bottleneck, str]:
    """Say what limits the rate of a loop: its name, and a sentence or two."""
    if not report.loop:
        return "", "No batch has been delivered yet, beside the first one of a loop."
    if report.wait_share < _HIDDEN_BELOW:
        text = (
            f"The training loop is the bottleneck: it waits {_percent(report.wait_share)} of its time, and data "
            f"loading is hidden."
        )
        return "loop", text
    waiting = max(report.loop[1:], key=lambda stage: stage.seconds)
    start = f"The loop waits {_percent(report.wait_share)} of its time: "
    if waiting.name == "waits for workers":
        bottleneck, text = _of_workers(report, waiting)
    else:
        bottleneck, text = _of_this_process(report, waiting)
    return bottleneck, start + text + _headroom(report)


def _of_workers(report: LoaderReport, waiting: Stage) -> tuple[Bottleneck, str]:
    *stages, idle = report.workers or (None, None)
    found = [stage for stage in stages if stage is not None]
    if not found or idle is None:
        return "reading", "no worker has delivered a batch in that time. Look at a longer time."
    slowest = max(found, key=lambda stage: stage.seconds)
    if 1 - idle.share < _BUSY_FROM and report.queue is not None and len(report.worker_uses) > 1:
        return "order", (
            f"the workers, too, are idle {_percent(idle.share)} of theirs, since a few slow samples hold up the "
            f"batches that are loaded already. Make these quicker, or load more than {report.queue.depth} batches "
            f"ahead."
        )
    waits = not _computes(report)
    names: dict[str, tuple[Bottleneck, str, str]] = {
        "reading": (
            "reading",
            f"the workers read too slowly, and mostly {'wait for it' if waits else 'compute'}",
            "a local copy of the data" if waits else "a quicker get_data",
        ),
        "steps on arrays": (
            "worker steps",
            "the steps in the workers take too long",
            'cheaper steps, or run="graph"',
        ),
        "packing": ("packing", "the workers take long to put batches together", "fewer or smaller fields"),
    }
    bottleneck, what, otherwise = names[slowest.name]
    advice = _more_workers(report, found, waiting)
    return bottleneck, f"{what}. {advice}, or {otherwise}." if advice else f"{what}. {_capitalised(otherwise)}."


def _more_workers(report: LoaderReport, stages: list[Stage], waiting: Stage) -> str:
    """How many more workers would help; empty where none would."""
    num_workers = len(report.worker_uses)
    loading_ms = sum(stage.ms_per_batch for stage in stages)
    # Of a batch, without what waiting for workers costs.
    rest_ms = report.seconds * 1e3 / report.num_batches - waiting.ms_per_batch
    missing = math.ceil(loading_ms / max(rest_ms, loading_ms / _MOST_MORE_WORKERS)) - num_workers
    if _computes(report):  # each takes a core
        missing = min(missing, math.floor(report.cores.usable - report.cores.total + 0.5))
    if missing < 1:
        full = report.cores.total >= _FULL_FROM * report.cores.usable
        return f"More cores (all {report.cores.usable} are busy)" if full else ""
    if missing + num_workers >= _MOST_MORE_WORKERS:
        return "Many more workers"
    return f"{missing} more worker{'s' * (missing > 1)}"


def _computes(report: LoaderReport) -> bool:
    """Whether workers compute while they load; otherwise they wait for files or a network."""
    loading_cores = sum((use.cores or 0.0) + use.queued_share for use in report.worker_uses)
    return loading_cores > _COMPUTES_FROM * sum(use.busy_share for use in report.worker_uses)


def _of_this_process(report: LoaderReport, waiting: Stage) -> tuple[Bottleneck, str]:
    if waiting.name in ("reading", "steps on arrays", "packing"):
        names: dict[str, Bottleneck] = {"steps on arrays": "worker steps", "packing": "packing"}
        what = "steps on arrays run" if waiting.name == "steps on arrays" else "samples are loaded"
        return names.get(waiting.name, "reading"), (
            f"{what} in the process of the loop, one after the other. Load in workers: num_workers=2 or more."
        )
    if waiting.name == "conversion":
        return "conversion", (
            "making tensors of the outputs takes long. Deliver fewer fields, and give those whose samples differ "
            "in shape one shape."
        )
    if waiting.name == "post_process_func":
        return "post_process_func", "post_process_func takes long. Make it cheaper, or a step of the chain."
    if waiting.name == "handing over":
        return "input", (
            "handing fields over to the graph takes long, which one process does alone. Larger batches, or steps "
            "that touch fewer fields: the others travel together."
        )
    return "graph", _about_graph(report)


def _about_graph(report: LoaderReport) -> str:
    cores, threads = report.cores, report.num_threads
    what = "the graph is the bottleneck"
    if cores.total >= _FULL_FROM * cores.usable:
        return (
            f"{what}, and all {cores.usable} cores are busy. Cheaper or fewer steps, smaller images early in the "
            f"chain, a GPU, or more cores."
        )
    if cores.graph >= _BUSY_FROM * threads and threads < cores.usable:
        return f"{what}: its {threads} thread{'s' * (threads > 1)} are busy. Raise num_threads."
    free = cores.usable - cores.total
    if free >= 1 and report.worker_uses and max(use.busy_share for use in report.worker_uses) < _BUSY_FROM:
        return f'{what}, while workers are idle. Cheaper steps, run="workers", or larger batches.'
    return f"{what}. Cheaper or fewer steps, larger batches, or a GPU."


def _headroom(report: LoaderReport) -> str:
    per_s = report.replayed_per_s
    if per_s is None or not report.samples_per_s:
        return ""
    times = per_s / report.samples_per_s
    if times < _HEADROOM_FROM:
        return ""
    return f" Without loading, the loop makes {times:.1f} times as many samples per second."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
