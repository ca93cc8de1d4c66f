"""The example programs in three arms: each as its file runs it, on the model.

::

    python benchmarks/programs/examples.py [--repeats 3] [--only tree_of_thought,react_agent]

The arms are those of ``programs.py``: plain HTTP requests one by one, the program with hints off,
and everything on; memory suffices, and each run begins with an empty cache. What is compared is
what one user waits for, and what it costs. Each call draws from its place in the graph, so all arms
give the same texts; an example that the small model can't bring to its end fails in all of them
alike.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from programs import OneByOne, Outcome, serving, table
from rich.console import Console

from ramet.lang import Backend, connect
from ramet.lang.backends.engine import EngineBackend
from ramet.runtime.api.errors import RametError
from ramet.runtime.engine import Engine, EngineConfig

EXAMPLES = Path(__file__).parents[2] / "examples"


class Seeded:
    """A backend that draws the same in every run, and that may say nothing of the future."""

    def __init__(self, inner: Backend, *, silent: bool) -> None:
        self._inner = inner
        self._silent = silent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _call(self, call: Any) -> Any:
        return replace(call, hint=None) if self._silent else call

    async def stream(self, call: Any) -> AsyncIterator[Any]:
        """The call's text."""
        params = replace(call.params, seed=zlib.crc32(call.node_id.encode()))
        async for event in self._inner.stream(replace(self._call(call), params=params)):
            yield event

    async def score(self, call: Any) -> Any:
        """The choices' scores."""
        return await self._inner.score(self._call(call))

    async def warm(self, call: Any) -> Any:
        """Computes ahead, unless nothing is to be known of the future."""
        return None if self._silent else await self._inner.warm(call)


@dataclass(frozen=True)
class Arm:
    """An engine, and how the examples reach it."""

    engine: Engine
    backend: Any


def load(name: str) -> Callable[[Any], Any]:
    """An example's ``main``."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    main: Callable[[Any], Any] = module.main
    return main


def run_once(arm: Arm, example: Callable[[Any], Any]) -> Outcome:
    """One run on an empty cache."""
    arm.engine.clear_cache()
    before, began, began_cpu = arm.engine.stats(), time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            result = example(arm.backend)
        except RametError as error:
            result = type(error).__name__
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    after = arm.engine.stats()
    arm.engine.check()
    return Outcome(
        computed=after.num_computed_tokens - before.num_computed_tokens,
        cached=after.num_cached_tokens - before.num_cached_tokens,
        cpu_s=cpu_s,
        latencies_s=[wall_s],
        results=[result],
    )


def make_arms(model: str, stack: ExitStack) -> Iterator[tuple[str, Arm]]:
    """The arms, each with an engine of its own."""

    def engine() -> Engine:
        config = EngineConfig(num_pages=1024, device="cpu", max_draft_len=0)
        return stack.enter_context(Engine.from_model(model, config))

    plain = engine()
    over_http = connect(stack.enter_context(serving(plain)), dialect="ramet")
    yield "plain", Arm(plain, OneByOne(Seeded(over_http, silent=True)))
    for name in ("no hints", "full"):
        own = engine()
        yield name, Arm(own, Seeded(EngineBackend(own), silent=name == "no hints"))


def main() -> None:
    """Prints a table an example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default=",".join(names))
    options = parser.parse_args()
    with ExitStack() as stack:
        arms = dict(make_arms(options.model, stack))
        for name in options.only.split(","):
            example = load(name)
            outcomes: dict[str, Outcome] = {}
            for _ in range(options.repeats):
                for arm_name, arm in arms.items():
                    once = run_once(arm, example)
                    known = outcomes.setdefault(arm_name, replace(once, latencies_s=[]))
                    known.latencies_s += once.latencies_s
                    known.cpu_s = min(known.cpu_s, once.cpu_s)
            Console().print(table(name, outcomes))


if __name__ == "__main__":
    main()
