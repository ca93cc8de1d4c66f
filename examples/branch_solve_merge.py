"""A judge that branches, solves and merges (Saha et al. 2024): one branch a criterion, then one
verdict that sees all of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from ramet import Engine
from ramet.lang import State, Value, program
from ramet.lang.backends.choose import BackendLike

CRITERIA = ("clarity", "originality", "evidence")
ESSAY = (
    "Cities should plant more trees. Trees give shade, and shade lets people walk in summer. "
    "A street in my town lost its trees and its cafés closed within a year."
)


class Verdict(BaseModel):
    """What the judge decides."""

    grade: Annotated[int, Field(ge=1, le=10)]
    reason: Annotated[str, Field(max_length=120)]


@program
def judge(s: State, essay: str) -> Value[Verdict]:
    """The verdict on an essay."""
    s.system("You are a fair judge of essays. You are brief.")
    s.user(f"Essay: {essay}")
    branches = s.fork(len(CRITERIA))
    for branch, criterion in zip(branches, CRITERIA, strict=True):
        branch.user(f"Judge the essay's {criterion} in one sentence.")
        branch.gen("judgement", max_tokens=40, stop="\n")
    judgements = "".join(
        f"{criterion}: {judgement}\n"
        for criterion, judgement in zip(CRITERIA, branches["judgement"], strict=True)
    )
    s.user(f"These are the judgements:\n{judgements}Give a grade from 1 to 10 and a reason.")
    return s.gen("verdict", Verdict, max_tokens=100, temperature=0.0)


def main(backend: BackendLike | None = None) -> Verdict:
    """Judges one essay; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = judge.run(ESSAY, backend=backend)
    print(run.graph.tree())
    print(run.result)
    return run.result


if __name__ == "__main__":
    main()
