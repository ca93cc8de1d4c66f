"""Skeleton of thought (Ning et al. 2024): outline first, then write all points at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ramet import Engine
from ramet.lang import State, program
from ramet.lang.backends.choose import BackendLike

Outline = Annotated[
    list[Annotated[str, Field(min_length=3, max_length=40)]], Field(min_length=3, max_length=4)
]


@program
def write(s: State, question: str) -> str:
    """An answer made of points that were written in parallel."""
    s.system("You explain things clearly and briefly.")
    s.user(f"{question}\nList the main points of an answer, three to five words each.")
    points: list[str] = s.gen("points", Outline, temperature=0.3).value
    branches = s.fork(len(points))
    for branch, point in zip(branches, points, strict=True):
        branch.user(f"Write one sentence about this point: {point}")
        branch.gen("sentence", max_tokens=40, stop="\n")
    return "\n".join(f"{n}. {text.value}" for n, text in enumerate(branches["sentence"], start=1))


def main(backend: BackendLike | None = None) -> str:
    """Answers one question; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = write.run("How can I sleep better?", backend=backend)
    print(run.result)
    return run.result


if __name__ == "__main__":
    main()
