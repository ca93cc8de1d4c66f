"""The picture of a run: a lane a branch, its critical path, and nothing but text in its text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ramet.lang.trace.records import CallRecord, RunRecord
from ramet.lang.trace.timeline import critical_path, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title><script>alert("x")</script>'


def call(node_id: str, begin: float, end: float | None, **fields: object) -> CallRecord:
    return CallRecord(
        node_id, fields.pop("name", node_id), "gen", begin, begin, finished_s=end, **fields
    )  # type: ignore[arg-type]


def record(*calls: CallRecord, wall_s: float = 2.0, texts: dict[str, str] | None = None):
    return RunRecord("p<", "id", 0, 0.0, wall_s, list(calls), texts or {})


def test_branches_have_lanes_and_overlapping_calls_rows() -> None:
    run = record(call("0", 0, 1), call("1.0.2", 0, 1), call("1.0.3", 0.5, 1.5), call("1.1.4", 1, 2))
    svg = ET.fromstring(timeline_svg(run))
    texts = [each.text for each in svg.iter(f"{SVG}text")]
    assert [each for each in texts if each in ("main", "1.0", "1.1")] == ["main", "1.0", "1.1"]
    heights = {
        rect.attrib["y"] for rect in svg.iter(f"{SVG}rect") if rect.attrib.get("height") == "20"
    }
    assert heights == {"0", "24"}


def test_text_of_a_run_is_never_markup() -> None:
    run = record(call("0", 0, 1, name=HOSTILE, error=HOSTILE), texts={"0": HOSTILE})
    svg = ET.fromstring(timeline_svg(run))
    assert not list(svg.iter(f"{SVG}script"))
    assert any(HOSTILE in (each.text or "") for each in svg.iter(f"{SVG}title"))


def test_there_are_no_inline_styles() -> None:
    assert "style" not in timeline_svg(record(call("0", 0, 1)))


@pytest.mark.parametrize("wall_s", [0.0, 1e-4, 0.7, 10.0, 3600.0])
def test_the_axis_has_few_ticks(wall_s: float) -> None:
    svg = timeline_svg(record(call("0", 0, wall_s), wall_s=wall_s))
    axis = svg[: svg.index(">main<")]
    assert 5 <= axis.count("<text") <= 13


def test_the_critical_path_is_what_each_next_call_waited_for() -> None:
    calls = [call("slow", 0, 5), call("fast", 0, 1), call("next", 5, 6), call("late", 6.1, 9),
             call("never", 1, None)]  # fmt: skip
    assert critical_path(calls) == {"late", "next", "slow"}
    assert critical_path([]) == set()
