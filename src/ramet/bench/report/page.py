"""Results as one self-contained HTML page with charts."""

from __future__ import annotations

from pathlib import Path

import jinja2

from ramet.bench.report.charts import (
    Interval,
    Span,
    cumulative_chart,
    ratio_chart,
    timeline_chart,
)
from ramet.bench.results import FIGURES, Results, show
from ramet.bench.targets import Outcome
from ramet.lang.base.errors import UsageError

_TEMPLATE = Path(__file__).with_name("page.html")
_RATIOS = ("output_tokens_per_s", "ttft.p50", "ttft.p99", "tpot.p50", "gaps.p99", "e2e.p50",
           "e2e.p99", "tokens_computed", "goodput")  # fmt: skip


def write_page(results: Results, path: Path, command: str) -> None:
    """Writes the page.

    Args:
        command: the command that ran, for the subtitle.

    Raises:
        UsageError: the file can't be written.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    first = results.repeats[0][0]
    page = template.render(
        title=f"{first.workload}: {first.requests} requests, {len(results.repeats)} runs",
        subtitle=command,
        targets=results.targets,
        rows=_rows(results),
        errors=[
            f"{each.target}: {each.first_error}"
            for row in results.repeats
            for each in row
            if each.first_error is not None
        ],
        charts=_charts(results),
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}") from None


def _rows(results: Results) -> list[list[str]]:
    rows = []
    for figure in FIGURES:
        medians = [results.median(figure, place) for place in range(len(results.targets))]
        if all(each is None for each in medians):
            continue
        row = [figure.title, *(show(figure, each) for each in medians)]
        if len(medians) == 2:
            ratio = results.ratio(figure)
            words = ratio.in_words(figure) if ratio else ""
            row += [words, f"{ratio.least:.2f} to {ratio.most:.2f}" if ratio and words else ""]
        rows.append(row)
    return rows


def _charts(results: Results) -> list[str]:
    good = [[each for each in run.outcomes if each.error is None] for run in results.last_runs]
    charts = [
        cumulative_chart(
            "Time to first token", [[each.ttft_s for each in outcomes] for outcomes in good]
        ),
        cumulative_chart(
            "Gap between two events of a stream",
            [[gap for each in outcomes for gap in each.gaps_s] for outcomes in good],
        ),
        cumulative_chart(
            "Time of a whole request", [[each.total_s for each in outcomes] for outcomes in good]
        ),
    ]
    if len(good) == 2:
        charts.append(ratio_chart("A over B, with the range over the runs", _intervals(results)))
    timelines = (
        timeline_chart(f"Requests: {run.target}", list(map(_span, run.outcomes)))
        for run in results.last_runs
    )
    return [*charts, *timelines]


def _intervals(results: Results) -> list[Interval]:
    found = []
    for figure in FIGURES:
        ratio = results.ratio(figure) if figure.path in _RATIOS else None
        if ratio is not None and ratio.least > 0:
            found.append(Interval(figure.title, *ratio))
    return found


def _span(outcome: Outcome) -> Span:
    start = outcome.sent_s
    return Span(start, start + outcome.ttft_s, start + outcome.total_s, outcome.error is not None)
