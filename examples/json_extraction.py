"""Extraction into a pydantic model: the text is held to the model's schema as it is written."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ramet import Engine
from ramet.lang import State, Value, program
from ramet.lang.backends.choose import BackendLike

TEXT = (
    "Ada Lovelace, born in London in 1815, was a mathematician. She wrote the first algorithm "
    "that was meant for a machine."
)


class Person(BaseModel):
    """A person, extracted from a text."""

    name: Annotated[str, Field(max_length=40)]
    born: Annotated[int, Field(ge=0, le=2100)]
    field: Literal["art", "mathematics", "medicine", "politics"]


@program
def extract(s: State, text: str) -> Value[Person]:
    """The person that a text is about."""
    s.system("You extract data from text and answer with JSON only.")
    s.user(f"{text}\nWho is this about? Give name, year of birth and field.")
    return s.gen("person", Person, max_tokens=96, temperature=0.0)


def main(backend: BackendLike | None = None) -> Person:
    """Extracts one person; on the bundled model by default."""
    if backend is None:
        with Engine.from_model("smollm2") as engine:
            return main(engine)
    run = extract.run(TEXT, backend=backend)
    print(run.result)
    return run.result


if __name__ == "__main__":
    main()
