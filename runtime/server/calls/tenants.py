"""Who may call, and how much: API keys, tenants, limits.

The keys file is JSON::

    {"tenants": [{"name": "search", "keys": ["sk-..."], "weight": 2.0, "max_concurrent": 16,
                  "tokens_per_minute": 200000, "admin": false}]}

A key may be given as itself, or as ``sha256:`` and its hash in hexadecimal.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers

from ramet.runtime.api.errors import (
    AuthenticationError,
    InvalidParameterError,
    PermissionDeniedError,
    QueueFullError,
)

_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class TenantEntry(BaseModel):
    """A tenant in the keys file; limits left out are none. ``weight`` is its share of the engine
    when others want it too, and goes to ``SchedulerConfig.tenant_weights``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    keys: tuple[str, ...] = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)
    max_concurrent: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    admin: bool = False


class KeysFile(BaseModel):
    """The keys file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenants: tuple[TenantEntry, ...] = Field(min_length=1)


class Tenant:
    """One tenant's limits and what it uses of them.

    Tokens are paid when a call ends, so a call may overdraw the minute's budget; the next one is
    admitted once the debt is paid.
    """

    def __init__(
        self, entry: TenantEntry | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = entry.name if entry else ""
        self.admin = entry.admin if entry else True
        self._max_concurrent = entry.max_concurrent if entry else None
        self._per_minute = entry.tokens_per_minute if entry else None
        self._clock = clock
        self._budget = float(self._per_minute or 0)
        self._refilled_at = clock()
        self.num_calls = 0

    def scoped(self, name: str) -> str:
        """``name`` as one that no other tenant can make."""
        return f"{self.name}/{name}" if self.name else name

    def enter(self) -> None:
        """Begins a call, which must ``leave``; ``QueueFullError`` at a limit."""
        if self._max_concurrent is not None and self.num_calls >= self._max_concurrent:
            raise QueueFullError(
                f"{self.num_calls} calls of {self.name} are running, the most that it may have",
                retry_after_s=1.0,
            )
        wait_s = self._refill()
        if wait_s > 0:
            raise QueueFullError(
                f"{self.name} has used its {self._per_minute} tokens a minute", retry_after_s=wait_s
            )
        self.num_calls += 1

    def leave(self) -> None:
        """Ends a call."""
        self.num_calls -= 1

    def pay(self, num_tokens: int) -> None:
        """Takes tokens off the minute's budget."""
        if self._per_minute is not None:
            self._budget -= num_tokens

    def _refill(self) -> float:
        """Adds what has accrued; returns the seconds until the budget is positive."""
        if self._per_minute is None:
            return 0.0
        now = self._clock()
        rate = self._per_minute / 60
        self._budget = min(self._per_minute, self._budget + (now - self._refilled_at) * rate)
        self._refilled_at = now
        return 0.0 if self._budget > 0 else -self._budget / rate + 0.001


def read_keys_file(path: Path | None) -> tuple[TenantEntry, ...]:
    """The tenants of a keys file; none without a file.

    Raises:
        InvalidParameterError: the file can't be read, or is not a keys file.
    """
    if path is None:
        return ()
    try:
        return KeysFile.model_validate_json(path.read_bytes()).tenants
    except OSError as error:
        raise InvalidParameterError(
            f"the API keys file {path} can't be read: {error}", param="api_keys_file"
        ) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the top"
        raise InvalidParameterError(
            f"the API keys file {path} is wrong at {where}: {first['msg']}", param="api_keys_file"
        ) from None


class Tenants:
    """Finds the tenant of a request by its key. With no entries, everyone is one tenant."""

    def __init__(self, entries: Sequence[TenantEntry] = ()) -> None:
        self._anonymous = None if entries else Tenant()
        self._by_hash = [(_hash(key), tenant) for tenant, key in _keys(entries)]

    def find(self, headers: Headers) -> Tenant:
        """The tenant whose key is in ``Authorization: Bearer`` or ``x-api-key``.

        Every key is compared, in constant time. Raises ``AuthenticationError``.
        """
        if self._anonymous is not None:
            return self._anonymous
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not key:
            raise AuthenticationError("send an API key, as Authorization: Bearer ...")
        hashed = _hash(key) if not _HASH.fullmatch(key) else b""
        found: Tenant | None = None
        for known, tenant in self._by_hash:
            if hmac.compare_digest(known, hashed):
                found = tenant
        if found is None:
            raise AuthenticationError("this API key is not known here")
        return found

    def find_admin(self, headers: Headers) -> Tenant:
        """The same for what only operators may do; ``PermissionDeniedError`` for others."""
        tenant = self.find(headers)
        if not tenant.admin:
            raise PermissionDeniedError("this needs an admin's API key")
        return tenant


def _keys(entries: Sequence[TenantEntry]) -> list[tuple[Tenant, str]]:
    return [(tenant, key) for entry in entries for tenant in [Tenant(entry)] for key in entry.keys]


def _hash(key: str) -> bytes:
    """A key's SHA-256; of one that the file gives as its hash, that."""
    if _HASH.fullmatch(key):
        return bytes.fromhex(key.removeprefix("sha256:"))
    return hashlib.sha256(key.encode()).digest()
