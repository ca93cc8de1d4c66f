"""Tree of thought (Yao et al. 2023): propose several next steps, judge them, go on from the best.

All proposals of a level are written at once, and share all text above them.
"""

from __future__ import annotations

from ramet import Engine
from ramet.lang import State, program
from ramet.lang.backends.choose import BackendLike

NUM_PROPOSALS = 3
DEPTH = 2


@program
def solve(s: State, problem: str) -> tuple[list[str], str]:
    """The chosen steps and the answer."""
    s.system("You solve problems one short step at a time.")
    s.user(problem)
    steps: list[str] = []
    for level in range(DEPTH):
        branches = s.fork(NUM_PROPOSALS)
        scores: list[float] = []
        for branch in branches:
            branch.user("What is a good next step? One sentence.")
            branch.gen(f"step{level}", max_tokens=32, stop="\n", temperature=0.8)
            branch.user("Is this step right?")
            branch.select(f"judged{level}", ["yes", "no"])
        for branch in branches:
            judged = branch.get_meta_info(f"judged{level}").choice_scores
            scores.append(judged["yes"] - judged["no"])
        best = branches[scores.index(max(scores))]
        steps.append(best[f"step{level}"].value)
        s.assistant(f"Step {level + 1}: {best[f'step{level}']}")
        s.user("Go on.")
    answer = s.gen("answer", max_tokens=48)
    return steps, answer.value


def main(backend: BackendLike | None = None) -> str:
    """Solves one problem; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = solve.run(
        "A farmer has 15 sheep and buys 7 more. How many has she?", seed=1, backend=backend
    )
    steps, answer = run.result
    for step in steps:
        print(f"- {step}")
    print(answer)
    return answer


if __name__ == "__main__":
    main()
