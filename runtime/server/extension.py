"""Routes that are mounted from above: of what the runtime itself can't know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel

from ramet.runtime.server.calls.context import ServerContext


@dataclass(frozen=True, slots=True)
class Extension:
    """Further routes of a server.

    Attributes:
        router: makes them; each needs a key, where there are keys.
        bodies: the bodies that they take, for the OpenAPI document.
    """

    router: Callable[[ServerContext], APIRouter]
    bodies: tuple[type[BaseModel], ...] = ()
