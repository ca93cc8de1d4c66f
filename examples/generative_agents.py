"""Generative agents (Park et al. 2023): characters that plan their day hour by hour, all at once.

Each character is a run of its own; a batch shares the world that they all live in.
"""

from __future__ import annotations

from typing import Literal

from ramet import Engine
from ramet.lang import State, Value, program
from ramet.lang.backends.choose import BackendLike

WORLD = (
    "The village has a bakery, a school, a library and a lake. It is a sunny day in May. "
    "Everybody knows everybody. In the evening there is music at the lake."
)
CHARACTERS = {
    "Mara": "a baker who loves to sing",
    "Jon": "a teacher who is writing a novel",
    "Ines": "a student who is new in the village",
}
Place = Literal["bakery", "school", "library", "lake"]


@program
def plan_day(s: State, name: str, traits: str) -> dict[str, str]:
    """Where the character goes at each time of the day, and a thought about it all."""
    s.system(WORLD)
    s.user(f"{name} is {traits}. We plan {name}'s day.")
    plan: dict[str, tuple[Value[str], Value[str]]] = {}
    for time in ("morning", "afternoon", "evening"):
        s.user(f"Where does {name} go in the {time}?")
        place = s.gen(f"{time}_place", Place, temperature=0.7)
        s.user(f"What does {name} do there? One short sentence.")
        doing = s.gen(f"{time}_doing", max_tokens=28, stop="\n", temperature=0.7)
        plan[time] = (place, doing)
    s.user(f"What does {name} think at the end of the day? One short sentence.")
    thought = s.gen("thought", max_tokens=28, stop="\n", temperature=0.7)
    days = {time: f"{place.value}, {doing.value}" for time, (place, doing) in plan.items()}
    return {**days, "thought": thought.value}


def main(backend: BackendLike | None = None) -> list[dict[str, str]]:
    """Plans the characters' days; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    batch = [{"name": name, "traits": traits} for name, traits in CHARACTERS.items()]
    runs = plan_day.run_batch(batch, backend=backend, seed=3)
    for arguments, run in zip(batch, runs, strict=True):
        print(arguments["name"])
        for time, what in run.result.items():
            print(f"  {time}: {what}")
    return [run.result for run in runs]


if __name__ == "__main__":
    main()
