"""``POST /tokenize`` and ``POST /detokenize``, as in vLLM."""

from __future__ import annotations

from typing import Any

from ramet.runtime.server.openai.chat.bodies import Message, Tools
from ramet.runtime.server.protocol.base import ApiModel, Int


class TokenizeRequest(ApiModel):
    """Either ``prompt`` or ``messages``; the other fields as in completions and chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: Tools | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False


class DetokenizeRequest(ApiModel):
    """Token ids to decode, control tokens included."""

    model: str | None = None
    tokens: list[Int]
