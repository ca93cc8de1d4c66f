"""Summaries and ratios, for people or as JSON."""

from __future__ import annotations

import json
import statistics

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ramet.bench.runner import Summary, median_ratio

Runs = dict[str, list[list[Summary]]]
"""Scenario → repeats → one summary per target."""

_FIGURES = {
    "output_tok_s": "output tokens/s",
    "ttft_p50_s": "first token, p50, s",
    "ttft_p95_s": "p95",
    "tpot_p50_s": "each later one, p50, s",
    "tpot_p95_s": "p95",
    "e2e_p50_s": "end to end, p50, s",
    "e2e_p95_s": "p95",
    "e2e_p99_s": "p99",
    "output_tokens": "output tokens",
    "tokens_computed": "prompt computed",
    "tokens_distinct": "least to compute",
    "tokens_cached": "prompt cached",
    "errors": "errors",
}
_RATIOS = ("output_tok_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "tokens_computed")


def print_report(runs: Runs) -> None:
    """Prints a table per scenario: medians over the repeats for each target, and their ratios."""
    console = Console()
    for scenario, repeats in runs.items():
        names = [summary.target for summary in repeats[0]]
        table = Table(title=f"{scenario}, medians of {len(repeats)}")
        table.add_column("")
        for name in names:
            table.add_column(escape(name), justify="right", overflow="fold")
        if len(names) > 1:
            table.add_column("ratio", justify="right")
        ratios = _ratios(repeats) if len(names) > 1 else {}
        for figure, title in _FIGURES.items():
            medians = (
                statistics.median(getattr(row[place], figure) for row in repeats)
                for place in range(len(names))
            )
            ratio = ratios.get(figure)
            last = [] if len(names) == 1 else ["" if ratio is None else f"{ratio:.2f}"]
            table.add_row(title, *(f"{median:.4g}" for median in medians), *last)
        console.print(table)
        for summary in (summary for row in repeats for summary in row):
            if summary.first_error is not None:
                console.print(escape(f"{summary.target} {scenario}: {summary.first_error}"))


def print_ratios(runs: Runs) -> None:
    """Prints the ratios of the first target to the second as JSON; null: undefined."""
    ratios = {scenario: _ratios(repeats) for scenario, repeats in runs.items()}
    print(json.dumps({"ratios": ratios}, allow_nan=False))


def _ratios(repeats: list[list[Summary]]) -> dict[str, float | None]:
    """Medians of the ratios of each repeat."""
    ours, theirs = ([row[place] for row in repeats] for place in (0, 1))
    return {figure: median_ratio(ours, theirs, figure) for figure in _RATIOS}
