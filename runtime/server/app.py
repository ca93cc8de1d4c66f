"""Builds the server as an ASGI application over a running engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from ramet.runtime.chat.planner import ChatPlanner
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.server.anthropic.bodies import CountTokensRequest, MessagesRequest
from ramet.runtime.server.anthropic.routes import anthropic_router
from ramet.runtime.server.calls.api_keys import read_tenants
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.lifecycle import Lifecycle
from ramet.runtime.server.calls.memory import ServerMemory
from ramet.runtime.server.calls.prompts import PromptEncoder
from ramet.runtime.server.calls.tenants import Tenants
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.http.body import BodyMemory
from ramet.runtime.server.http.documentation import documentation_router
from ramet.runtime.server.http.error_response import install_error_handlers
from ramet.runtime.server.http.head_check import HeadCheck
from ramet.runtime.server.http.middleware import RequestLog
from ramet.runtime.server.http.openapi import install_openapi
from ramet.runtime.server.observability.history import EngineHistory
from ramet.runtime.server.observability.metering import MeteringLog
from ramet.runtime.server.observability.metrics import ServerMetrics
from ramet.runtime.server.observability.stats_log import StatsLog
from ramet.runtime.server.observability.trace import NO_TRACING, Tracing
from ramet.runtime.server.ollama.bodies import (
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from ramet.runtime.server.ollama.routes import ollama_router
from ramet.runtime.server.openai.chat.bodies import ChatCompletionRequest
from ramet.runtime.server.openai.chat.routes import chat_router
from ramet.runtime.server.openai.completions.bodies import CompletionRequest
from ramet.runtime.server.openai.completions.routes import completions_router
from ramet.runtime.server.openai.embeddings.bodies import EmbeddingsRequest
from ramet.runtime.server.openai.embeddings.routes import embeddings_router
from ramet.runtime.server.openai.model_routes import AbortRequest, models_router
from ramet.runtime.server.openai.responses.bodies import InputTokensRequest, ResponsesRequest
from ramet.runtime.server.openai.responses.routes import responses_router
from ramet.runtime.server.ramet.grammar_routes import GrammarCheckRequest, grammar_router
from ramet.runtime.server.ramet.hint_update_routes import HintUpdateRequest, hint_updates_router
from ramet.runtime.server.ramet.operations_routes import operations_router
from ramet.runtime.server.ramet.tokenize_bodies import DetokenizeRequest, TokenizeRequest
from ramet.runtime.server.ramet.tokenize_routes import tokenize_router
from ramet.runtime.server.ui import page_router

_BODIES = (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingsRequest,
    TokenizeRequest,
    DetokenizeRequest,
    AbortRequest,
    GrammarCheckRequest,
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
    MessagesRequest,
    CountTokensRequest,
    ResponsesRequest,
    InputTokensRequest,
    HintUpdateRequest,
)


def create_app(
    engine: EngineApi,
    config: ServerConfig | None = None,
    lifecycle: Lifecycle | None = None,
    extensions: Sequence[Extension] = (),
    tracing: Tracing = NO_TRACING,
    tenants: Tenants | None = None,
) -> FastAPI:
    """Builds the application. The caller owns the engine and the tracing, and closes them.

    Pass a ``lifecycle`` to drain the server, and ``tenants`` to replace them; see ``serve``.
    """
    config = config or ServerConfig()
    model_names = config.served_model_names or (engine.model_name,)
    metrics = ServerMetrics(model_names[0])
    memory = ServerMemory(engine.memory_plan)
    metering = None
    if config.metering_log is not None:
        metering = MeteringLog(config.metering_log, model_names[0])
    context = ServerContext(
        engine=engine,
        config=config,
        prompts=PromptEncoder(engine.tokenizer, engine.max_context_len),
        planner=ChatPlanner(engine.tokenizer, engine.chat_template, config, engine.max_context_len),
        metrics=metrics,
        metering=metering,
        memory=memory,
        lifecycle=lifecycle or Lifecycle(),
        tenants=tenants or Tenants(read_tenants(config)),
        model_names=model_names,
    )
    history = EngineHistory(engine, metrics.recent)
    stats_log = StatsLog(history, config.stats_interval_s)

    @contextlib.asynccontextmanager
    async def sampling(_: FastAPI) -> AsyncIterator[None]:
        """Samples the engine while the application runs."""
        tasks = [asyncio.create_task(history.run()), asyncio.create_task(stats_log.run())]
        yield
        for task in tasks:
            task.cancel()
        if metering is not None:
            metering.close()

    app = FastAPI(
        title="Ramet", version="1", redirect_slashes=False, openapi_url=None, lifespan=sampling
    )
    install_error_handlers(app)
    install_openapi(app, [*_BODIES, *(body for each in extensions for body in each.bodies)])
    requires_key = [Depends(context.authenticate)]
    routers = (
        chat_router,
        completions_router,
        embeddings_router,
        responses_router,
        anthropic_router,
        ollama_router,
        grammar_router,
        tokenize_router,
        models_router,
        hint_updates_router,
        *(each.router for each in extensions),
    )
    for router in routers:
        app.include_router(router(context), dependencies=requires_key)
    app.include_router(operations_router(context))
    app.include_router(documentation_router(app, requires_key))
    app.include_router(page_router(context, history))
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    app.add_middleware(BodyMemory, part=memory.bodies)
    app.add_middleware(
        HeadCheck,
        host=config.host,
        allowed_hosts=config.allowed_hosts,
        origins=config.cors_origins,
    )
    app.add_middleware(RequestLog, metrics=context.metrics, tracing=tracing, log=config.access_log)
    return app
