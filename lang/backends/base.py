"""The contract between the executor and the backends that answer its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ramet.grammars.constraints import Constraint
from ramet.lang.graph.nodes import Gen, Role, Select
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.api.events import Finished, TextDelta, Usage
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import HintUpdate, ProgramHint


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a prompt; ``role`` is None for raw text.

    ``is_record``: the content is the record of an agent loop's turn (see ``AgentTurn``).
    """

    role: Role | None
    content: str
    is_record: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with every value in place.

    Either one message without a role (raw text, may be empty), or chat turns. In a chat the
    assistant speaks next: where the last turn is the assistant's, its content is the beginning
    of its text, and the call continues it.

    ``previous_call`` is the last call before this one in its state, and ``previous_text`` what it
    gave: that call's prompt and this text are what this prompt begins with. ``template_variables``
    are passed to the model's chat template, and so are the ``functions`` of an agent's tools.
    """

    messages: tuple[Message, ...]
    previous_call: str | None = None
    previous_text: str | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict, hash=False)
    functions: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @property
    def is_chat(self) -> bool:
        """Whether the prompt consists of chat turns."""
        return bool(self.messages) and self.messages[0].role is not None

    @property
    def text(self) -> str:
        """All contents joined; of a raw prompt, the prompt itself."""
        return "".join(message.content for message in self.messages)

    @property
    def continues_assistant(self) -> bool:
        """Whether the call continues a turn that the assistant has begun."""
        last = self.messages[-1] if self.messages else None
        return last is not None and last.role == "assistant" and not last.is_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The common fields of a generation and a scoring.

    ``program_id`` and ``node_id`` say which call of which run it is; ``hint`` is what the engine
    learns of the future of the run, None: nothing.
    """

    program_id: str
    node_id: str
    prompt: Prompt
    hint: ProgramHint | None = None
    name: str = ""
    cache_salt: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall(Call):
    """Continue ``prompt``; ``complete``, ``landing`` and ``agent_turn`` as in ``Gen``."""

    params: SamplingParams = field(default_factory=SamplingParams)
    constraint: Constraint | None = None
    complete: bool | None = None
    landing: float | None = None
    agent_turn: AgentTurn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCall(Call):
    """Scores ``continuations``: their log-probabilities after ``prompt``.

    With ``unconditional``, also how likely each is with nothing before it.
    """

    continuations: tuple[str, ...] = ()
    unconditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmCall(Call):
    """Compute ``prompt`` ahead of a call: its last turn, of any role, isn't finished."""


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    """Log-probabilities (natural) of one continuation's tokens, in order.

    ``unconditional_logprobs`` has as many, of the same tokens after nothing; empty when it
    wasn't asked for.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    unconditional_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of a ScoreCall: a score for each continuation, and the last call's end."""

    continuations: tuple[ContinuationScore, ...]
    finished: Finished


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call's position: in a chat or in raw text; after other text of its turn or not."""

    is_chat: bool
    continues_turn: bool


@runtime_checkable
class Backend(Protocol):
    """Answers calls. All methods run on an event loop, also concurrently.

    Errors are the runtime's typed ones, or the language's BackendError.
    """

    @property
    def name(self) -> str:
        """A short name for errors and traces."""
        ...

    def check(self, node: Gen | Select, place: CallPlace) -> None:
        """Raises UnsupportedError for a node that can't be expressed, before anything is sent."""
        ...

    def stream(self, call: GenerateCall) -> AsyncIterator[TextDelta | Finished]:
        """Streams the call's text, then its end. Closing the iterator aborts the call."""
        ...

    async def score(self, call: ScoreCall) -> Scores:
        """Log-probabilities of the continuations."""
        ...

    async def warm(self, call: WarmCall) -> Usage | None:
        """Puts a prompt's beginning into the cache and returns its usage; None if it didn't."""
        ...

    async def count_tokens(self, prompt: Prompt) -> int | None:
        """How many tokens a prompt has, or None if the backend doesn't know."""
        ...

    async def update_hint(self, update: HintUpdate) -> None:
        """Updates what is known of a run's future calls, so that prefixes kept for it can be
        evicted. Never fails: it changes no answer."""
        ...

    async def aclose(self) -> None:
        """Frees what the backend holds."""
        ...


def writes_tool_calls(backend: Backend | None) -> bool:
    """Whether a backend answers calls with an ``agent_turn``, by its property of this name; one
    without the property doesn't."""
    return bool(getattr(backend, "writes_tool_calls", False))


def shared_len(sequences: Sequence[Sequence[int]]) -> int:
    """How many tokens all sequences begin with in common; at least one token of each but the
    first is left out of it."""
    limit = min(len(sequences[0]), *(len(sequence) - 1 for sequence in sequences[1:]))
    first = sequences[0]
    for index in range(limit):
        if any(sequence[index] != first[index] for sequence in sequences):
            return index
    return max(limit, 0)
