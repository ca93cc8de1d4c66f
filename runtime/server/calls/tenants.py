"""API keys, tenants and their limits.

The keys file is JSON::

    {"tenants": [{"name": "search", "keys": ["sk-..."], "weight": 2.0, "max_concurrent": 16,
                  "tokens_per_minute": 200000, "admin": false}]}

A key is given in plain text, or as ``sha256:`` and its hexadecimal hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers

from ramet.runtime.api.errors import (
    AuthenticationError,
    PermissionDeniedError,
    QueueFullError,
)

_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class TenantEntry(BaseModel):
    """A tenant in the keys file. Missing limits mean none.

    ``weight`` is its share of a busy engine; see ``SchedulerConfig.tenant_weights``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    keys: tuple[str, ...] = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    max_concurrent: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    admin: bool = False


class KeysFile(BaseModel):
    """The keys file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenants: tuple[TenantEntry, ...] = Field(min_length=1)


class Tenant:
    """A tenant's limits and its usage.

    Tokens are charged when a request ends, so a call may overdraw the minute's budget; the next
    one is admitted once the balance is positive.
    """

    def __init__(
        self, entry: TenantEntry | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = entry.name if entry else ""
        self.admin = entry.admin if entry else True
        self.weight = entry.weight if entry else 1.0
        self._max_concurrent = entry.max_concurrent if entry else None
        self._per_minute = entry.tokens_per_minute if entry else None
        self._clock = clock
        self._budget = float(self._per_minute or 0)
        self._refilled_at = clock()
        self.num_calls = 0

    def update(self, entry: TenantEntry) -> None:
        """Takes new limits; what it has used in this minute counts towards them."""
        used = (self._per_minute or 0) - self._budget
        self.admin = entry.admin
        self.weight = entry.weight
        self._max_concurrent = entry.max_concurrent
        self._per_minute = entry.tokens_per_minute
        self._budget = (self._per_minute or 0) - used

    def scoped(self, name: str) -> str:
        """Prefixes ``name`` so that no other tenant can have the same."""
        return f"{self.name}/{name}" if self.name else name

    def admit_call(self) -> None:
        """Admits a call, to be ended by ``end_call``; ``QueueFullError`` at a limit."""
        if self._max_concurrent is not None and self.num_calls >= self._max_concurrent:
            raise QueueFullError(
                f"{self.name} has {self.num_calls} running calls, the most allowed",
                retry_after_s=1.0,
                code="concurrency_limit_exceeded",
            )
        wait_s = self._refill()
        if wait_s > 0:
            raise QueueFullError(
                f"{self.name} has used its {self._per_minute} tokens per minute",
                retry_after_s=wait_s,
                code="rate_limit_exceeded",
            )
        self.num_calls += 1

    def end_call(self) -> None:
        """Ends a call."""
        self.num_calls -= 1

    def charge_tokens(self, num_tokens: int) -> None:
        """Charges tokens to the minute's budget."""
        if self._per_minute is not None:
            self._budget -= num_tokens

    def _refill(self) -> float:
        """Refills the budget; returns the seconds until it is positive."""
        if self._per_minute is None:
            return 0.0
        now = self._clock()
        rate = self._per_minute / 60
        self._budget = min(self._per_minute, self._budget + (now - self._refilled_at) * rate)
        self._refilled_at = now
        return 0.0 if self._budget > 0 else -self._budget / rate + 0.001


class Tenants:
    """Finds the tenant of a request by its key. Without entries, all requests are one tenant's."""

    def __init__(self, entries: Sequence[TenantEntry] = ()) -> None:
        self._anonymous = None if entries else Tenant()
        self._by_name: dict[str, Tenant] = {}
        self._by_hash: list[tuple[bytes, Tenant]] = []
        self.replace(entries)

    def replace(self, entries: Sequence[TenantEntry]) -> None:
        """Replaces tenants and keys. Running calls go on; a tenant that stays keeps its counts."""
        by_name = {}
        for entry in entries:
            tenant = by_name[entry.name] = self._by_name.get(entry.name) or Tenant(entry)
            tenant.update(entry)
        self._by_name = by_name
        self._by_hash = [
            (_hash(key), by_name[entry.name]) for entry in entries for key in entry.keys
        ]

    def weights(self) -> dict[str, float]:
        """Each tenant's share of a busy engine."""
        return {tenant.name: tenant.weight for tenant in self._by_name.values()}

    def find(self, headers: Headers) -> Tenant:
        """Finds the tenant of the key in ``Authorization: Bearer`` or ``x-api-key``.

        Compares every key in constant time. Raises ``AuthenticationError``.
        """
        if self._anonymous is not None:
            return self._anonymous
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not key:
            raise AuthenticationError("an API key is required: send Authorization: Bearer ...")
        hashed = _hash(key) if not _HASH.fullmatch(key) else b""
        found: Tenant | None = None
        for known, tenant in self._by_hash:
            if hmac.compare_digest(known, hashed):
                found = tenant
        if found is None:
            raise AuthenticationError("the API key is invalid")
        return found

    def find_admin(self, headers: Headers) -> Tenant:
        """Finds the tenant of an admin's key; ``PermissionDeniedError`` for others."""
        tenant = self.find(headers)
        if not tenant.admin:
            raise PermissionDeniedError("an admin's API key is required")
        return tenant


def _hash(key: str) -> bytes:
    """A key's SHA-256, or the hash that the file gives."""
    if _HASH.fullmatch(key):
        return bytes.fromhex(key.removeprefix("sha256:"))
    return hashlib.sha256(key.encode()).digest()
