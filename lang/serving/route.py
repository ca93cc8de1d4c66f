"""``POST /v1/programs``: runs a graph on the server and streams its values by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.lang.backends.engine import EngineBackend
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.run.events import RunEnded
from ramet.lang.run.graph_run import run_graph
from ramet.lang.serving.admit import check_calls, read_graph
from ramet.lang.serving.body import ProgramRequest
from ramet.lang.serving.call import ProgramCall, ProgramRun
from ramet.lang.serving.output import ProgramOutput, plain_error
from ramet.lang.serving.recent_runs import RecentRuns
from ramet.lang.trace.timeline import timeline_svg
from ramet.runtime.api.request import GrammarScope
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.server.calls.call import Call
from ramet.runtime.server.calls.context import ServerContext, field_warnings, tenant_of, trace_of
from ramet.runtime.server.calls.respond import abort_on_disconnect, respond
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.http.error_response import error_headers
from ramet.runtime.server.http.json_response import JsonResponse, new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.http.sse import named_event

_SVG_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
}


def programs_router(context: ServerContext) -> APIRouter:
    """The program routes of a server."""
    router = APIRouter(tags=["Ramet"])
    recent = RecentRuns()

    @router.get("/ui/data/runs", include_in_schema=False)
    async def runs(http_request: HttpRequest) -> Response:
        """The tenant's last programs."""
        return JsonResponse({"runs": recent.list(tenant_of(http_request).name)})

    @router.get("/ui/data/runs/{call_id}", include_in_schema=False)
    async def run_picture(call_id: str, http_request: HttpRequest) -> Response:
        """A program's timeline."""
        trace = recent.find(tenant_of(http_request).name, call_id)
        return Response(timeline_svg(trace), media_type="image/svg+xml", headers=_SVG_HEADERS)

    @router.post("/v1/programs", openapi_extra=json_body(ProgramRequest))
    async def programs(http_request: HttpRequest) -> Response:
        """Runs a program's graph."""
        body = await context.body(http_request, ProgramRequest)
        model = context.check_model(body.model)
        graph = await read_graph(body.graph, context.config)
        trace_of(http_request).describe(model)
        call_id = body.request_id or new_id("prog")
        call = Call(context, http_request, call_id, deadline_s=body.deadline_s)
        program_call = ProgramCall(context, call, recent)
        try:
            call.trace.begin_program(call.id, graph.name, call.tenant.name)
            backend = EngineBackend(program_call.engine)
            async with abort_on_disconnect(http_request, call):
                scope = GrammarScope(call.tenant.name, call.tenant.scoped(body.cache_salt or ""))
                await call.wait_for(check_calls(graph, backend, context.engine, scope))
            run = run_graph(
                graph,
                backend=backend,
                seed=body.seed,
                cache_salt=body.cache_salt or "",
                priority=body.priority,
                max_text_len=context.config.max_body_bytes,
                loop=asyncio.get_running_loop(),
            )
            program_call.attach_run(run)
        except BaseException:
            program_call.close()
            raise
        warnings = field_warnings(http_request)
        program = _Program(call, run, graph, model, int(time.time()), warnings)
        return await respond(
            http_request,
            program_call,
            stream=program.stream() if body.stream else None,
            whole=program.whole,
        )

    return router


PROGRAMS = Extension(programs_router, (ProgramRequest,))
"""The extension by which a server runs programs."""


@dataclass(frozen=True, slots=True)
class _Program:
    """A running program and its response."""

    call: Call
    run: ProgramRun
    graph: RequestGraph
    model: str
    created: int
    warnings: FieldWarnings

    def output(self) -> ProgramOutput:
        return ProgramOutput({node.id: index for index, node in enumerate(self.graph)})

    def head(self) -> dict[str, Any]:
        return {
            "id": self.call.id,
            "object": "program",
            "created": self.created,
            "model": self.model,
            "program": self.graph.name,
        }

    def end(self, output: ProgramOutput, ended: RunEnded) -> dict[str, Any]:
        """The last event."""
        result = {**self.head(), "values": self.run.values, "usage": output.usage}
        error = self.call.reason or ended.error
        if error is None:
            return {"type": "program.completed", **result}
        return {"type": "program.failed", **result, "error": output.error_body(error)}

    async def whole(self) -> Response:
        """Answers in one piece."""
        output = self.output()
        async for events in self.run.events.batches():
            output.feed(events)
            if isinstance(ended := events[-1], RunEnded):
                answer = self.end(output, ended)
                del answer["type"]
                answer["calls"] = output.calls
                error = self.call.reason or ended.error
                if error is None:
                    return JsonResponse(answer)
                known = plain_error(error)
                return JsonResponse(
                    answer, status_code=known.status, headers=dict(error_headers(known))
                )
        raise AssertionError("every run ends")

    async def stream(self) -> AsyncIterator[bytes]:
        """Yields the events as server-sent events."""
        output = self.output()
        number = 0

        def written(shaped: dict[str, Any]) -> bytes:
            nonlocal number
            number += 1
            return named_event(shaped["type"], {**shaped, "sequence_number": number - 1})

        num_calls = len(self.graph.calls())
        created = {"type": "program.created", **self.head(), "num_calls": num_calls}
        yield written(created | self.warnings.fields())
        async for events in self.run.events.batches():
            shaped = [written(each) for each in output.feed(events)]
            if isinstance(ended := events[-1], RunEnded):
                shaped.append(written(self.end(output, ended)))
            if shaped:
                yield b"".join(shaped)
