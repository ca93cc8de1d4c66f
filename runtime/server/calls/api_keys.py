"""Where tenants and their API keys come from: options, a file of keys, a file of tenants."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.calls.tenants import KeysFile, TenantEntry
from ramet.runtime.server.config import ServerConfig
from ramet.trusted_files import UntrustedFileError, read_trusted, warn_if_readable_by_others

DEFAULT_TENANT = "default"
"""The tenant of keys that are given without one; an admin."""


def read_tenants(config: ServerConfig) -> tuple[TenantEntry, ...]:
    """All tenants of a configuration; none means that no key is needed.

    Raises:
        InvalidParameterError: a file can't be read, is invalid, or another user may write to it;
            a key can't be sent, or belongs to two tenants.
    """
    tenants = read_keys_file(config.api_keys_file)
    keys = (*config.api_keys, *_read_lines(config.api_key_file))
    if keys:
        for key in keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise InvalidParameterError(
                    "an API key must be printable ASCII without blanks", param="api_keys"
                )
        keys = tuple(dict.fromkeys(keys))
        tenants = (*tenants, TenantEntry(name=DEFAULT_TENANT, keys=keys, admin=True))
    names = [tenant.name for tenant in tenants]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameterError(f"two tenants are named {twice!r}", param="api_keys_file")
    _check_owners(tenants)
    return tenants


def read_keys_file(path: Path | None) -> tuple[TenantEntry, ...]:
    """Reads the tenants of a JSON file; none without a file.

    Raises:
        InvalidParameterError: the file can't be read, is invalid, or others may write to it.
    """
    if path is None:
        return ()
    content = _read("api_keys_file", path)
    try:
        return KeysFile.model_validate_json(content).tenants
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the top level"
        raise InvalidParameterError(
            f"the API keys file {path} is invalid at {where}: {first['msg']}", param="api_keys_file"
        ) from None


def _read_lines(path: Path | None) -> tuple[str, ...]:
    """The keys of a file, one a line; blank lines and those that begin with # don't count."""
    if path is None:
        return ()
    text = _read("api_key_file", path).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise InvalidParameterError(f"the file {path} has no API key", param="api_key_file")
    if keys[0].startswith("{"):
        raise InvalidParameterError(
            f"the file {path} should have an API key on each line; --api-keys names a JSON file of"
            " tenants",
            param="api_key_file",
        )
    return keys


def _check_owners(tenants: tuple[TenantEntry, ...]) -> None:
    owners: dict[str, str] = {}
    for tenant in tenants:
        for key in tenant.keys:
            other = owners.setdefault(key, tenant.name)
            if other != tenant.name:
                raise InvalidParameterError(
                    f"the tenants {other} and {tenant.name} have a key in common",
                    param="api_keys_file",
                )


def _read(name: str, path: Path) -> bytes:
    try:
        content = read_trusted(path)
        warn_if_readable_by_others(path, "the file of API keys")
    except UntrustedFileError as error:
        raise InvalidParameterError(f"{name} is not used: {error}", param=name) from None
    except OSError as error:
        raise InvalidParameterError(
            f"the API keys file {path} can't be read: {error}", param=name
        ) from None
    return content
