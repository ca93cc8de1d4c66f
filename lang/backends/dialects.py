"""The features of each kind of server's API, as one table a kind."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from ramet.grammars.constraints import (
    Choice,
    Constraint,
    Ebnf,
    JsonObject,
    JsonSchema,
    Regex,
    StructuralTag,
)
from ramet.grammars.constraints.serialize import constraint_to_json
from ramet.lang.backends.base import CallPlace, GenerateCall
from ramet.lang.base.errors import UnsupportedError
from ramet.lang.graph.nodes import Gen, Select
from ramet.lang.types.options import DEFAULT_MAX_TOKENS, given_fields
from ramet.runtime.api.params import SAMPLING_PARAMS

_OPENAI_FIELDS = frozenset(name for name, spec in SAMPLING_PARAMS.items() if spec.api == "openai")
_RECOMMENDED = frozenset({"temperature", "top_p", "top_k", "min_p", "repetition_penalty"})
_ALL_FIELDS = frozenset(SAMPLING_PARAMS) - {"prompt_logprobs"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The features that one kind of server supports.

    Attributes:
        name: for errors.
        fields: the sampling parameters that have a field of the same name.
        max_stops: how many stop strings a call may have.
        structured: whether ``structured_outputs`` is understood, and not only ``response_format``.
        prefill: whether an assistant's turn that has begun can be continued.
        scoring: how given text is scored: ``tokens`` by token ids and prompt log-probabilities,
            ``echo`` by the old completions API.
        salts, priorities: whether ``cache_salt`` and ``priority`` are understood.
        score_from: whether only a prompt's last tokens can be scored.
        hints: whether a ``ramet`` object with a ProgramHint is.
        structural_tags: whether a structural tag may be sent as this package spells it.
        template_variables: whether ``chat_template_kwargs`` is understood.
        server_defaults: the parameters for which the server may take the model's own value where
            a call has none, so that each call has one.
        completes: whether an output can be made to end valid within ``max_tokens``.
        min_max_tokens: the smallest ``max_tokens``.
    """

    name: str
    fields: frozenset[str]
    max_stops: int = 16
    structured: bool = False
    prefill: bool = False
    scoring: Literal["tokens", "echo"] = "echo"
    salts: bool = False
    priorities: bool = False
    score_from: bool = False
    hints: bool = False
    structural_tags: bool = False
    template_variables: bool = False
    server_defaults: frozenset[str] = frozenset({"temperature"})
    completes: bool = False
    min_max_tokens: int = 0

    def check(self, backend: str, node: Gen | Select, place: CallPlace) -> None:
        """Raises UnsupportedError for a node that this API can't express."""
        if place.continues_turn and place.is_chat and not self.prefill:
            raise UnsupportedError(
                backend, "way to continue an assistant's turn that has begun", node.id
            )
        if isinstance(node, Select):
            if place.is_chat and self.scoring == "echo":
                raise UnsupportedError(
                    backend, "log-probabilities of given text in a chat", node.id
                )
            return
        for name in given_fields(node.params):
            if name not in self.fields:
                raise UnsupportedError(backend, f"sampling parameter {name!r}", node.id)
        if len(node.params.stop) > self.max_stops:
            raise UnsupportedError(backend, f"room for more than {self.max_stops} stops", node.id)
        if (node.complete or node.landing is not None) and not self.completes:
            raise UnsupportedError(backend, "way to promise a complete output", node.id)
        if node.constraint is not None:
            self.constraint_fields(backend, node.constraint, node.id)

    def sampling_fields(self, call: GenerateCall, *, is_chat: bool) -> dict[str, Any]:
        """The body's sampling fields: those that differ from the defaults."""
        body = {name: getattr(call.params, name) for name in given_fields(call.params)}
        for name in self.server_defaults:
            body[name] = getattr(call.params, name)
        if call.params.max_tokens is None and not is_chat and not self.completes:
            body["max_tokens"] = DEFAULT_MAX_TOKENS  # theirs is 16
        logprobs = body.pop("logprobs", None)
        if logprobs is not None:
            body |= (
                {"logprobs": True, "top_logprobs": logprobs} if is_chat else {"logprobs": logprobs}
            )
        if "logit_bias" in body:
            body["logit_bias"] = {str(key): value for key, value in body["logit_bias"].items()}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in body.items()}

    def constraint_fields(
        self, backend: str, constraint: Constraint, node_id: str
    ) -> dict[str, Any]:
        """The body's fields for a constraint. The order of a JSON object's properties is left to
        the server; what is valid isn't.

        Raises:
            UnsupportedError: the API has no such constraint.
        """
        if isinstance(constraint, JsonSchema) and not constraint.documents:
            if constraint.whitespace == "compact":
                schema = {"name": "value", "schema": constraint.schema, "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}
            if self.structured and constraint.whitespace == "none":
                return _structured(json=constraint.schema, disable_any_whitespace=True)
        if isinstance(constraint, JsonObject) and constraint.whitespace == "compact":
            return {"response_format": {"type": "json_object"}}
        if self.structured:
            if isinstance(constraint, Regex) and constraint.dialect == "python":
                return _structured(regex=constraint.pattern)
            if isinstance(constraint, Choice):
                return _structured(choice=list(constraint.choices))
            if isinstance(constraint, Ebnf) and constraint.start is None:
                return _structured(grammar=constraint.grammar)
            if isinstance(constraint, StructuralTag) and self.structural_tags:
                return _structured(structural_tag=constraint_to_json(constraint))
        raise UnsupportedError(backend, f"constraint {constraint.kind!r} of this form", node_id)


def _structured(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


OPENAI = Dialect("openai", _OPENAI_FIELDS, max_stops=4)
"""Any server that speaks OpenAI's API."""

VLLM = Dialect(
    "vllm",
    _ALL_FIELDS,
    structured=True,
    prefill=True,
    scoring="tokens",
    salts=True,
    priorities=True,
    template_variables=True,
    server_defaults=_RECOMMENDED,
    min_max_tokens=1,
)
"""A server with vLLM's extensions."""

RAMET = dataclasses.replace(
    VLLM,
    name="ramet",
    score_from=True,
    hints=True,
    structural_tags=True,
    completes=True,
    min_max_tokens=0,
)
"""A Ramet server."""

DIALECTS = {dialect.name: dialect for dialect in (OPENAI, VLLM, RAMET)}
