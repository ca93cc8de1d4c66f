"""A ReAct agent (Yao et al. 2023): the model acts by calling tools until it can answer.

A call can only be written as the tools' schemas allow, so it always parses and validates.
"""

from __future__ import annotations

from typing import Literal

from ramet import Engine
from ramet.lang import AgentLimits, State, Value, program, tool
from ramet.lang.backends.choose import BackendLike

HEIGHTS = {"Mont Blanc": 4806, "Elbrus": 5642, "Teide": 3715}


@tool
def height(mountain: Literal["Mont Blanc", "Elbrus", "Teide"]) -> int:
    """The height of a mountain in metres."""
    return HEIGHTS[mountain]


@tool
def subtract(larger: int, smaller: int) -> int:
    """The difference of two numbers."""
    return larger - smaller


@program
def answer(s: State, question: str) -> Value[str]:
    """Answers a question with the help of tools."""
    s.system("You answer questions. Look up what you need with tools, then answer briefly.")
    s.user(question)
    return s.tools(
        [height, subtract],
        require_call=True,
        limits=AgentLimits(max_turns=4, max_calls_a_turn=1),
        max_tokens=128,
        temperature=0.0,
    )


def main(backend: BackendLike | None = None) -> str:
    """Answers one question; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = answer.run("How high is Teide?", backend=backend)
    for message in run.messages():
        print(f"{message['role']}: {message['content']}\n")
    return run.result


if __name__ == "__main__":
    main()
