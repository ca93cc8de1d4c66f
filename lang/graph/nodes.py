"""The nodes of a RequestGraph: frozen, plain data.

A node's id is its place: ``"3"`` is the fourth node of the run's first state, ``"3.1.0"`` the
first node of the second branch of the fork at ``"3"``. So ids are the same in every run that
takes the same path, however its calls were timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ramet.grammars.constraints import Constraint
from ramet.lang.graph.references import Ref, Template
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.api.params import SamplingParams

Role = Literal["system", "user", "assistant", "tool"]

SelectMethod = Literal[
    "token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"
]

JoinKind = Literal["values", "text", "branch", "agent"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """The base of all nodes.

    Attributes:
        id: the node's place.
        parent: the node that it follows in its state; the Fork, for a branch's first; None for
            the first of a run. The prompt of a call is the text of the nodes that it follows.
        role: the speaker, or None in raw text.
        turn: which chat turn of the state the node belongs to; nodes of one turn are one message.
    """

    kind: ClassVar[str] = ""
    id: str
    parent: str | None = None
    role: Role | None = None
    turn: int = 0

    @property
    def label(self) -> str:
        """The variable that the node sets, or else its kind."""
        return getattr(self, "name", "") or self.kind

    def refs(self) -> Iterator[Ref]:
        """The values that the node itself refers to (its prompt's are not among them)."""
        return iter(())


@dataclass(frozen=True, kw_only=True)
class Text(Node):
    """Text of a prompt."""

    kind = "text"
    parts: Template = ()

    def refs(self) -> Iterator[Ref]:
        return (part for part in self.parts if isinstance(part, Ref))


@dataclass(frozen=True, kw_only=True)
class Gen(Node):
    """A text that the model writes after the node's prompt.

    Attributes:
        returns: the name of the text's Python type.
        agent_turn: the turn of an agent loop that the text is the record of, in the model's own
            format of calls; None: the text is what the model writes.
        complete: whether the output ends valid within ``max_tokens``; None: where it is held to a
            constraint, nothing may forbid its end, and the backend can see to it.
        landing: the share of ``max_tokens`` from which on the output is led to its end; None: it
            isn't.
    """

    kind = "gen"
    name: str
    params: SamplingParams = field(default_factory=SamplingParams)
    constraint: Constraint | None = None
    complete: bool | None = None
    landing: float | None = None
    returns: str = "str"
    agent_turn: AgentTurn | None = None


@dataclass(frozen=True, kw_only=True)
class Select(Node):
    """One of ``choices``: the one that the model finds likeliest by ``method``."""

    kind = "select"
    name: str
    choices: tuple[Template, ...] = ()
    method: SelectMethod = "token_length_normalized"

    def refs(self) -> Iterator[Ref]:
        return (part for choice in self.choices for part in choice if isinstance(part, Ref))


@dataclass(frozen=True, kw_only=True)
class ToolCall(Node):
    """A Python function's run. ``arguments`` may hold references at any depth."""

    kind = "tool"
    name: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> Iterator[Ref]:
        return _refs_in(self.arguments)


@dataclass(frozen=True, kw_only=True)
class Fork(Node):
    """Splits a state into branches that share everything before it."""

    kind = "fork"
    num_branches: int


@dataclass(frozen=True, kw_only=True)
class Join(Node):
    """What becomes of several nodes: ``values`` is the list of one variable's values in all
    branches of a fork; ``text`` is a text made of ``parts``; ``branch`` what a spawned function
    returned; ``agent`` the answer of an agent loop. The ``inputs`` of the last two are known when
    they have ended."""

    kind = "join"
    name: str
    of: JoinKind = "values"
    inputs: tuple[str, ...] = ()
    parts: Template = ()

    def refs(self) -> Iterator[Ref]:
        yield from (Ref(node_id) for node_id in self.inputs)
        yield from (part for part in self.parts if isinstance(part, Ref))


CALL_KINDS = (Gen, Select)
"""Nodes that the model answers, and whose text later prompts of their state contain."""


@dataclass(frozen=True)
class TextWithRefs:
    """A string among a ToolCall's arguments that holds references."""

    parts: Template


def _refs_in(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, TextWithRefs):
        yield from (part for part in value.parts if isinstance(part, Ref))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _refs_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _refs_in(item)
