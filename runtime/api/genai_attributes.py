"""Span attributes of OpenTelemetry's semantic conventions for generative AI.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

One table for a server's spans and for those of a program's trace. Imports no OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.api.events import Usage
from ramet.runtime.api.params import SAMPLING_PARAMS

Attributes = dict[str, Any]

PROVIDER = "ramet"

_SAMPLING = {
    name: spec.trace_attribute for name, spec in SAMPLING_PARAMS.items() if spec.trace_attribute
}


def model_attributes(operation: str, model: str | None, provider: str = PROVIDER) -> Attributes:
    """The operation and its model; ``model`` is None if only the provider knows it."""
    known = {} if model is None else {"gen_ai.request.model": model}
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider, **known}


def sampling_attributes(values: Mapping[str, Any]) -> Attributes:
    """Attributes of the sampling parameters that have one."""
    return {_SAMPLING[name]: value for name, value in values.items() if name in _SAMPLING}


def usage_attributes(
    usages: Sequence[Usage], prompt_tokens: int, *, with_cached: bool = True
) -> Attributes:
    """Tokens that calls read and wrote; ``prompt_tokens`` counts a shared prompt once."""
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": prompt_tokens,
        "gen_ai.usage.output_tokens": sum(usage.completion_tokens for usage in usages),
        "ramet.usage.forced_tokens": sum(usage.forced_tokens for usage in usages),
    }
    if with_cached:
        cached = sum(usage.cached_tokens for usage in usages)
        attributes["gen_ai.usage.cache_read.input_tokens"] = cached
    return attributes


def finish_attributes(reasons: Sequence[str]) -> Attributes:
    """Why each choice ended."""
    return {"gen_ai.response.finish_reasons": list(reasons)}


def workflow_attributes(name: str) -> Attributes:
    """A whole program."""
    return {"gen_ai.workflow.name": name}
