"""Results as a table in the terminal, and as JSON."""

from __future__ import annotations

import json

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ramet.bench.results import FIGURES, Results, show

_LABELS = "AB"


def print_table(results: Results) -> None:
    """Prints the medians over the repeats and, of two targets, how the first compares."""
    console = Console()
    targets = results.targets
    first = results.repeats[0][0]
    both = len(targets) == 2
    table = Table(
        title=f"{first.workload}: {first.requests} requests, medians of {len(results.repeats)} runs"
    )
    table.add_column("")
    for label, name in zip(_LABELS, targets, strict=False):
        table.add_column(label if both else escape(name), justify="right", overflow="fold")
    if both:
        table.add_column("A is", justify="right")
        table.add_column("range of A/B", justify="right")
    for figure in FIGURES:
        medians = [results.median(figure, place) for place in range(len(targets))]
        if all(each is None for each in medians):
            continue
        cells = [show(figure, each) for each in medians]
        if both:
            ratio = results.ratio(figure)
            words = ratio.in_words(figure) if ratio else ""
            cells.append(words)
            cells.append(f"{ratio.least:.2f} to {ratio.most:.2f}" if ratio and words else "")
        table.add_row(figure.title, *cells)
    console.print(table)
    if both:
        for label, name in zip(_LABELS, targets, strict=True):
            console.print(f"{label} = {escape(name)}", soft_wrap=True)
    if results.levels is not None:
        console.print(f"goodput counts requests with {results.levels}", soft_wrap=True)
    for summary in (summary for row in results.repeats for summary in row):
        if summary.first_error is not None:
            console.print(escape(f"{summary.target}: {summary.first_error}"), soft_wrap=True)


def print_ratios(results: Results) -> None:
    """Prints the ratios of the first target to the second as JSON; null: undefined."""
    ratios = {figure.path: results.ratio(figure) for figure in FIGURES if figure.better}
    medians = {path: None if ratio is None else ratio.median for path, ratio in ratios.items()}
    print(json.dumps({"ratios": medians}, allow_nan=False))
