"""Servers on scripted models, and clients of them, ended with the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from ramet.runtime.testing import server as testing


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


@pytest.fixture
def openai_client() -> Iterator[Callable[..., openai.OpenAI]]:
    """The openai package's client of a server: ``openai_client(server)``."""
    with contextlib.ExitStack() as stack:

        def connect(server: testing.RunningServer) -> openai.OpenAI:
            return stack.enter_context(
                openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            )

        yield connect
