"""Shared by the language's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ramet.lang import ScriptedBackend


@pytest.fixture
def scripted() -> Callable[..., ScriptedBackend]:
    """A ScriptedBackend, by its own arguments."""

    def make(by_name: dict[str, Any] | None = None, **options: Any) -> ScriptedBackend:
        return ScriptedBackend(by_name, **options)

    return make
