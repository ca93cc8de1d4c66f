"""Retrieval-augmented answers with re-ranking: each passage is scored by how much likelier it
makes "yes" to the question whether it helps, and the best ones go into the prompt."""

from __future__ import annotations

from ramet import Engine
from ramet.lang import State, program
from ramet.lang.backends.choose import BackendLike

PASSAGES = (
    "The tram line 28 runs from Martim Moniz to Campo de Ourique.",
    "Pastéis de nata are custard tarts that were first made in Belém.",
    "The Oceanarium has a tank of five million litres.",
    "The first pastéis were sold in 1837 by the monks' heirs.",
)
NUM_KEPT = 2


def relevance(s: State, passage: str, question: str) -> float:
    """How much the passage helps, as a log-probability ratio."""
    s.user(f"Passage: {passage}\nQuestion: {question}\nDoes the passage help? Answer yes or no.")
    scores = s.select("helps", ["yes", "no"]).meta.choice_scores
    return scores["yes"] - scores["no"]


@program
def answer(s: State, question: str) -> tuple[list[str], str]:
    """The passages that were kept, and the answer."""
    s.system("You answer questions from passages. You are brief.")
    scored = [s.spawn(relevance, passage, question) for passage in PASSAGES]
    ranked = sorted(zip(scored, PASSAGES, strict=True), key=lambda pair: -pair[0].value)
    kept = [passage for _, passage in ranked[:NUM_KEPT]]
    s.user("Passages:\n" + "\n".join(kept) + f"\nQuestion: {question}")
    return kept, s.gen("answer", max_tokens=40, temperature=0.0).value


def main(backend: BackendLike | None = None) -> str:
    """Answers one question; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    kept, text = answer.run("When were the first pastéis sold?", backend=backend).result
    for passage in kept:
        print(f"* {passage}")
    print(text)
    return text


if __name__ == "__main__":
    main()
