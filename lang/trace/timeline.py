"""A trace as a picture: a lane a branch, a bar a phase of a call.

The picture is one SVG element without inline styles, so that a page with a strict content security
policy can show it; ``timeline_page`` wraps it in a page of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from ramet.lang.trace.chrome import facts, phases
from ramet.lang.trace.records import CallRecord, RunRecord, lane_of

MAX_TEXT_LEN = 600

_WIDTH = 1000
_LEFT = 130
_ROW = 24
_AXIS = 22
_PHASES = ("queued", "prefill", "decode", "tool")

_STYLE = """
:root { color-scheme: light dark }
body { font: 13px/1.4 system-ui, sans-serif; margin: 2rem; max-width: 1200px }
h1 { font-size: 1.2rem; margin: 0 0 .2rem }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
.grid { stroke: currentColor; stroke-opacity: .15 } .bar text { fill: #111; pointer-events: none }
.queued { fill: #d9d9d9 } .prefill { fill: #ffd27f } .decode, .gen, .select { fill: #9fd6a5 }
.tool { fill: #b9c7ff } .join { fill: #ddd } .failed rect { stroke: #d33; stroke-width: 2 }
.critical rect { stroke: #1668c7; stroke-width: 1.5 }
"""


def timeline_page(trace: RunRecord) -> str:
    """The page. All text of the run is escaped; the page loads nothing."""
    usage = trace.usage
    summary = (
        f"{trace.num_calls} calls, {usage.prompt_tokens} prompt tokens ({usage.cached_tokens} "
        f"cached), {usage.completion_tokens} output tokens, {trace.wall_s:.3f} s"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(trace.program)}'
        f"</title><style>{_STYLE}</style><h1>{escape(trace.program)}</h1><p>{summary}</p>"
        f"{timeline_svg(trace)}</html>"
    )


def timeline_svg(trace: RunRecord) -> str:
    """The picture: an SVG element, whose classes are the phases and ``failed``, ``critical``.

    Bars of calls on the critical path are marked: those without which the run would have ended
    earlier, judged by their times.
    """
    span = trace.wall_s or 1.0
    critical = critical_path(trace.calls)
    lanes: dict[str, list[str]] = {"main": []}
    rows: dict[str, list[float]] = {}
    for record in trace.calls:
        parts = phases(record)
        if not parts:
            continue
        lane = lane_of(record.node_id)
        row = _free_row(rows.setdefault(lane, []), parts[0][1], parts[-1][2])
        kind = "bar" + (" failed" if record.error else "")
        kind += " critical" if record.node_id in critical else ""
        bars = "".join(_bars(record, parts, row, span, trace.texts.get(record.node_id, "")))
        lanes.setdefault(lane, []).append(f'<g class="{kind}">{bars}</g>')
    body, top = [], _AXIS
    for lane, groups in lanes.items():
        height = _ROW * max(1, len(rows.get(lane, ())))
        body.append(
            f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{top}" y2="{top}"/>'
            f'<text x="0" y="{top + 17}">{escape(lane)}</text>'
            f'<g transform="translate(0 {top + 2})">{"".join(groups)}</g>'
        )
        top += height + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + _AXIS}" role="img" '
        f'aria-label="Timeline of {escape(trace.program)}">{_axis(span, top)}{"".join(body)}'
        f"{_legend(top)}</svg>"
    )


def critical_path(calls: list[CallRecord]) -> set[str]:
    """The nodes that the end of a run waited for, last to first: each time the call that ended last
    before the next one began."""
    ended = [each for each in calls if each.finished_s is not None and each.sent_s is not None]
    path: set[str] = set()
    limit = math.inf
    while True:
        before = [each for each in ended if (each.finished_s or 0.0) <= limit]
        before = [each for each in before if each.node_id not in path]
        if not before:
            return path
        last = max(before, key=lambda each: each.finished_s or 0.0)
        path.add(last.node_id)
        limit = last.sent_s or 0.0


def _bars(
    record: CallRecord, parts: list[tuple[str, float, float]], row: int, span: float, text: str
) -> Iterator[str]:
    """A rectangle per phase of a call, with its numbers and its text to hover; the name last."""
    known = "\n".join(f"{name}: {value}" for name, value in facts(record).items())
    x, y = float(_LEFT), row * _ROW
    for phase, begin, end in parts:
        x = _x(begin, span)
        width = max(1.5, _x(end, span) - x)
        title = escape(f"{record.name}: {phase}\n{known}\n{text[:MAX_TEXT_LEN]}")
        yield (
            f'<rect class="{phase}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="20" rx="3">'
            f"<title>{title}</title></rect>"
        )
    yield f'<text x="{x + 3:.2f}" y="{y + 15}">{escape(record.name)}</text>'


def _x(seconds: float, span: float) -> float:
    return _LEFT + (_WIDTH - _LEFT) * min(1.0, seconds / span)


def _axis(span: float, bottom: int) -> str:
    """The time axis: 4 to 10 ticks, at round numbers of seconds."""
    unit = 10.0 ** math.floor(math.log10(span))
    step = next(unit * part for part in (0.1, 0.2, 0.5, 1, 2) if span / (unit * part) <= 10)
    return '<text x="0" y="14">seconds</text>' + "".join(
        f'<line class="grid" x1="{_x(index * step, span):.2f}" x2="{_x(index * step, span):.2f}" '
        f'y1="0" y2="{bottom}"/><text x="{_x(index * step, span) + 3:.2f}" y="14">'
        f"{index * step:g}</text>"
        for index in range(int(span / step) + 1)
    )


def _legend(top: int) -> str:
    return "".join(
        f'<rect class="{phase}" x="{_LEFT + 90 * number}" y="{top + 6}" width="12" height="12"/>'
        f'<text x="{_LEFT + 90 * number + 17}" y="{top + 16}">{phase}</text>'
        for number, phase in enumerate(_PHASES)
    )


def _free_row(ends: list[float], begin: float, end: float) -> int:
    """The first row of a lane whose last bar has ended; ``ends`` holds the rows' ends."""
    for row, last in enumerate(ends):
        if last <= begin:
            ends[row] = end
            return row
    ends.append(end)
    return len(ends) - 1
