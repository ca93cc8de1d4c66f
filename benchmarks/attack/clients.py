"""Clients: honest ones that compare answers, and those that leave, stall, mutate and abort."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import honest
import httpx
from honest import HONEST, StreamError, answer_of
from hostile import hostile
from server import TENANTS, Victim

_UNAVAILABLE = frozenset(
    ("engine_dead", "engine_unresponsive", "shutting_down", "queue_full", "overloaded_error")
)
"""Codes that an honest call may end with while faults are played."""

_HOSTILE_STATUSES = frozenset((200, *range(400, 500), 503, 504))
_AFTERMATH_S = 30.0


@dataclass
class Tally:
    """The outcomes of all calls.

    Attributes:
        ends: how many calls have ended in which way.
        faults: what must not happen.
    """

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, what: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(what)


class Clients:
    """All clients of one attack.

    Attributes:
        answers: the known answers, by index of ``HONEST``.
        has_ended: no client calls again.
    """

    def __init__(self, victim: Victim, tally: Tally) -> None:
        self._victim = victim
        self._tally = tally
        self.answers: dict[int, str] = {}
        self.has_ended = False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        self._http = httpx.AsyncClient(
            base_url=victim.url, timeout=120, limits=limits, verify=False, trust_env=False
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def learn(self) -> None:
        """Asks all honest calls, undisturbed, for each tenant: the answers to compare with."""
        for index in range(len(HONEST)):
            answers = {await self._ask(index, tenant) for tenant in TENANTS}
            if len(answers) > 1:
                self._tally.fault(f"tenants get different answers to {HONEST[index]}: {answers}")
            self.answers[index] = answers.pop()

    async def compare_all(self) -> None:
        """Asks all honest calls again, undisturbed."""
        for index in range(len(HONEST)):
            self._compare(index, await self._ask(index, TENANTS[index % len(TENANTS)]))

    async def be_honest(self, rng: random.Random) -> None:
        """Calls one after the other; each ends once, well or with a named error."""
        while not self.has_ended:
            index, tenant = honest.pick(rng), rng.choice(TENANTS)
            started = time.monotonic()
            try:
                answer = await self._ask(index, tenant)
            except _Refused as refused:
                self._tally.ends[f"honest: {refused}"] += 1
                if str(refused) not in _UNAVAILABLE:
                    self._tally.fault(f"{HONEST[index]} is refused: {refused.detail}")
                await asyncio.sleep(0.2)
            except (httpx.TransportError, OSError) as error:
                self._tally.ends["honest: cut off"] += 1
                if not self._is_disturbed(started):
                    self._tally.fault(f"{HONEST[index]} is cut off without a kill: {error!r}")
                await asyncio.sleep(0.2)
            except (ValueError, KeyError, TypeError, StopIteration) as error:
                self._tally.fault(f"{HONEST[index]}: a broken answer: {error!r}")
            else:
                self._tally.ends["honest: answered"] += 1
                self._compare(index, answer)

    async def be_hostile(self, rng: random.Random) -> None:
        """Plays one bad client after the other."""
        manners = (self._send, self._send, self._leave, self._stall, self._half_close,
                   self._abort_others, self._babble, self._pipeline)  # fmt: skip
        while not self.has_ended:
            manner = rng.choice(manners)
            try:
                async with asyncio.timeout(90):
                    await manner(rng)
            except (httpx.TransportError, OSError, EOFError):
                self._tally.ends["hostile: cut off"] += 1
                await asyncio.sleep(0.1)
            except TimeoutError:
                self._tally.fault(f"no end within 90 s for {manner.__name__}")

    # -- honest --------------------------------------------------------------------------------

    async def _ask(self, index: int, tenant: str) -> str:
        path, body = HONEST[index]
        answer = await self._http.post(path, json={"model": "m", **body}, headers=_key(tenant))
        if answer.status_code != 200:
            raise _Refused(answer.text)
        try:
            return answer_of(path, body, answer.content)
        except StreamError as error:
            raise _Refused(str(error), error.code) from None

    def _compare(self, index: int, answer: str) -> None:
        if answer != self.answers[index]:
            known = self.answers[index]
            self._tally.fault(f"{HONEST[index]} was {known!r} and is {answer!r}")

    # -- hostile -------------------------------------------------------------------------------

    async def _send(self, rng: random.Random) -> None:
        """Sends a hostile body and reads all of the answer."""
        path, raw = hostile(rng)
        answer = await self._http.post(
            path,
            content=raw,
            headers={**_key(rng.choice(TENANTS)), "content-type": "application/json"},
        )
        self._tally.ends[f"hostile: {answer.status_code}"] += 1
        if answer.status_code not in _HOSTILE_STATUSES:
            self._tally.fault(f"{answer.status_code} for {path} {raw[:2000]!r}: {answer.text}")
        elif answer.status_code != 200 and "error" not in answer.json():
            self._tally.fault(f"an error without a body for {path} {raw[:2000]!r}")

    async def _leave(self, rng: random.Random) -> None:
        """Closes the connection, or resets it, at any time."""
        raw = _request(rng)
        async with self._connect(reset=rng.random() < 0.5) as (reader, writer):
            writer.write(raw[: rng.randint(1, len(raw))] if rng.random() < 0.3 else raw)
            await asyncio.sleep(rng.choice([0, 0.01, 0.1, 0.5, 2.0]))
            if rng.random() < 0.5:
                await _read(reader, rng.randint(1, 500), 2)
        self._tally.ends["hostile: left"] += 1

    async def _stall(self, rng: random.Random) -> None:
        """Sends or reads a few bytes at a time, for some seconds."""
        raw = _request(rng)
        async with self._connect(reset=rng.random() < 0.5) as (reader, writer):
            if rng.random() < 0.5:
                for at in range(0, min(len(raw), 300), 7):
                    writer.write(raw[at : at + 7])
                    await asyncio.sleep(0.05)
            else:
                writer.write(raw)
                for _ in range(rng.randint(1, 100)):
                    await _read(reader, 16, 1)
                    await asyncio.sleep(0.05)
        self._tally.ends["hostile: stalled"] += 1

    async def _half_close(self, rng: random.Random) -> None:
        """Has no more to say, and is still answered."""
        path, body = HONEST[honest.pick(rng)]
        raw = _raw(path, json.dumps({"model": "m", **body}).encode(), rng.choice(TENANTS))
        started = time.monotonic()
        async with self._connect() as (reader, writer):
            writer.write(raw)
            writer.write_eof()
            answer = await reader.read()
        statuses = answer.count(b"HTTP/1.1 ") - answer.count(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._tally.ends["hostile: half-closed"] += 1
        if statuses != 1 and not self._is_disturbed(started):
            self._tally.fault(f"{statuses} answers to a half-closed {path}: {answer[:500]!r}")

    async def _abort_others(self, rng: random.Random) -> None:
        """Starts a call under an id, which another tenant tries to end."""
        owner, other = rng.sample(TENANTS, 2)
        name = f"call-{rng.randrange(10**9)}"
        body = {"model": "m", "prompt": "x", "max_tokens": 40, "seed": 1, "request_id": name}
        call = asyncio.create_task(
            self._http.post("/v1/completions", json=body, headers=_key(owner))
        )
        try:
            await asyncio.sleep(rng.uniform(0, 0.1))
            tried = await self._http.post(
                "/v1/abort", json={"request_id": name}, headers=_key(other)
            )
            if tried.status_code == 200:
                self._tally.fault(f"{other} could end a call of {owner}")
            answer = await call
        finally:
            call.cancel()
        if answer.status_code == 499:
            self._tally.fault(f"a call of {owner} was ended by {other}")
        self._tally.ends[f"hostile: abort tried, {answer.status_code}"] += 1

    async def _babble(self, rng: random.Random) -> None:
        """Sends what isn't HTTP, or nearly."""
        raw = _request(rng)
        data = bytearray(raw[: rng.randint(20, len(raw))])
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(min(len(data), 200))] = rng.randrange(256)
        async with self._connect() as (reader, writer):
            writer.write(bytes(data))
            await _read(reader, -1, rng.choice([0.2, 2]))
        self._tally.ends["hostile: babbled"] += 1

    async def _pipeline(self, rng: random.Random) -> None:
        """Sends several requests at the same time, and leaves before all are answered."""
        raw = b"".join(_request(rng) for _ in range(rng.randint(2, 6)))
        async with self._connect(reset=rng.random() < 0.5) as (reader, writer):
            writer.write(raw)
            await _read(reader, 4000, rng.choice([0.2, 2, 5]))
        self._tally.ends["hostile: pipelined"] += 1

    def _is_disturbed(self, since: float) -> bool:
        """Whether a process was killed, stopped or started not long before a time, or later."""
        if not self._victim.ready.is_set():
            return True
        return any(each > since - _AFTERMATH_S for each in self._victim.disturbances)

    @contextlib.asynccontextmanager
    async def _connect(
        self, *, reset: bool = False
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection that is closed, or reset, in the end."""
        host, _, port = self._victim.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            if reset:
                linger = b"\1\0\0\0\0\0\0\0"  # on, for no time: what isn't sent is dropped
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, linger
                    )
                writer.transport.abort()
            writer.close()


class _Refused(Exception):
    """An error of the API; its text is the code."""

    def __init__(self, detail: str, code: str = "") -> None:
        if not code:
            try:
                error = json.loads(detail)["error"]
                code = error.get("code") or error["type"]
            except (ValueError, KeyError):
                code = "not an error's shape"
        super().__init__(code)
        self.detail = detail


def _key(tenant: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer sk-{tenant}"}


async def _read(reader: asyncio.StreamReader, size: int, seconds: float) -> None:
    """Reads up to ``size`` bytes, or all (-1), for as long as that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read(size)


def _request(rng: random.Random) -> bytes:
    """An honest or hostile request as it is sent."""
    if rng.random() < 0.6:
        path, body = HONEST[honest.pick(rng)]
        raw = json.dumps({"model": "m", **body, "max_tokens": 400}).encode()
    else:
        path, raw = hostile(rng)
    return _raw(path, raw, rng.choice(TENANTS))


def _raw(path: str, body: bytes, tenant: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer sk-{tenant}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
