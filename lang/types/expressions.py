"""Expressions that can be appended to a state: texts, calls, roles, and sequences of them.

Expressions are plain frozen values with no run: they can be made anywhere, joined by ``+`` and
appended many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack, get_args

from ramet.lang.base.errors import UsageError
from ramet.lang.graph.nodes import Role, SelectMethod
from ramet.lang.types.options import GenOptions
from ramet.lang.types.values import Value, text_of
from ramet.runtime.api.names import nearest


class Expr:
    """Base of everything that ``+`` joins into a sequence."""

    def __add__(self, other: Appendable) -> SequenceExpr:
        return SequenceExpr((*_items(self), *_items(other)))

    def __radd__(self, other: Appendable) -> SequenceExpr:
        return SequenceExpr((*_items(other), *_items(self)))


Appendable = Expr | str | Value[Any]


@dataclass(frozen=True)
class GenExpr(Expr):
    """A text that the model will write."""

    name: str
    type: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SelectExpr(Expr):
    """A choice that the model will make by likelihood."""

    name: str
    choices: tuple[str | Value[Any], ...]
    method: SelectMethod = "token_length_normalized"


@dataclass(frozen=True)
class RoleExpr(Expr):
    """A whole chat turn."""

    role: Role
    items: tuple[Appendable, ...]


@dataclass(frozen=True)
class RoleMark(Expr):
    """The beginning or the end of a chat turn."""

    role: Role
    begins: bool


@dataclass(frozen=True)
class SequenceExpr(Expr):
    """Several things, one after the other."""

    items: tuple[Appendable, ...]


def _items(value: Appendable) -> tuple[Appendable, ...]:
    if isinstance(value, SequenceExpr):
        return value.items
    if not isinstance(value, Expr | str | Value):
        raise TypeError(f"a text, a call or a value was expected, not {type(value).__name__}")
    return (value,)


def gen(
    name: str = "", type_: Any = None, *, n: int | None = None, **options: Unpack[GenOptions]
) -> GenExpr:
    """A text for the model to write, or ``n`` of them, as variable ``name``.

    ``type_`` is a Python type, or a pattern such as ``regex(...)``: see ``State.gen``.
    """
    given = {} if n is None else {"n": n}
    return GenExpr(name or "", type_, {**options, **given})


def select(
    name: str = "",
    choices: Sequence[str | Value[Any]] = (),
    *,
    method: SelectMethod = "token_length_normalized",
) -> SelectExpr:
    """The likeliest of ``choices``, as variable ``name``. Nothing is sampled.

    ``method`` is how choices of different length are compared:
    ``token_length_normalized`` by their mean log-probability a token,
    ``greedy_token_selection`` token by token, keeping the likeliest,
    ``unconditional_likelihood_normalized`` by how much the prompt raises each
    (Brown et al. 2020, section 2.4).
    """
    if isinstance(choices, str) or not choices:
        raise UsageError("select takes a list of texts, at least one")
    if method not in get_args(SelectMethod):
        known = ", ".join(get_args(SelectMethod))
        hint = nearest(str(method), get_args(SelectMethod))
        raise UsageError(f"unknown select method {method!r}; available: {known}{hint}")
    return SelectExpr(name or "", tuple(choices), method)


def system(*items: Appendable) -> RoleExpr:
    """A system turn."""
    return RoleExpr("system", items)


def user(*items: Appendable) -> RoleExpr:
    """A user turn."""
    return RoleExpr("user", items)


def assistant(*items: Appendable) -> RoleExpr:
    """An assistant turn: text, calls, or both."""
    return RoleExpr("assistant", items)


def examples(pairs: Iterable[tuple[Appendable, Any]]) -> SequenceExpr:
    """Turns of a user and an assistant, as examples of what is asked and how it is answered.

    An answer that is no text, such as a pydantic model, is written as JSON, as ``gen`` writes it.
    """
    turns: list[RoleExpr] = []
    for question, answer in pairs:
        is_text = isinstance(answer, Expr | str | Value)
        turns += [user(question), assistant(answer if is_text else text_of(answer))]
    return SequenceExpr(tuple(turns))


def system_begin() -> RoleMark:
    """Begins a system turn that ``system_end()`` ends."""
    return RoleMark("system", begins=True)


def system_end() -> RoleMark:
    """Ends a system turn."""
    return RoleMark("system", begins=False)


def user_begin() -> RoleMark:
    """Begins a user turn that ``user_end()`` ends."""
    return RoleMark("user", begins=True)


def user_end() -> RoleMark:
    """Ends a user turn."""
    return RoleMark("user", begins=False)


def assistant_begin() -> RoleMark:
    """Begins an assistant turn that ``assistant_end()`` ends."""
    return RoleMark("assistant", begins=True)


def assistant_end() -> RoleMark:
    """Ends an assistant turn."""
    return RoleMark("assistant", begins=False)
