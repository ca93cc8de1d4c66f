"""Self-consistency (Wang et al. 2023): reason several times, then take the commonest answer.

The branches share the question, run at once, and differ because each draws from its own seed.
"""

from __future__ import annotations

from collections import Counter

from ramet import Engine
from ramet.lang import State, assistant, gen, program
from ramet.lang.backends.choose import BackendLike

NUM_SAMPLES = 5


@program
def vote(s: State, question: str) -> tuple[int, dict[int, int]]:
    """The commonest answer, and how often each came."""
    s.system("You reason briefly, then give a number.")
    s.user(question)
    branches = s.fork(NUM_SAMPLES)
    for branch in branches:
        branch += assistant(
            "Let us think. ",
            gen("thought", max_tokens=40, temperature=0.8, stop="\n"),
            "\nSo the number is ",
            gen("number", int, max_tokens=8, temperature=0.0),
        )
    answers = Counter(number.value for number in branches["number"])
    return answers.most_common(1)[0][0], dict(answers)


def main(backend: BackendLike | None = None) -> int:
    """Answers one question; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    question = "A box holds 6 eggs. How many eggs are in 3 boxes?"
    best, votes = vote.run(question, seed=11, backend=backend).result
    print(best, votes)
    return best


if __name__ == "__main__":
    main()
