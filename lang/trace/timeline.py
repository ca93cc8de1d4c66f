"""A trace as a self-contained HTML page: a lane a branch, a bar a phase of a call."""

from __future__ import annotations

import math
from html import escape

from ramet.lang.trace.chrome import facts, phases
from ramet.lang.trace.records import RunRecord, lane_of

MAX_TEXT_LEN = 600

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 15%, transparent) }
body { font: 13px/1.4 system-ui, sans-serif; margin: 2rem }
h1 { font-size: 1.2rem; margin: 0 0 .2rem }
.lane { display: flex; border-top: 1px solid var(--line); min-height: 30px }
.lane > b { flex: 0 0 110px; padding: 5px 0; font-weight: 500 }
.track { position: relative; flex: 1; margin: 4px 0 }
.bar { position: absolute; height: 20px; min-width: 2px; border-radius: 3px; overflow: hidden;
  white-space: nowrap; font-size: 11px; line-height: 20px; padding: 0 3px; box-sizing: border-box;
  color: #111 }
.queued { background: #d9d9d9 } .prefill { background: #ffd27f } .decode { background: #9fd6a5 }
.gen, .select { background: #9fd6a5 } .tool { background: #b9c7ff } .join { background: #ddd }
.tick { position: absolute; border-left: 1px solid var(--line); padding-left: 3px }
.failed { outline: 2px solid #d33 }
.legend span { display: inline-block; padding: 0 .5em; margin-right: .5em; border-radius: 3px;
  color: #111 }
"""


def timeline(trace: RunRecord) -> str:
    """The page. All text of the run is escaped; the page loads nothing."""
    lanes: dict[str, list[str]] = {"main": []}
    span = trace.wall_s or 1.0
    rows: dict[str, list[float]] = {}
    heights: dict[str, int] = {}
    for record in trace.calls:
        parts = phases(record)
        if not parts:
            continue
        lane = lane_of(record.node_id)
        row = _free_row(rows.setdefault(lane, []), parts[0][1], parts[-1][2])
        heights[lane] = max(heights.get(lane, 0), row + 1)
        title = "\n".join(f"{name}: {value}" for name, value in facts(record).items())
        text = trace.texts.get(record.node_id, "")[:MAX_TEXT_LEN]
        failed = " failed" if record.error else ""
        for index, (phase, begin, end) in enumerate(parts):
            left, width = 100 * begin / span, 100 * (end - begin) / span
            label = escape(record.name) if index == len(parts) - 1 else ""
            lanes.setdefault(lane, []).append(
                f'<div class="bar {phase}{failed}" style="left:{left:.3f}%;width:{width:.3f}%;'
                f'top:{24 * row}px" title="{escape(f"{record.name}: {phase}")}\n{escape(title)}\n'
                f'{escape(text)}">{label}</div>'
            )
    body = "".join(
        f'<div class="lane"><b>{escape(lane)}</b>'
        f'<div class="track" style="height:{24 * heights.get(lane, 1)}px">{"".join(bars)}</div>'
        "</div>"
        for lane, bars in lanes.items()
    )
    body = f'<div class="lane"><b>seconds</b><div class="track">{_axis(span)}</div></div>{body}'
    usage = trace.usage
    summary = (
        f"{trace.num_calls} calls, {usage.prompt_tokens} prompt tokens ({usage.cached_tokens} "
        f"cached), {usage.completion_tokens} output tokens, {trace.wall_s:.3f} s"
    )
    legend = "".join(
        f'<span class="{name}">{name}</span>' for name in ("queued", "prefill", "decode", "tool")
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(trace.program)}'
        f"</title><style>{_STYLE}</style><h1>{escape(trace.program)}</h1><p>{summary}</p>"
        f'<p class="legend">{legend}</p>{body}</html>'
    )


def _axis(span: float) -> str:
    """The ticks of the time axis: 4 to 10 of them, at round numbers of seconds."""
    unit = 10.0 ** math.floor(math.log10(span))
    step = next(unit * part for part in (0.1, 0.2, 0.5, 1, 2) if span / (unit * part) <= 10)
    return "".join(
        f'<span class="tick" style="left:{100 * index * step / span:.3f}%">{index * step:g}</span>'
        for index in range(int(span / step) + 1)
    )


def _free_row(ends: list[float], begin: float, end: float) -> int:
    """The first row of a lane whose last bar has ended; ``ends`` holds the rows' ends."""
    for row, last in enumerate(ends):
        if last <= begin:
            ends[row] = end
            return row
    ends.append(end)
    return len(ends) - 1
