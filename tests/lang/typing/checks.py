"""Not run, but type-checked in strict mode: what a type checker knows of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from ramet.lang import Run, State, Value, assistant, gen, program, regex, select, tool, user
from ramet.lang.program import Program


class Report(BaseModel):
    title: str


@dataclass
class Point:
    x: int


@tool
def add(a: int, b: int = 0) -> int:
    """Adds."""
    return a + b


@tool
async def fetch(url: str) -> bytes:
    """Fetches."""
    return url.encode()


@program
def typed(s: State, topic: str, *, depth: int = 1) -> Report:
    s += user(f"about {topic}") + assistant("so ", gen("x"), select("y", ["a", "b"]))
    assert_type(s.gen("a"), Value[str])
    assert_type(s.gen("b", Report), Value[Report])
    assert_type(s.gen("c", Point).value, Point)
    assert_type(s.gen("d", int, max_tokens=3).value, int)
    assert_type(s.gen("e", regex("a+")), Value[str])
    assert_type(s.select("f", ["a", "b"]), Value[str])
    assert_type(s.gen("h", Literal["a", "b"]), Value[Literal["a", "b"]])
    assert_type(s.gen("i", Report | None), Value[Report | None])
    assert_type(s.gen("j", n=2), Value[list[str]])
    assert_type(s.gen("k", Report, n=2), Value[list[Report]])
    assert_type(s.tools([add]), Value[str])
    assert_type(s.tools([add], answer=Report), Value[Report])
    assert_type(s.tools([add], answer=Literal[1, 2]), Value[Literal[1, 2]])
    assert_type(s.call(add, a=depth), Value[int])
    assert_type(s.call(add, depth, 2), Value[int])
    assert_type(s.call(fetch, "x"), Value[bytes])
    assert_type(s["anything"], Value[Any])
    assert_type(s.fork(2)["x"], list[Value[Any]])
    assert_type(s.fork(2)[0], State)
    return s.gen("g", Report).value


@program
def lazy(s: State) -> Value[Report]:
    return s.gen("a", Report)


@program
async def later(s: State) -> Point:
    assert_type(await s.gen("a", Point), Point)
    assert_type(s.spawn(helper, 3), Value[int])
    assert_type(s.spawn(async_helper), Value[str])
    return Point(1)


def helper(branch: State, number: int) -> int:
    return number


async def async_helper(branch: State) -> str:
    return await branch.gen("x")


assert_type(typed.run("cats"), Run[Report])
assert_type(typed.run("cats", depth=2).result, Report)
assert_type(lazy.run().result, Report)
assert_type(later.run().result, Point)
assert_type(later.using(seed=1), Program[[], Point])
assert_type(typed.run_batch([{"topic": "x"}]), list[Run[Report]])
assert_type(add(1, b=2), int)


async def use() -> None:
    assert_type((await typed.arun("cats", depth=2)).result, Report)


def wrong(s: State) -> None:
    s.gen("x", temprature=1)  # type: ignore[call-overload]
    s.gen("x", max_tokens="many")  # type: ignore[call-overload]
    add("1")  # type: ignore[arg-type]
