"""The names that SGLang's frontend uses, so that its programs run with a change of import lines:
``import ramet.lang.sgl as sgl``.

Texts, roles, ``gen``, ``select``, ``fork`` and ``join``, variables, ``run``, ``run_batch`` and
streaming mean what they mean there. Two things differ, for the better: a variable is a Value, so
``s["x"]`` in an f-string doesn't wait; and what a backend can't do is an error, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ramet.lang.backends.choose import set_default_backend
from ramet.lang.backends.http import HttpBackend, connect
from ramet.lang.graph.nodes import SelectMethod
from ramet.lang.program import Program
from ramet.lang.run.run import Run
from ramet.lang.types.expressions import (
    Expr,
    GenExpr,
    assistant,
    assistant_begin,
    assistant_end,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
)
from ramet.lang.types.expressions import gen as _gen
from ramet.lang.types.expressions import select as _select

token_length_normalized: SelectMethod = "token_length_normalized"
greedy_token_selection: SelectMethod = "greedy_token_selection"
unconditional_likelihood_normalized: SelectMethod = "unconditional_likelihood_normalized"


class Function(Program[..., Any]):
    """A program whose ``run_batch`` takes SGLang's names, too."""

    def run_batch(
        self,
        batch: Iterable[Mapping[str, Any]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        **settings: Any,
    ) -> list[Run[Any]]:
        """At most ``num_threads`` runs at the same time, none in a thread of its own."""
        if num_threads != "auto":
            settings["max_concurrency"] = num_threads
        return super().run_batch(batch, progress=progress_bar, **settings)


def function(wrapped: Callable[..., Any]) -> Function:
    """``@function``: ``ramet.lang.program`` by SGLang's name."""
    return Function(wrapped)


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    choices: Sequence[str] | None = None,
    choices_method: SelectMethod = token_length_normalized,
    **options: Any,
) -> Expr:
    """``gen``; with ``choices`` it is ``select``, as there."""
    if choices is not None:
        return select(name, choices, choices_method=choices_method)
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    return _gen(name or "", **options)


def gen_int(name: str | None = None, **options: Any) -> GenExpr:
    """An integer."""
    return _gen(name or "", int, **options)


def gen_string(name: str | None = None, **options: Any) -> GenExpr:
    """A string in double quotes."""
    return _gen(name or "", regex=r'"[^"\\\x00-\x1f]*"', **options)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: SelectMethod = token_length_normalized,
) -> Expr:
    """``select``. The temperature changes nothing: nothing is sampled."""
    del temperature
    return _select(name or "", tuple(choices or ()), method=choices_method)


def RuntimeEndpoint(base_url: str, api_key: str | None = None) -> HttpBackend:
    """A backend for a server: ``connect``."""
    return connect(base_url, api_key=api_key)


def OpenAI(model: str, *, base_url: str, api_key: str | None = None) -> HttpBackend:
    """A backend for a server that speaks OpenAI's API."""
    return connect(base_url, model=model, api_key=api_key, dialect="openai")


__all__ = [
    "Function",
    "OpenAI",
    "RuntimeEndpoint",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "greedy_token_selection",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]
