"""The server's certificate for HTTPS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.config import ServerConfig
from ramet.trusted_files import UntrustedFileError, read_trusted, warn_if_readable_by_others


def open_tls(config: ServerConfig) -> ssl.SSLContext | None:
    """A context with the configured certificate; None if there is none.

    Raises:
        InvalidParameterError: a file can't be read, or isn't what it should be.
    """
    if config.ssl_certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, config)
    return context


def load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    """Loads the configured certificate and key for connections to come; see ``open_tls``."""
    assert config.ssl_certfile is not None
    key = config.ssl_keyfile or config.ssl_certfile
    for name, path in (("ssl_certfile", config.ssl_certfile), ("ssl_keyfile", key)):
        _read(name, path)
    warn_if_readable_by_others(key, "the private key")
    password = _password(config)
    try:
        context.load_cert_chain(config.ssl_certfile, key, password or _no_password)
    except _NoPassword:
        raise InvalidParameterError(
            f"the private key {key} is encrypted: give ssl_password_file",
            param="ssl_password_file",
        ) from None
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidParameterError(
            f"no certificate and private key can be read from {config.ssl_certfile} and {key}"
            f" ({reason})",
            param="ssl_certfile",
        ) from None


class _NoPassword(Exception):
    """A password was asked for; OpenSSL itself would read it from the terminal."""


def _no_password() -> NoReturn:
    raise _NoPassword


def _password(config: ServerConfig) -> bytes | None:
    path = config.ssl_password_file
    if path is None:
        return None
    warn_if_readable_by_others(path, "the private key's password")
    return _read("ssl_password_file", path).rstrip(b"\r\n")


def _read(name: str, path: Path) -> bytes:
    try:
        return read_trusted(path)
    except UntrustedFileError as error:
        raise InvalidParameterError(f"{name} is not used: {error}", param=name) from None
    except OSError as error:
        reason = error.strerror or error
        raise InvalidParameterError(f"{name} {path} can't be read: {reason}", param=name) from None
