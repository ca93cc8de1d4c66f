"""Refuses requests by their heads: framing that isn't understood, and other sites' pages."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from ramet.runtime.api.errors import (
    InvalidRequestError,
    PermissionDeniedError,
    RametError,
    UnsupportedEncodingError,
)
from ramet.runtime.server.http.error_response import error_response


class HeadCheck:
    """Checks ``Host``, ``Origin`` and the codings of each request.

    A server on a loopback address is for the programs of its machine. A web page reaches it, too,
    once its site's name resolves to that address (DNS rebinding); but then the browser sends that
    name as ``Host``, and the page's site as ``Origin``. Both must be loopback names or allowed.

    Args:
        host: the address that the server listens on.
        allowed_hosts: further names that clients may call it by.
        origins: origins that CORS allows.
    """

    def __init__(
        self, app: ASGIApp, *, host: str, allowed_hosts: Iterable[str], origins: Iterable[str]
    ) -> None:
        self._app = app
        self._is_local = is_loopback(host)
        self._allowed = {name.lower() for name in allowed_hosts}
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await error_response(refusal, scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope) -> RametError | None:
        hosts, origins = [], []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin":
                origins.append(value.decode("latin-1"))
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                return InvalidRequestError("the only transfer coding that is read is chunked")
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return UnsupportedEncodingError("the body must not be compressed")
        if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):
            return InvalidRequestError("a request has one Host header", code="invalid_host")
        if not self._is_local:
            return None
        if hosts and not self._is_allowed(f"//{hosts[0]}"):
            return PermissionDeniedError(
                "this server is for its own machine; allow other names by --allowed-host",
                code="host_not_allowed",
            )
        if not all(each in self._origins or self._is_allowed(each) for each in origins):
            return PermissionDeniedError(
                "pages of this origin may not call this server; allow it by --cors-origin",
                code="origin_not_allowed",
            )
        return None

    def _is_allowed(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return name in self._allowed or is_loopback(name)


def is_loopback(name: str) -> bool:
    """Whether a name or address is the machine's own by definition."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
