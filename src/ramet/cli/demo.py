"""``ramet demo``: a small agent on a real model that shows Ramet's features."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field
from rich.console import Console
from rich.text import Text

from ramet.cli.run_view import report, watch
from ramet.cli.warm import compile_with_bar
from ramet.lang import AgentLimits, Run, State, Value, assistant, program, select, tool
from ramet.runtime.api.errors import RametError

SYSTEM = (
    "You are a travel assistant. You plan short trips for people who visit a city for the first "
    "time. You know the sights, the food and the weather of every large city. You answer in one "
    "or two short sentences, you are friendly, and you never make lists. If you are asked for "
    "data, you give exactly that data and nothing else."
)

TOPICS = ("the sights", "the food", "the music")


class Plan(BaseModel):
    """One day of a trip."""

    title: str = Field(max_length=40)
    what_to_do: str = Field(max_length=120)
    where_to_eat: str = Field(max_length=60)
    bring: Literal["an umbrella", "sunglasses"]


@tool
def forecast(city: Literal["Lisbon", "Paris", "Rome"], day: Literal["today", "tomorrow"]) -> str:
    """The weather forecast for a city."""
    degrees = {"Lisbon": 24, "Paris": 17, "Rome": 27}[city]
    return f"{degrees} degrees and {'sunny' if day == 'today' else 'light rain'} in {city}"


@program
def plan_a_day(s: State, city: str = "Lisbon") -> Value[Plan]:
    """Asks about three topics at once, picks one, looks the weather up, and plans a day."""
    s.system(SYSTEM)
    branches = s.fork(len(TOPICS))
    for branch, topic in zip(branches, TOPICS, strict=True):
        branch.user(f"Tell me about {topic} of {city}.")
        branch.gen("tip", max_tokens=36, stop="\n")
    tips = branches["tip"]
    branches.join()

    notes = "".join(f"About {topic}: {tip}\n" for topic, tip in zip(TOPICS, tips, strict=True))
    s.user(f"{notes}Which of these matters most on a first visit?")
    s += assistant("What matters most is " + select("focus", TOPICS) + ".")

    s.user(f"What is the weather in {city} tomorrow?")
    s.tools(
        [forecast],
        name="weather",
        require_call=True,
        limits=AgentLimits(max_turns=2, max_calls_a_turn=1),
        max_tokens=64,
    )

    s.user(f"Plan a day in {city} around {s['focus']}. Think of the weather.")
    return s.gen("plan", Plan, max_tokens=160)


def run_demo(engine_or_model: Any = "smollm2", *, console: Console | None = None) -> Run[Plan]:
    """Runs the demo on an Engine, or on one that is made for a model's name or file, and closed."""
    from ramet.runtime.engine import Engine

    console = console or Console()
    if isinstance(engine_or_model, str | Path):
        with contextlib.suppress(RametError):  # Without files, each start compiles for itself.
            compile_with_bar(console)
        with console.status(f"Loading {engine_or_model}"):
            engine = Engine.from_model(engine_or_model)
        with engine:
            return run_demo(engine, console=console)
    console.print(Text("A day in Lisbon: four kinds of calls in one program", style="bold"))
    run = plan_a_day.using(temperature=0.0).start(backend=engine_or_model)
    watch(run, console)
    console.print()
    console.print(report(run))
    return run
