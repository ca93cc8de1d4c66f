"""Metrics of the parts of the server's memory."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Metric

from ramet.runtime.api.memory import PartUsage, resident_bytes
from ramet.runtime.engine.memory_plan import MemoryPlan
from ramet.runtime.engine.monitoring.stats import EngineStats


def memory_metrics(
    plan: MemoryPlan, usage: Mapping[str, PartUsage], stats: EngineStats | None
) -> list[Metric]:
    """Each memory budget's limit, use and refusals; resident memory by process.

    Args:
        usage: counters of the parts that the server's process counts.
        stats: the engine's; None if it is down.
    """
    used = {name: part.num_bytes for name, part in usage.items()}
    refused = {name: part.num_refused for name, part in usage.items()}
    resident = {"server": resident_bytes()}
    if stats is not None:
        used |= {
            "weights": plan.weights,
            "kv": (stats.num_pages - stats.num_free_pages) * plan.page_bytes,
            "grammars": stats.num_grammar_bytes,
            "prompts": stats.prompts.num_bytes,
        }
        refused["prompts"] = stats.prompts.num_refused
        resident["engine"] = stats.resident_bytes
    return [
        _labelled(
            "ramet:memory_limit_bytes", "gauge", "Memory of each part.", "part", plan.parts()
        ),
        _labelled("ramet:memory_bytes", "gauge", "Memory in use, by part.", "part", used),
        _labelled("ramet:resident_memory_bytes", "gauge", "Resident memory.", "process", resident),
        _labelled(
            "ramet:memory_refusals_total",
            "counter",
            "Requests refused or dropped because a part of the memory was full.",
            "part",
            refused,
        ),
    ]


def _labelled(name: str, kind: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    metric = Metric(name.removesuffix("_total"), text, kind)
    for value, reading in values.items():
        metric.add_sample(name, {label: value}, reading)
    return metric
