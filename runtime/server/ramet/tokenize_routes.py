"""``POST /tokenize`` and ``POST /detokenize``."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.logprobs import token_text
from ramet.runtime.server.http.body import run_for_body
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.openai.chat.bodies import offered_tools
from ramet.runtime.server.ramet.tokenize_bodies import DetokenizeRequest, TokenizeRequest


def tokenize_router(context: ServerContext) -> APIRouter:
    """The tokenizer's routes."""
    router = APIRouter(tags=["Tokenizer"])

    @router.post("/tokenize", openapi_extra=json_body(TokenizeRequest))
    async def tokenize(http_request: HttpRequest) -> Response:
        """A prompt's or a conversation's token ids."""
        body = await context.body(http_request, TokenizeRequest)
        context.check_model(body.model)
        ids = await _encode(context, body, http_request)
        answer = {
            "count": len(ids),
            "max_model_len": context.engine.max_context_len,
            "tokens": list(ids),
            "begin_token_id": context.prompts.tokenizer.begin_id,
        }
        if body.return_token_strs:
            token_bytes = context.prompts.tokenizer.token_bytes
            answer["token_strs"] = await run_for_body(
                http_request, lambda: [token_text(token_bytes(token_id)) for token_id in ids]
            )
        return JsonResponse(answer)

    @router.post("/detokenize", openapi_extra=json_body(DetokenizeRequest))
    async def detokenize(http_request: HttpRequest) -> Response:
        """The text of token ids."""
        body = await context.body(http_request, DetokenizeRequest)
        context.check_model(body.model)
        return JsonResponse({"prompt": await context.prompts.text(body.tokens, param="tokens")})

    return router


async def _encode(
    context: ServerContext, body: TokenizeRequest, http_request: HttpRequest
) -> tuple[int, ...]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidParameterError("give either prompt or messages", param="prompt")
    if body.messages is None:
        assert body.prompt is not None
        if not body.prompt:
            return ()
        (ids,) = await context.prompts.encode(
            [body.prompt], add_special_tokens=body.add_special_tokens
        )
        return ids
    return await context.planner.prompt(
        await run_for_body(http_request, lambda: _conversation(body))
    )


def _conversation(body: TokenizeRequest) -> Conversation:
    return Conversation(
        messages=[message.for_template() for message in body.messages or ()],
        tools=offered_tools(body.tools),
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        template_variables=body.chat_template_kwargs or {},
    )
