"""Formats the response object of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ramet.runtime.api.errors import RametError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.choice import ChatChoice
from ramet.runtime.server.openai.responses.bodies import FunctionTool, ResponsesRequest


def new_response(
    body: ResponsesRequest,
    *,
    response_id: str,
    model: str,
    params: SamplingParams,
    created_at: int,
) -> dict[str, Any]:
    """The response object before generation, with the settings in force."""
    tool_choice = body.tool_choice or "auto"
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "service_tier": "default",
        "store": body.store,
        "temperature": params.temperature,
        "text": {"format": body.text.format.model_dump(exclude_none=True, by_alias=True)},
        "tool_choice": tool_choice
        if isinstance(tool_choice, str)
        else tool_choice.model_dump(exclude_none=True),
        "tools": [_shown_tool(tool) for tool in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def finished_fields(choice: ChatChoice, completed_at: int) -> dict[str, Any]:
    """Fields that the end of generation sets."""
    usage = choice.usage
    fields: dict[str, Any] = {
        "status": "completed",
        "completed_at": completed_at,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": 0,  # writing to the cache is free
            },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": choice.num_reasoning_tokens,
                "forced_tokens": usage.forced_tokens,
                "completion_forced_tokens": usage.completion_forced_tokens,
            },
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }
    if choice.finish_reason == "length":
        fields["status"] = "incomplete"
        fields["completed_at"] = None
        fields["incomplete_details"] = {"reason": "max_output_tokens"}
    return fields


def failed_fields(error: RametError) -> dict[str, Any]:
    """Fields that a failure during the stream sets."""
    kind = "rate_limit_exceeded" if error.status == 429 else "server_error"
    return {"status": "failed", "error": {"code": kind, "message": error.message}}


def _shown_tool(tool: BaseModel) -> dict[str, Any]:
    """A tool as the response lists it. Arguments always follow the schema."""
    strict = {"strict": True} if isinstance(tool, FunctionTool) else {}
    return strict | tool.model_dump(exclude_none=True)
