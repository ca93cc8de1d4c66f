"""What the server listens on is had before anything slow, or refused in one sentence."""

from __future__ import annotations

import socket

import pytest

from ramet.runtime.api.errors import ListenError
from ramet.runtime.server.http.listen import bind


def close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def test_every_address_of_a_host_gets_the_same_free_port() -> None:
    sockets = bind("localhost", 0)
    try:
        ports = {each.getsockname()[1] for each in sockets}
        assert len(ports) == 1
        assert ports != {0}
    finally:
        close(sockets)


def test_a_port_that_is_taken_is_named() -> None:
    (first,) = bind("127.0.0.1", 0)
    first.listen()
    port = first.getsockname()[1]
    try:
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}"):
            bind("127.0.0.1", port)
    finally:
        first.close()
    close(bind("127.0.0.1", port))


@pytest.mark.parametrize("host", ["300.1.1.1", "192.0.2.7"])
def test_a_host_that_this_machine_is_not_is_refused(host: str) -> None:
    with pytest.raises(ListenError, match=host):
        bind(host, 0)
