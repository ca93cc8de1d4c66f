"""Targets of workloads: an engine in this process, or a server with OpenAI's API."""

from __future__ import annotations

from ramet.bench.targets.engine import EngineTarget
from ramet.bench.targets.server import Endpoint, ServerTarget
from ramet.bench.targets.target import Outcome, Target

__all__ = ["Endpoint", "EngineTarget", "Outcome", "ServerTarget", "Target"]
