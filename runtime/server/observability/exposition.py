"""Renders metrics in Prometheus' text format, by prometheus_client and without its global registry.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "reading", "render_metrics"]


def reading(name: str, kind: str, help_text: str, value: float) -> Metric:
    """A gauge or counter with the value that was just read."""
    metric = Metric(name.removesuffix("_total") if kind == "counter" else name, help_text, kind)
    metric.add_sample(name, {}, value)
    return metric


def render_metrics(
    registry: CollectorRegistry, readings: Iterable[Metric], labels: Mapping[str, str]
) -> bytes:
    """Renders readings and a registry; every series gets ``labels``."""
    return generate_latest(_Scrape(chain(readings, registry.collect()), labels))


class _Scrape(Collector):
    """Metrics with common labels, without the ``_created`` series of OpenMetrics."""

    def __init__(self, metrics: Iterable[Metric], labels: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            metric.samples = [
                sample._replace(labels={**self._labels, **sample.labels})
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            yield metric
