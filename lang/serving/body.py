"""The body of ``POST /v1/programs``."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ramet.runtime.server.protocol.base import ApiModel, Int


class ProgramRequest(ApiModel):
    """A graph and the settings of its calls.

    ``graph`` is the result of ``program.graph().to_json()``. Calls without a seed derive one from
    ``seed`` and their position in the graph.
    """

    graph: dict[str, Any]
    model: str | None = None
    stream: bool = False
    seed: Int = Field(default=0, ge=0, lt=2**64)
    cache_salt: str | None = None
    priority: Int = Field(default=0, ge=-(2**31), le=2**31 - 1)
    deadline_s: float | None = Field(default=None, gt=0)
    request_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")
