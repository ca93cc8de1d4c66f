"""HTTP for backends: JSON in, JSON or server-sent events out, errors typed, tries bounded."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from ramet.lang.base.errors import BackendError, UsageError

MAX_TRIES = 3
MAX_PAUSE_S = 10.0
_BUSY = frozenset((429, 502, 503))


Verify = bool | str | Path | ssl.SSLContext
"""The verification of a server's certificate; see ``tls_context``."""


def tls_context(url: str, verify: Verify) -> ssl.SSLContext | bool:
    """What httpx takes as ``verify``.

    Args:
        verify: True: against the trusted certificates, those of ``SSL_CERT_FILE`` if that is set;
            a file: against the certificates in it; a context: by that; False: not at all.

    Raises:
        UsageError: the file can't be read, or has no certificate.
    """
    if not url.startswith("https://"):
        return False  # reading the trusted certificates takes longer than most calls
    if not isinstance(verify, str | Path):
        return httpx.create_ssl_context() if verify is True else verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"verify: no certificates can be read from {verify}: {reason}") from None


class Transport:
    """Talks to one server. Connections belong to event loops, so there is a client a loop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float | None = 600.0,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._verify = tls_context(url, verify)
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = httpx.Timeout(timeout_s, connect=10.0)
        self._transport = transport
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    def __getstate__(self) -> dict[str, Any]:
        """All but the connections, which belong to this process."""
        return {k: v for k, v in self.__dict__.items() if k != "_clients"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _clients=WeakKeyDictionary())

    async def get(self, path: str) -> Any:
        """The JSON answer to a GET."""
        return await self._json("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON answer to a POST."""
        return await self._json("POST", path, body)

    async def events(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The data of the server-sent events that answer a POST, up to ``[DONE]``.

        Closing the iterator closes the connection, which aborts the call.
        """
        for attempt in range(1, MAX_TRIES + 1):
            response = await self._send("POST", path, body)
            try:
                if response.status_code in _BUSY and attempt < MAX_TRIES:
                    await asyncio.sleep(_pause_s(response, attempt))
                    continue
                await _raise_for_status(response)
                async for line in _lines(response):
                    if not line.startswith("data:"):
                        continue
                    data = line[5:].strip()
                    if data == "[DONE]":
                        return
                    yield _event(data)
                return
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        """Closes the running loop's connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        for attempt in range(1, MAX_TRIES + 1):
            response = await self._send(method, path, body)
            try:
                if response.status_code in _BUSY and attempt < MAX_TRIES:
                    await asyncio.sleep(_pause_s(response, attempt))
                    continue
                await _raise_for_status(response)
                return json.loads(await response.aread())
            except (httpx.HTTPError, ValueError) as error:
                raise BackendError(f"{self.url}{path}: a broken answer: {error}") from error
            finally:
                await response.aclose()
        raise AssertionError("unreachable")

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(
                headers=self._headers,
                timeout=self._timeout,
                verify=self._verify,
                transport=self._transport,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            )
            self._clients[loop] = client
        try:
            request = client.build_request(method, self.url + path, json=body)
            return await client.send(request, stream=True)
        except httpx.HTTPError as error:
            detail = str(error) or type(error).__name__
            raise BackendError(f"{self.url}{path} can't be reached: {detail}") from error


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    try:
        async for line in response.aiter_lines():
            yield line
    except httpx.HTTPError as error:
        raise BackendError(f"the stream broke off: {error or type(error).__name__}") from error


def _event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise BackendError(f"the stream holds no JSON: {data[:80]!r}") from error
    if not isinstance(event, dict):
        raise BackendError(f"the stream holds no object: {data[:80]!r}")
    if event.get("error"):
        raise BackendError(_message(event))
    return event


def _pause_s(response: httpx.Response, attempt: int) -> float:
    try:
        wanted = float(response.headers.get("retry-after", ""))
    except ValueError:
        wanted = 0.25 * 2**attempt
    return min(max(wanted, 0.05), MAX_PAUSE_S)


async def _raise_for_status(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    raw = await response.aread()
    try:
        message = _message(json.loads(raw))
    except ValueError:
        message = raw[:200].decode("utf-8", "replace")
    raise BackendError(f"HTTP {response.status_code}: {message}", http_status=response.status_code)


def _message(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error)
    return str(error)
