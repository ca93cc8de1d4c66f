"""Prometheus metrics without a dependency: counters, gauges, histograms, text exposition 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/

Nothing here is global: each server has its own ``Registry``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""A suffix of the metric's name, its labels, its value."""


class Metric:
    """A named series with a help text; ``samples`` yields its values."""

    kind = "untyped"

    def __init__(self, name: str, help_text: str) -> None:
        self.name = name
        self.help = help_text

    def samples(self) -> Iterable[Sample]:
        raise NotImplementedError


class Counter(Metric):
    """A number that only grows, one a set of labels."""

    kind = "counter"

    def __init__(self, name: str, help_text: str) -> None:
        super().__init__(name, help_text)
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Adds ``amount``, at least 0."""
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0.0) + amount

    def samples(self) -> Iterable[Sample]:
        return [("", labels, value) for labels, value in self._values.items()]


class Value(Metric):
    """A gauge or counter as it was when it was read."""

    def __init__(self, name: str, kind: str, help_text: str, value: float) -> None:
        super().__init__(name, help_text)
        self.kind = kind
        self._value = value

    def samples(self) -> Iterable[Sample]:
        return [("", (), self._value)]


class Histogram(Metric):
    """Counts of observations up to each bound, their sum and number."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        super().__init__(name, help_text)
        self._bounds = [*bounds, math.inf]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Adds one observation."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self) -> Iterable[Sample]:
        total = 0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            yield "_bucket", (("le", _number(bound)),), total
        yield "_sum", (), self._sum
        yield "_count", (), total


M = TypeVar("M", bound=Metric)


class Registry:
    """Metrics in the order they were added, with labels that all of them carry."""

    def __init__(self, **labels: str) -> None:
        self._labels: Labels = tuple(labels.items())
        self._metrics: list[Metric] = []

    def add(self, metric: M) -> M:
        """Keeps ``metric`` and hands it back."""
        self._metrics.append(metric)
        return metric

    def render(self, readings: Iterable[Metric] = ()) -> str:
        """Every metric, and some readings, in the text exposition format."""
        lines = []
        for metric in (*readings, *self._metrics):
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for suffix, labels, value in metric.samples():
                pairs = ",".join(f'{k}="{_escape(v)}"' for k, v in (*self._labels, *labels))
                lines.append(f"{metric.name}{suffix}{{{pairs}}} {_number(value)}")
        return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
