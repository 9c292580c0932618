# SPDX-License-Identifier: Apache-2.0
"""Numbers of a report for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ...errors import SettingError

if TYPE_CHECKING:
    from ..data_loader import DataLoader
    from .report import LoaderReport

_PREFIX = "dali_loader_"


@attrs.frozen
class Metric:
    """A metric with its values.

    Attributes:
        name: Its name; that of a counter without ``_total``.
        kind: ``"counter"`` or ``"gauge"``. Counters begin at 0 with each loop.
        text: What it is.
        values: Its values, each with its own labels.
    """

    name: str
    kind: str
    text: str
    values: tuple[tuple[Mapping[str, str], float], ...]


def metrics(report: LoaderReport) -> Iterator[Metric]:
    """Get the metrics of a report."""
    plain = [
        ("batches", "counter", "Batches delivered to the loop.", report.num_batches),
        ("samples", "counter", "Samples delivered to the loop.", report.num_samples),
        ("bytes", "counter", "Bytes that were sent to the graph.", report.num_bytes),
        ("busy_cores", "gauge", "Processor time per time, of this process and its workers.", report.cores.total),
    ]
    if report.queue is not None:
        text = "Batches loaded when one was asked for, in the mean."
        plain.append(("batches_ahead", "gauge", text, report.queue.mean))
    for name, kind, text, value in plain:
        yield Metric(_PREFIX + name, kind, text, (({}, float(value)),))
    for place, stages in (("loop", report.loop), ("worker", report.workers)):
        values = tuple(({"stage": stage.name.replace(" ", "_")}, stage.seconds) for stage in stages)
        if values:
            yield Metric(f"{_PREFIX}{place}_seconds", "counter", f"Time of the {place}, by stage.", values)


def exposition(report: LoaderReport, labels: Mapping[str, str]) -> str:
    """Write the metrics of a report in the text format of Prometheus.

    Args:
        report: The report.
        labels: Labels of all metrics, beside ``rank``.
    """
    lines = []
    for metric in metrics(report):
        full_name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        lines += [f"# HELP {full_name} {metric.text}", f"# TYPE {full_name} {metric.kind}"]
        for own, value in metric.values:
            pairs = {"rank": str(report.rank), **labels, **own}
            text = ",".join(f'{name}="{_escaped(label)}"' for name, label in pairs.items())
            lines.append(f"{full_name}{{{text}}} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class ReportCollector:
    """Gives the present report of a loader to ``prometheus_client``, whenever that is asked for its metrics.

    Example::

        from prometheus_client import REGISTRY, start_http_server

        REGISTRY.register(ReportCollector(loader, name="train"))
        start_http_server(9100)
    """

    def __init__(self, loader: DataLoader, **labels: str) -> None:
        """Set up.

        Args:
            loader: The loader.
            **labels: Labels of all metrics, beside ``rank``.

        Raises:
            SettingError: ``prometheus_client`` is not installed.
        """
        try:
            from prometheus_client import core
        except ImportError as error:
            raise SettingError(
                "A collector of metrics needs prometheus_client, which is not installed. Install it, or write "
                "`report.prometheus()`, which needs nothing, to where Prometheus reads it."
            ) from error
        self._core: Any = core
        self._loader = loader
        self._labels = labels

    def collect(self) -> Iterator[Any]:
        """Get the metrics of the present loop."""
        report = self._loader.report()
        families = {"counter": self._core.CounterMetricFamily, "gauge": self._core.GaugeMetricFamily}
        for metric in metrics(report):
            own_names = [*metric.values[0][0]]
            common = {"rank": str(report.rank), **self._labels}
            family = families[metric.kind](metric.name, metric.text, labels=[*common, *own_names])
            for own, value in metric.values:
                family.add_metric([*common.values(), *own.values()], value)
            yield family

    def describe(self) -> Iterator[Any]:
        """Nothing: what there is depends on the loop."""
        return iter(())
