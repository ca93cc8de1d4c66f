"""A chat of several turns, streamed. Each turn computes only what is new in it."""

from __future__ import annotations

from collections.abc import Sequence

from ramet import Engine
from ramet.lang import State, program
from ramet.lang.backends.choose import BackendLike

QUESTIONS = ("What is a haiku?", "Write one about rain.", "Now one about snow.")


@program
def chat(s: State, questions: Sequence[str]) -> None:
    """Asks one question after the other."""
    s.system("You are a poet. You are brief.")
    for number, question in enumerate(questions):
        s.user(question)
        s.gen(f"answer{number}", max_tokens=48)


def main(backend: BackendLike | None = None) -> list[dict[str, str]]:
    """Streams a chat; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = chat.stream(QUESTIONS, backend=backend)
    for number, question in enumerate(QUESTIONS):
        print(f"\n> {question}")
        for piece in run.text_iter(f"answer{number}"):
            print(piece, end="", flush=True)
    print()
    for record in run.wait().trace.calls:
        print(f"{record.name}: {record.usage.cached_tokens}/{record.usage.prompt_tokens} cached")
    return run.messages()


if __name__ == "__main__":
    main()
