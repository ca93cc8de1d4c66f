"""Sends each node as soon as the values that it needs are there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ramet.lang.backends.base import Backend, GenerateCall, Prompt, ScoreCall, WarmCall
from ramet.lang.base.errors import OutputTruncatedError, ScriptError
from ramet.lang.graph.nodes import Gen, Join, Node, Select, ToolCall
from ramet.lang.graph.references import Ref
from ramet.lang.run.events import NodeStarted, TextPiece
from ramet.lang.run.hints import Promises, ahead_hint, hint_for
from ramet.lang.run.prompts import Prompts, fill, render
from ramet.lang.run.selection import best_choice
from ramet.lang.run.session import Session
from ramet.lang.trace.records import CallRecord
from ramet.lang.types.options import brief_params
from ramet.lang.types.types import TEXT
from ramet.lang.types.values import Meta, NodeResult, text_of
from ramet.runtime.api.errors import InvalidConstraintError, RequestAbortedError
from ramet.runtime.api.events import Finished, TextDelta, TokenInfo
from ramet.runtime.api.request import HintUpdate, ProgramHint


class Executor:
    """Executes the nodes of one session, each as a task on the session's loop."""

    def __init__(self, session: Session, backend: Backend) -> None:
        self._session = session
        self._backend = backend
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warmed: set[Prompt] = set()
        self._prompts = Prompts(session.graph, session.text_of)
        self._promises = Promises(session)
        self._unneeded: list[str] = []
        session.on_dead_end = self._note_dead_end
        self._began = time.perf_counter()
        self.began_at = time.time()
        self.records: dict[str, CallRecord] = {}

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def start(self, node: Node) -> None:
        """Begins to wait for what a node needs; returns at once."""
        if isinstance(node, Join) and node.of in ("branch", "agent"):
            return  # its own code settles it
        record = self.records[node.id] = CallRecord(node.id, node.label, node.kind, self.now())
        record.is_chat = node.role is not None
        if isinstance(node, Gen):
            record.request = brief_params(node.params)
        task = asyncio.get_running_loop().create_task(self._execute(node))
        self._tasks[node.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(node.id, None))

    async def drain(self) -> None:
        """Waits until no node is on its way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def abort(self) -> None:
        """Ends every node that is on its way; one that hasn't begun is never sent."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def cancel(self) -> None:
        """Aborts, and waits until all calls have ended. Only the end is reported after that."""
        self._session.on_dead_end = lambda _: None
        self._unneeded.clear()
        self.abort()
        await self.drain()
        for node_id in self._session.unsettled():
            self._session.fail(node_id, RequestAbortedError("the run was cancelled"))

    async def _execute(self, node: Node) -> None:
        session, record = self._session, self.records[node.id]
        try:
            needs = session.graph.needs(node.id)
            self._prefill_ahead(node, needs)
            for needed in needs:
                await session.slot(needed).wait()
            failed = session.failure_among(needs)
            if failed is not None:
                raise failed
            record.sent_s = self.now()
            session.log.append(NodeStarted(node))
            result = await self._perform(node)
        except asyncio.CancelledError:
            session.fail(node.id, RequestAbortedError("the run was cancelled"))
            record.error, record.error_type = "cancelled", "cancelled"
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            record.error = str(error) or type(error).__name__
            record.error_type = type(error).__name__
            record.finished_s = self.now()
            session.fail(node.id, error)
        else:
            record.finished_s = self.now()
            record.usage, record.timings = result.meta.usage, result.meta.timings
            record.finish_reason = result.meta.finish_reason
            session.finish(node.id, result)

    def _prefill_ahead(self, node: Node, needs: frozenset[str]) -> None:
        """While a call waits for a value, lets the backend compute its prompt up to there."""
        session = self._session
        if not session.options.prefill_ahead or not isinstance(node, Gen | Select):
            return
        if all(session.is_settled(needed) for needed in needs):
            return
        head = self._prompts.static_head(node, session.is_settled)
        if head is not None and head not in self._warmed:
            self._warmed.add(head)
            task = asyncio.get_running_loop().create_task(self._warm(node, head))
            self._tasks[f"{node.id} ahead"] = task
            task.add_done_callback(lambda _: self._tasks.pop(f"{node.id} ahead", None))

    async def _warm(self, node: Gen | Select, head: Prompt) -> None:
        options = self._session.options
        call = WarmCall(
            program_id=self._session.program_id,
            node_id=node.id,
            prompt=head,
            hint=ahead_hint(self._session, node),
            name=node.name,
            cache_salt=options.cache_salt,
            priority=options.priority,
        )
        record = CallRecord(node.id, node.label, "prefill", self.now(), sent_s=self.now())
        try:
            usage = await self._backend.warm(call)
        except Exception:  # it was only ahead of time; the call itself will meet what is wrong
            return
        if usage is not None:
            record.usage, record.finished_s = usage, self.now()
            self.records[f"{node.id} ahead"] = record

    async def _perform(self, node: Node) -> NodeResult:
        if isinstance(node, Gen):
            return await self._generate(node)
        if isinstance(node, Select):
            return await self._select(node)
        if isinstance(node, ToolCall):
            return await self._call_tool(node)
        assert isinstance(node, Join)
        if node.of == "text":
            text = render(node.parts, self._session.text_of)
            return NodeResult(text, text)
        results = [self._session.result_of(input_id) for input_id in node.inputs]
        return NodeResult(
            "\n".join(self._session.text_of(Ref(input_id)) for input_id in node.inputs),
            [result.value for result in results],
        )

    async def _generate(self, node: Gen) -> NodeResult:
        """Runs a Gen; a constraint that the backend refuses is named by its option of ``gen``."""
        try:
            return await self._stream(node)
        except InvalidConstraintError as error:
            option = self._session.outputs.get(node.id, TEXT).option
            if not option:
                raise
            raise InvalidConstraintError(
                f"{option}: {error.message}",
                param=option,
                code=error.code,
                pointer=error.pointer,
                reason=error.reason,
            ) from error

    async def _stream(self, node: Gen) -> NodeResult:
        session = self._session
        call = GenerateCall(
            program_id=session.program_id,
            node_id=node.id,
            prompt=self._prompts.prompt(node),
            hint=self._hint(node),
            name=node.name,
            cache_salt=session.options.cache_salt,
            priority=session.options.priority,
            params=node.params,
            constraint=node.constraint,
            complete=node.complete,
        )
        pieces: list[str] = []
        tokens: list[TokenInfo] = []
        finished: Finished | None = None
        async for event in self._backend.stream(call):
            if isinstance(event, Finished):
                finished = event
            elif isinstance(event, TextDelta):
                tokens.extend(event.tokens)
                if event.text:
                    self._note_first_text(node)
                    pieces.append(event.text)
                    session.log.append(TextPiece(node, event.text))
        if finished is None:
            raise RequestAbortedError("the backend's stream ended before the call did")
        text = "".join(pieces)
        meta = Meta(finished.reason, finished.usage, finished.timings, tokens=tuple(tokens))
        return NodeResult(text, self._parse(node, text, finished), meta)

    def _hint(self, node: Gen | Select) -> ProgramHint | None:
        """The hint of a call that is sent now."""
        self._session.unsent.send(node)
        hint = hint_for(self._session, node)
        self._promises.sent(node, hint)
        return hint

    def _note_dead_end(self, node: Node) -> None:
        """Reports the calls whose prefixes are kept without need, as nothing follows a node."""
        unneeded = list(self._promises.broken_by(node))
        if unneeded and not self._unneeded:
            asyncio.get_running_loop().call_soon(self._send_hint_update)
        self._unneeded += unneeded

    def _send_hint_update(self) -> None:
        unneeded, self._unneeded = self._unneeded, []
        if not unneeded:
            return  # the run is over
        session = self._session
        update = HintUpdate(
            program_id=session.program_id,
            cache_salt=session.options.cache_salt,
            unneeded=tuple(unneeded),
        )
        task = asyncio.get_running_loop().create_task(self._backend.update_hint(update))
        self._tasks[f"update {unneeded[0]}"] = task
        task.add_done_callback(lambda _: self._tasks.pop(f"update {unneeded[0]}", None))

    def _note_first_text(self, node: Node) -> None:
        record = self.records[node.id]
        if record.first_text_s is None:
            record.first_text_s = self.now()

    def _parse(self, node: Gen, text: str, finished: Finished) -> Any:
        output = self._session.outputs.get(node.id, TEXT)
        if node.constraint is not None and finished.reason == "length":
            limit = node.params.max_tokens
            after = "the context was full" if limit is None else f"max_tokens ({limit})"
            reason = f"it ended after {after}, before it was complete"
            raise OutputTruncatedError(text, output.label, reason)
        return output.parse(text)

    async def _select(self, node: Select) -> NodeResult:
        session = self._session
        choices = tuple(render(choice, session.text_of) for choice in node.choices)
        call = ScoreCall(
            program_id=session.program_id,
            node_id=node.id,
            prompt=self._prompts.prompt(node),
            hint=self._hint(node),
            name=node.name,
            cache_salt=session.options.cache_salt,
            priority=session.options.priority,
            continuations=choices,
            unconditional=node.method == "unconditional_likelihood_normalized",
        )
        scores = await self._backend.score(call)
        if len(scores.continuations) != len(choices):
            raise ScriptError("the backend scored another number of choices than it was given")
        best, numbers = best_choice(scores.continuations, node.method)
        self._note_first_text(node)
        session.log.append(TextPiece(node, choices[best]))
        meta = Meta(
            "stop",
            scores.finished.usage,
            scores.finished.timings,
            choice_scores=dict(zip(choices, numbers, strict=True)),
        )
        return NodeResult(choices[best], choices[best], meta)

    async def _call_tool(self, node: ToolCall) -> NodeResult:
        tool = self._session.tools[node.id]
        session = self._session
        value = await tool.invoke(fill(node.arguments, session.result_of, session.text_of))
        return NodeResult(text_of(value), value)
