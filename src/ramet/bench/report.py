"""Summaries and ratios as tables."""

from __future__ import annotations

import json
import statistics

import rich
from rich.table import Table

from ramet.bench.runner import Summary, median_ratio

Runs = dict[str, list[list[Summary]]]
"""Scenario → repeats → one summary a target."""

_COLUMNS = {
    "output_tok_s": "out tok/s",
    "ttft_p50_s": "TTFT p50 s",
    "ttft_p95_s": "p95",
    "tpot_p50_s": "TPOT p50 s",
    "e2e_p50_s": "end p50 s",
    "e2e_p99_s": "p99",
    "tokens_computed": "computed",
    "tokens_distinct": "distinct",
    "tokens_cached": "cached",
    "errors": "errors",
}
_RATIOS = ("output_tok_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "tokens_computed")


def print_summaries(runs: Runs) -> None:
    """A row a scenario and target: the median of each figure over the repeats."""
    table = Table(title="medians over the repeats")
    for column in ("scenario", "target", *_COLUMNS.values()):
        table.add_column(column, justify="right")
    for scenario, repeats in runs.items():
        for summaries in zip(*repeats, strict=True):
            figures = (statistics.median(getattr(s, name) for s in summaries) for name in _COLUMNS)
            table.add_row(scenario, summaries[0].target, *(f"{figure:.4g}" for figure in figures))
    rich.print(table)
    for repeats in runs.values():
        for summary in (summary for row in repeats for summary in row):
            if summary.first_error is not None:
                rich.print(f"{summary.target} {summary.scenario}: {summary.first_error}")


def print_ratios(runs: Runs, *, as_json: bool) -> None:
    """The first target's figures over the second's, as medians of the repeats' own ratios."""
    ratios = {
        scenario: {
            name: median_ratio([row[0] for row in rows], [row[1] for row in rows], name)
            for name in _RATIOS
        }
        for scenario, rows in runs.items()
    }
    if as_json:
        print(json.dumps({"ratios": ratios}))
        return
    table = Table(title="ratios, first target to second")
    for column in ("scenario", *_RATIOS):
        table.add_column(column, justify="right")
    for scenario, row in ratios.items():
        table.add_row(scenario, *(f"{ratio:.2f}" for ratio in row.values()))
    rich.print(table)
