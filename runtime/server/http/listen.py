"""Binds the server's sockets, before a model is loaded."""

from __future__ import annotations

import errno
import socket
from typing import Any

from ramet.runtime.api.errors import ListenError


def bind(host: str, port: int) -> list[socket.socket]:
    """Binds every address of ``host``, all to one port; a port of 0 takes a free one.

    A bound socket refuses connections until a server listens on it. Addresses that the machine
    doesn't have are skipped if there are others.

    Raises:
        ListenError: the host is unknown, or the port is taken or not permitted.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in _addresses(host, port):
            try:
                bound.append(_bind_one(family, (*address[:1], port, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
            else:
                port = bound[0].getsockname()[1]
        if missing is not None and not bound:
            raise missing
    except OSError as error:
        for each in bound:
            each.close()
        reason = error.strerror or error
        raise ListenError(f"can't listen on {host}:{port}: {reason}", param="port") from None
    return bound


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Every family and address of a host, in the resolver's order."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind_one(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
