"""The server as an ASGI application over a running engine."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from ramet.runtime.server.chat_plan import ChatPlanner
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.context import ServerContext
from ramet.runtime.server.engine_api import EngineApi
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.http import install_error_handlers
from ramet.runtime.server.lifecycle import Lifecycle
from ramet.runtime.server.middleware import RequestLog
from ramet.runtime.server.openapi import install_openapi
from ramet.runtime.server.prompts import PromptEncoder
from ramet.runtime.server.protocol.anthropic import CountTokensRequest, MessagesRequest
from ramet.runtime.server.protocol.chat import ChatCompletionRequest
from ramet.runtime.server.protocol.completions import CompletionRequest
from ramet.runtime.server.protocol.embeddings import EmbeddingsRequest
from ramet.runtime.server.protocol.responses import InputTokensRequest, ResponsesRequest
from ramet.runtime.server.protocol.tokenize import DetokenizeRequest, TokenizeRequest
from ramet.runtime.server.routes.anthropic import anthropic_router
from ramet.runtime.server.routes.chat import chat_router
from ramet.runtime.server.routes.completions import completions_router
from ramet.runtime.server.routes.embeddings import embeddings_router
from ramet.runtime.server.routes.grammar import GrammarCheckRequest, grammar_router
from ramet.runtime.server.routes.models import AbortRequest, models_router
from ramet.runtime.server.routes.operations import operations_router
from ramet.runtime.server.routes.program_news import ProgramNewsRequest, program_news_router
from ramet.runtime.server.routes.responses import responses_router
from ramet.runtime.server.routes.tokenize import tokenize_router
from ramet.runtime.server.telemetry import Telemetry
from ramet.runtime.server.tenants import Tenants, read_keys_file
from ramet.runtime.server.tracing import NO_TRACING, Tracing

_BODIES = (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingsRequest,
    TokenizeRequest,
    DetokenizeRequest,
    AbortRequest,
    GrammarCheckRequest,
    MessagesRequest,
    CountTokensRequest,
    ResponsesRequest,
    InputTokensRequest,
    ProgramNewsRequest,
)


def create_app(
    engine: EngineApi,
    config: ServerConfig | None = None,
    lifecycle: Lifecycle | None = None,
    extensions: Sequence[Extension] = (),
    tracing: Tracing = NO_TRACING,
) -> FastAPI:
    """The application. It borrows the engine and the tracing: who made them closes them.

    ``lifecycle`` is given by who wants to drain the server; see ``serve``.
    """
    config = config or ServerConfig()
    model_names = config.served_model_names or (engine.model_name,)
    telemetry = Telemetry(model_names[0])
    context = ServerContext(
        engine=engine,
        config=config,
        prompts=PromptEncoder(engine.tokenizer),
        planner=ChatPlanner(engine.tokenizer, engine.chat_template, config),
        telemetry=telemetry,
        lifecycle=lifecycle or Lifecycle(),
        tenants=Tenants(read_keys_file(config.api_keys_file)),
        model_names=model_names,
    )
    app = FastAPI(title="Ramet", version="1", redirect_slashes=False)
    install_error_handlers(app)
    install_openapi(app, [*_BODIES, *(body for each in extensions for body in each.bodies)])
    key_needed = [Depends(context.authenticate)]
    routers = (
        chat_router,
        completions_router,
        embeddings_router,
        responses_router,
        anthropic_router,
        grammar_router,
        tokenize_router,
        models_router,
        program_news_router,
        *(each.router for each in extensions),
    )
    for router in routers:
        app.include_router(router(context), dependencies=key_needed)
    app.include_router(operations_router(context))
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    app.add_middleware(
        RequestLog, telemetry=context.telemetry, tracing=tracing, log=config.access_log
    )
    return app
