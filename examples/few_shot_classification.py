"""Few-shot classification: the label is scored, not sampled, so it is always one of the labels.

The examples are the same for every text, so a batch computes them once.
"""

from __future__ import annotations

from ramet import Engine
from ramet.lang import State, Value, program
from ramet.lang.backends.choose import BackendLike

LABELS = ("positive", "negative", "neutral")
EXAMPLES = (
    ("The staff were kind and the room was spotless.", "positive"),
    ("We waited an hour and the soup was cold.", "negative"),
    ("The shop opens at nine.", "neutral"),
    ("I would go back tomorrow if I could.", "positive"),
)
TEXTS = (
    "The film was so dull that I fell asleep.",
    "What a wonderful concert!",
    "The train leaves from platform two.",
)


@program
def classify(s: State, text: str) -> Value[str]:
    """The label of a text."""
    s += "Label each review as positive, negative or neutral.\n\n"
    for review, label in EXAMPLES:
        s += f"Review: {review}\nLabel: {label}\n\n"
    s += f"Review: {text}\nLabel: "
    return s.select("label", LABELS)


def main(backend: BackendLike | None = None) -> list[str]:
    """Classifies a batch; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    runs = classify.run_batch([{"text": text} for text in TEXTS], backend=backend)
    for text, run in zip(TEXTS, runs, strict=True):
        scores = {label: round(s, 2) for label, s in run.meta("label").choice_scores.items()}
        print(f"{run.result:9} {text}  {scores}")
    return [run.result for run in runs]


if __name__ == "__main__":
    main()
