"""All runs of a bench: the repeats of one workload against one or two targets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ramet.bench.runner import WorkloadRun
from ramet.bench.service_levels import ServiceLevels
from ramet.bench.summary import Summary, summarise


class Figure(NamedTuple):
    """A figure of a summary, as reports show it.

    Attributes:
        path: where it is in a ``Summary``.
        title: its name.
        unit: ``ms`` for times, ``%`` for shares, empty for counts.
        better: words for a target with more of it and one with less; None: neither is better.
    """

    path: str
    title: str
    unit: str = ""
    better: tuple[str, str] | None = None


_TIME = ("slower", "faster")

FIGURES: tuple[Figure, ...] = (
    Figure("output_tokens_per_s", "output tokens/s", "", ("faster", "slower")),
    Figure("input_tokens_per_s", "input tokens/s", "", ("faster", "slower")),
    Figure("requests_per_s", "requests/s", "", ("faster", "slower")),
    Figure("goodput", "goodput, requests/s", "", ("better", "worse")),
    Figure("ttft.mean", "first token, mean", "ms", _TIME),
    Figure("ttft.p50", "first token, p50", "ms", _TIME),
    Figure("ttft.p90", "first token, p90", "ms", _TIME),
    Figure("ttft.p99", "first token, p99", "ms", _TIME),
    Figure("tpot.mean", "per later token, mean", "ms", _TIME),
    Figure("tpot.p50", "per later token, p50", "ms", _TIME),
    Figure("tpot.p90", "per later token, p90", "ms", _TIME),
    Figure("tpot.p99", "per later token, p99", "ms", _TIME),
    Figure("gaps.p50", "gap of events, p50", "ms", _TIME),
    Figure("gaps.p90", "gap of events, p90", "ms", _TIME),
    Figure("gaps.p99", "gap of events, p99", "ms", _TIME),
    Figure("e2e.mean", "whole request, mean", "ms", _TIME),
    Figure("e2e.p50", "whole request, p50", "ms", _TIME),
    Figure("e2e.p90", "whole request, p90", "ms", _TIME),
    Figure("e2e.p99", "whole request, p99", "ms", _TIME),
    Figure("output_tokens", "output tokens"),
    Figure("prompt_tokens", "prompt tokens"),
    Figure("tokens_computed", "prompt computed", "", ("more", "fewer")),
    Figure("tokens_least", "least to compute"),
    Figure("hit_rate", "cache hit rate", "%"),
    Figure("valid", "valid outputs", "%"),
    Figure("usd_per_million", "$ a million tokens", "", ("dearer", "cheaper")),
    Figure("errors", "errors"),
)


class Ratio(NamedTuple):
    """The ratio of one target's figure to another's: the median over repeats, and their range."""

    median: float
    least: float
    most: float

    def in_words(self, figure: Figure) -> str:
        """``1.15x faster``: how the first target compares with the second."""
        if figure.better is None:
            return ""
        more, less = figure.better
        if 0.995 <= self.median <= 1.005:
            return "same"
        if self.median > 1:
            return f"{_factor(self.median)} {more}"
        return f"{_factor(1 / self.median)} {less}" if self.median else ""


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


@dataclass(slots=True)
class Results:
    """The runs of one workload.

    Attributes:
        repeats: a list per repeat, with one summary per target.
        last_runs: the runs of the last repeat, one per target.
    """

    levels: ServiceLevels | None = None
    price_per_hour: float | None = None
    repeats: list[list[Summary]] = field(default_factory=list)
    last_runs: list[WorkloadRun] = field(default_factory=list)

    def add(self, runs: Sequence[WorkloadRun]) -> list[Summary]:
        """Adds a repeat; its summaries."""
        row = [
            summarise(
                run.workload, run.target, run.outcomes, run.wall_s, self.levels, self.price_per_hour
            )
            for run in runs
        ]
        self.repeats.append(row)
        self.last_runs = list(runs)
        return row

    @property
    def targets(self) -> list[str]:
        return [summary.target for summary in self.repeats[0]]

    @property
    def has_errors(self) -> bool:
        return any(summary.errors for row in self.repeats for summary in row)

    def median(self, figure: Figure, target: int) -> float | None:
        """The median over repeats of a target's figure; None where there is none."""
        values = [
            value for row in self.repeats if (value := row[target].figure(figure.path)) is not None
        ]
        return statistics.median(values) if values else None

    def ratio(self, figure: Figure) -> Ratio | None:
        """The first target's figure over the second's, repeat by repeat; None if undefined."""
        ratios = []
        for first, second in self.repeats:
            ours, theirs = first.figure(figure.path), second.figure(figure.path)
            if ours is not None and theirs:
                ratios.append(ours / theirs)
        if not ratios:
            return None
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def show(figure: Figure, value: float | None) -> str:
    """A figure's value as people read it."""
    if value is None:
        return "–"
    if figure.unit == "%":
        return f"{value:.1%}"
    if figure.unit == "ms":
        value *= 1000
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}" + (" ms" if figure.unit == "ms" else "")
    return f"{value:.3g}" + (" ms" if figure.unit == "ms" else "")
