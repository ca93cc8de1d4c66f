"""Extensions: routes that a higher layer mounts on the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel

from ramet.runtime.server.calls.context import ServerContext


@dataclass(frozen=True, slots=True)
class Extension:
    """Additional routes of a server.

    Attributes:
        router: builds them; they require an API key if the server has any.
        bodies: their request bodies, for the OpenAPI document.
    """

    router: Callable[[ServerContext], APIRouter]
    bodies: tuple[type[BaseModel], ...] = ()
