"""Ratios say which target is better, and the page draws what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ramet.bench.job import Job, Pace, Workload
from ramet.bench.report import write_page
from ramet.bench.report.charts import Axis, Interval, ratio_chart
from ramet.bench.results import FIGURES, Figure, Ratio, Results, show
from ramet.bench.runner import WorkloadRun
from ramet.bench.targets import Outcome

FIGURE = {figure.path: figure for figure in FIGURES}
WORKLOAD = Workload("w", (Job((1, 2), 2),) * 3, Pace())


def run(target: str, wall_s: float, error: str | None = None) -> WorkloadRun:
    good = Outcome(
        event_times=[wall_s / 4, wall_s / 2], total_s=wall_s,
        num_prompt_tokens=2, num_output_tokens=2,
    )  # fmt: skip
    return WorkloadRun(WORKLOAD, target, (good, good, Outcome(error=error or "gone")), wall_s)


@pytest.fixture
def results() -> Results:
    found = Results()
    for wall_s in (1.0, 2.0, 1.0):
        found.add([run("a", wall_s), run("b <i>", wall_s * 2)])
    return found


@pytest.mark.parametrize(
    ("path", "words"),
    [("output_tokens_per_s", "2.00x faster"), ("ttft.p50", "2.00x faster"), ("errors", "")],
)
def test_a_ratio_says_how_the_first_target_compares(results, path: str, words: str) -> None:
    ratio = results.ratio(FIGURE[path])
    assert ratio is not None
    assert ratio.in_words(FIGURE[path]) == words


@pytest.mark.parametrize(
    ("median", "words"), [(1.0, "same"), (0.5, "2.00x faster"), (3.0, "3.00x slower")]
)
def test_times_are_better_when_smaller(median: float, words: str) -> None:
    assert Ratio(median, median, median).in_words(FIGURE["e2e.p50"]) == words


def test_a_figure_that_is_zero_has_no_ratio(results) -> None:
    assert results.ratio(FIGURE["tokens_least"]) is not None
    assert results.ratio(FIGURE["hit_rate"]) is None


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("ms", 0.25, "250 ms"),
        ("ms", 0.00123, "1.23 ms"),
        ("%", 0.5, "50.0%"),
        ("", 12345.6, "12,346"),
        ("", None, "–"),
        ("", 3, "3"),
        ("", 3.14159, "3.14"),
    ],
)
def test_values_have_their_units(unit: str, value: float | None, text: str) -> None:
    assert show(Figure("x", "x", unit), value) == text


def test_the_page_is_complete_and_safe(results, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(results, path, "ramet bench <w>")
    page = path.read_text()
    assert "<i>" not in page.replace('<i class="', "")
    assert "b &lt;i&gt;" in page
    assert "http" not in page  # it loads nothing
    charts = [part.split("</svg>")[0] for part in page.split("<svg")[1:]]
    assert len(charts) == 3 + 1 + 2
    for chart in charts:
        ET.fromstring(f"<svg{chart}</svg>")
    assert page.count('class="failed"') == 2
    assert "2.00x faster" in page


def test_ticks_are_round_and_within() -> None:
    assert Axis(0, 0.93, 0, 100).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert Axis(0, 1, 0, 100)(0.25) == 25


def test_ratios_are_drawn_on_both_sides_of_one() -> None:
    chart = ratio_chart("r", [Interval("x", 2, 1, 4), Interval("y", 0.5, 0.25, 1)])
    svg = ET.fromstring(chart[chart.index("<svg") : chart.index("</figure>")])
    centres = [float(each.attrib["cx"]) for each in svg.iter("circle")]
    (one,) = [float(each.attrib["x1"]) for each in svg.iter("line") if each.get("class") == "one"]
    assert centres[0] - one == pytest.approx(one - centres[1], abs=0.2)
