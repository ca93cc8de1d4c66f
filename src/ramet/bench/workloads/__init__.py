"""Seeded workloads: the same options, seed and repeat give byte-identical requests."""

from __future__ import annotations

from ramet.bench.workloads.base import MAX_VOCAB_SIZE, Load, Option, ordinary_ids
from ramet.bench.workloads.natural_text import Chat
from ramet.bench.workloads.random_tokens import (
    Agents,
    Burst,
    FewShot,
    FreeText,
    Json,
    Judge,
    LongPrompt,
    MultiTurn,
    OneStream,
    SharedPrefix,
    Tree,
)
from ramet.bench.workloads.trace_file import TraceFile

__all__ = ["LOADS", "MAX_VOCAB_SIZE", "Load", "Option", "ordinary_ids"]

LOADS: tuple[type[Load], ...] = (
    SharedPrefix, MultiTurn, Agents, Judge, Tree, FewShot, Chat, TraceFile,
    Json, FreeText, OneStream, LongPrompt, Burst,
)  # fmt: skip
"""All kinds, in the order of the help."""
