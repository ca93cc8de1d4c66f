"""Shared by all tests: servers on scripted models, ended with the test, and scripted backends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from ramet.lang import ScriptedBackend
from ramet.runtime.testing import server as testing

# Machines are shared: no test asserts a time. A change is judged by the same examples each time;
# RAMET_RANDOM_EXAMPLES=1 tries others, as the fuzzer does.
settings.register_profile(
    "ramet", deadline=None, derandomize="RAMET_RANDOM_EXAMPLES" not in os.environ
)
settings.load_profile("ramet")


@pytest.fixture
def serve() -> Iterator[Callable[..., testing.RunningServer]]:
    """Starts servers: ``serve(script, ..., option=...)``; see ``scripted_server``."""
    with contextlib.ExitStack() as stack:

        def start(*scripts: Any, **options: Any) -> testing.RunningServer:
            return stack.enter_context(testing.scripted_server(scripts, **options))

        yield start


@pytest.fixture
def text_of() -> Callable[..., str]:
    return testing.text_of


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return testing.wait_until


@pytest.fixture(scope="module")
def ok_server() -> Iterator[testing.RunningServer]:
    """One server for tests that share it: whatever it is asked, it says "ok"."""
    with testing.scripted_server([["ok"]]) as server:
        yield server


@pytest.fixture
def scripted() -> Callable[..., ScriptedBackend]:
    """A ScriptedBackend, by its own arguments."""

    def make(by_name: dict[str, Any] | None = None, **options: Any) -> ScriptedBackend:
        return ScriptedBackend(by_name, **options)

    return make
