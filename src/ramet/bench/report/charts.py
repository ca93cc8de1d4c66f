"""Charts as SVG elements. Colours and fonts are the page's, by CSS class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 640
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 36
_CHART_HEIGHT = 240
_MAX_POINTS = 200


class Axis(NamedTuple):
    """A linear axis from ``low`` to ``high``, drawn from ``start`` to ``end`` pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low or 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values, about as many as asked for."""
        step = _round_step((self.high - self.low or 1.0) / about)
        first = math.ceil(self.low / step) * step
        count = int((self.high - first) / step + 1e-9) + 1
        return [first + step * number for number in range(count)]


def _round_step(step: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= step * 0.999)


def cumulative_chart(
    title: str, series: Sequence[Sequence[float]], unit: str = "s", height: int = _CHART_HEIGHT
) -> str:
    """The share of values up to each value, one curve per series."""
    high = max((max(values, default=0.0) for values in series), default=0.0) or 1.0
    x = Axis(0.0, high, _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, 1.0, height - _BOTTOM, _TOP)
    curves = []
    for number, values in enumerate(series):
        ordered = sorted(values)
        if not ordered:
            continue
        places = range(0, len(ordered), max(1, len(ordered) // _MAX_POINTS))
        points = [(0.0, 0.0), *((ordered[place], place / len(ordered)) for place in places)]
        points.append((ordered[-1], 1.0))
        path = " ".join(f"{x(value):.1f},{y(share):.1f}" for value, share in points)
        curves.append(f'<polyline class="line s{number}" points="{path}"/>')
    frame = _frame(x, y, height, unit, lambda share: f"{share:.0%}")
    return _figure(title, height, frame + "".join(curves))


class Span(NamedTuple):
    """A request in time, in seconds: sent, first output, end."""

    sent: float
    first: float
    end: float
    has_failed: bool = False


def timeline_chart(title: str, spans: Sequence[Span], limit: int = 120) -> str:
    """A bar per request in order of sending: waiting and prefill, then decoding."""
    shown = sorted(spans)[:limit]
    row = 5 if len(shown) > 40 else 10
    height = _TOP + _BOTTOM + row * max(1, len(shown))
    high = max((span.end for span in shown), default=0.0) or 1.0
    x = Axis(0.0, high, _LEFT, WIDTH - _RIGHT)
    bars = []
    for number, span in enumerate(shown):
        top = _TOP + number * row
        parts = [("wait", span.sent, span.first), ("decode", span.first, span.end)]
        if span.has_failed:
            parts = [("failed", span.sent, span.end)]
        for name, start, end in parts:
            width = max(0.5, x(end) - x(start))
            bars.append(
                f'<rect class="{name}" x="{x(start):.1f}" y="{top}" width="{width:.1f}" '
                f'height="{row - 1}"/>'
            )
    y = Axis(0, len(shown), _TOP, height - _BOTTOM)
    frame = _frame(x, y, height, "s", lambda number: f"{number:.0f}")
    left_out = f", the first {limit} of {len(spans)}" if len(spans) > limit else ""
    return _figure(title + left_out, height, frame + "".join(bars))


class Interval(NamedTuple):
    """A ratio with its range over repeats."""

    name: str
    median: float
    least: float
    most: float


def ratio_chart(title: str, intervals: Sequence[Interval]) -> str:
    """Ratios as points with ranges, on a logarithmic axis with a line at 1."""
    left, row = 190, 24
    height = _TOP + _BOTTOM + row * len(intervals)
    bounds = [math.log2(each) for every in intervals for each in every[1:] if each > 0]
    reach = max([1.0, *(abs(each) for each in bounds)]) * 1.05
    x = Axis(-reach, reach, left, WIDTH - _RIGHT)
    parts = []
    for number, each in enumerate(intervals):
        middle = _TOP + number * row + row / 2
        median, least, most = (x(math.log2(max(value, 2**-reach))) for value in each[1:])
        parts.append(
            f'<text class="label" x="{left - 10}" y="{middle + 4:.1f}" text-anchor="end">'
            f"{escape(each.name)}</text>"
            f'<line class="range" x1="{least:.1f}" x2="{most:.1f}" y1="{middle}" y2="{middle}"/>'
            f'<circle class="point" cx="{median:.1f}" cy="{middle}" r="4">'
            f"<title>{each.median:.3g} ({each.least:.3g} to {each.most:.3g})</title></circle>"
        )
    bottom = height - _BOTTOM
    for power in range(math.ceil(-reach), math.floor(reach) + 1, max(1, round(reach / 4))):
        label = f"{2**power:g}"
        parts.append(
            f'<line class="{"one" if power == 0 else "grid"}" x1="{x(power):.1f}" '
            f'x2="{x(power):.1f}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text class="tick" x="{x(power):.1f}" y="{bottom + 16}" text-anchor="middle">'
            f"{label}</text>"
        )
    return _figure(title, height, "".join(parts))


def _frame(x: Axis, y: Axis, height: int, unit: str, label: Callable[[float], str]) -> str:
    """Grid lines and labels of both axes."""
    parts = []
    for value in x.ticks():
        at = f"{x(value):.1f}"
        parts.append(
            f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{height - _BOTTOM}"/>'
            f'<text class="tick" x="{at}" y="{height - _BOTTOM + 16}" text-anchor="middle">'
            f"{value:.4g}</text>"
        )
    for value in y.ticks(4):
        at = f"{y(value):.1f}"
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
            f'<text class="tick" x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{label(value)}</text>"
        )
    parts.append(
        f'<text class="tick" x="{WIDTH - _RIGHT}" y="{height - 4}" text-anchor="end">'
        f"{escape(unit)}</text>"
    )
    return "".join(parts)


def _figure(title: str, height: int, content: str) -> str:
    name = escape(title)
    return (
        f"<figure><figcaption>{name}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">{content}</svg>'
        "</figure>"
    )
