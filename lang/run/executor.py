"""Executes each node as soon as its inputs are resolved."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from ramet.lang.backends.base import Backend, GenerateCall, Prompt, ScoreCall, WarmCall
from ramet.lang.base.errors import OutputTruncatedError, ScriptError
from ramet.lang.graph.nodes import Fork, Gen, Join, Node, Select, Text, ToolCall
from ramet.lang.graph.references import Ref
from ramet.lang.run.events import NodeStarted, TextPiece
from ramet.lang.run.hints import Hints
from ramet.lang.run.outcomes import Outcomes
from ramet.lang.run.prompts import Prompts, fill, render
from ramet.lang.run.selection import best_choice
from ramet.lang.trace.records import CallRecord
from ramet.lang.types.matching import refused_constraint
from ramet.lang.types.options import brief_params
from ramet.lang.types.tools import Tool
from ramet.lang.types.types import TEXT, OutputType
from ramet.lang.types.values import Meta, NodeResult, text_of
from ramet.runtime.api.errors import InvalidConstraintError, RequestAbortedError
from ramet.runtime.api.events import Finished, TextDelta, TokenInfo
from ramet.runtime.api.request import HintUpdate, ProgramHint

NodeCode = OutputType[Any] | Tool[..., Any] | None
"""A node's Python object: a Gen's output type, a ToolCall's tool."""


class Executor:
    """Executes the nodes of one run, each as a task on the run's loop."""

    def __init__(self, outcomes: Outcomes, backend: Backend) -> None:
        self._outcomes = outcomes
        self._backend = backend
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warmed: set[Prompt] = set()
        self._prompts = Prompts(
            outcomes.graph, outcomes.text_of, outcomes.options.chat_template_kwargs
        )
        self._hints = Hints(outcomes)
        self._unneeded: list[str] = []
        self._lost: list[str] = []
        self._has_ended = False
        self._began = time.perf_counter()
        self.began_at = time.time()
        self.records: dict[str, CallRecord] = {}

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def start(self, node: Node, code: NodeCode) -> None:
        """Begins to wait for what a node needs; returns immediately."""
        if isinstance(node, Text | Fork) or (
            isinstance(node, Join) and node.of in ("branch", "agent")
        ):
            return  # a branch's own code settles it
        record = self.records[node.id] = CallRecord(node.id, node.label, node.kind, self.now())
        record.is_chat = node.role is not None
        if isinstance(node, Gen):
            record.request = brief_params(node.params)
        self._start_task(node.id, self._execute(node, code))

    async def drain(self) -> None:
        """Waits until no node runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def abort(self) -> None:
        """Cancels every node that runs; one that wasn't sent never is."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def cancel(self) -> None:
        """Aborts, and waits until all calls have ended. Only the end is reported after that."""
        self._has_ended = True
        self._unneeded.clear()
        self.abort()
        await self.drain()
        for node_id in self._outcomes.unsettled():
            self.fail(node_id, RequestAbortedError("the run was cancelled"))

    def fail(self, node_id: str, error: BaseException) -> None:
        """Settles a node with an error."""
        if self._outcomes.fail(node_id, error):
            self._report_unneeded(self._hints.drop_node(node_id))

    # Branches and hints.

    def add_node(self, node: Node) -> None:
        """Adds a node that may be used by later hints."""
        self._hints.add_node(node)

    def add_branch(self, branch: str) -> None:
        """Adds a branch whose state may grow."""
        self._hints.add_branch(branch)

    def end_branch(self, branch: str) -> None:
        """Ends a branch: nothing can be appended to its state any more."""
        self._report_unneeded(self._hints.end_branch(branch))

    def lose_branch(self, branch: str) -> None:
        """Ends the branch of a state that was garbage-collected, on any thread, at any point."""
        self._lost.append(branch)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the run is over
            self._outcomes.loop.call_soon_threadsafe(self._end_lost_branches)

    def _end_lost_branches(self) -> None:
        while self._lost:
            self.end_branch(self._lost.pop())

    def expect_tool(self, node_id: str, tool: str) -> None:
        """Notes which tool (or several, joined by ``|``) runs after a call."""
        self._hints.expect_tool(node_id, tool)

    def _hint(self, node: Gen | Select) -> ProgramHint | None:
        """The hint of a call that is sent now."""
        self._end_lost_branches()
        return self._hints.hint_for(node)

    def _report_unneeded(self, calls: list[str]) -> None:
        """Reports the calls whose prefixes are kept without need, together with others."""
        if self._has_ended:
            return
        if calls and not self._unneeded:
            asyncio.get_running_loop().call_soon(self._send_hint_update)
        self._unneeded += calls

    def _send_hint_update(self) -> None:
        unneeded, self._unneeded = self._unneeded, []
        if not unneeded:
            return  # the run is over
        update = HintUpdate(
            program_id=self._outcomes.program_id,
            cache_salt=self._outcomes.options.cache_salt,
            unneeded=tuple(unneeded),
        )
        self._start_task(f"update {unneeded[0]}", self._backend.update_hint(update))

    def _start_task(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    # Nodes.

    async def _execute(self, node: Node, code: NodeCode) -> None:
        outcomes, record = self._outcomes, self.records[node.id]
        try:
            needs = outcomes.graph.needs(node.id)
            self._prefill_ahead(node, needs)
            for needed in needs:
                await outcomes.slot(needed).wait()
            failed = outcomes.failure_among(needs)
            if failed is not None:
                raise failed
            record.sent_s = self.now()
            outcomes.log.append(NodeStarted(node))
            result = await self._perform(node, code)
        except asyncio.CancelledError:
            self.fail(node.id, RequestAbortedError("the run was cancelled"))
            record.error, record.error_type = "cancelled", "cancelled"
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            record.error = str(error) or type(error).__name__
            record.error_type = type(error).__name__
            record.finished_s = self.now()
            self.fail(node.id, error)
        else:
            record.finished_s = self.now()
            record.usage, record.timings = result.meta.usage, result.meta.timings
            record.finish_reason = result.meta.finish_reason
            outcomes.finish(node.id, result)

    def _prefill_ahead(self, node: Node, needs: frozenset[str]) -> None:
        """While a call waits for a value, lets the backend compute its prompt up to there."""
        outcomes = self._outcomes
        if not outcomes.options.prefill_ahead or not isinstance(node, Gen | Select):
            return
        if all(outcomes.is_settled(needed) for needed in needs):
            return
        head = self._prompts.static_head(node, outcomes.is_settled)
        if head is not None and head not in self._warmed:
            self._warmed.add(head)
            self._start_task(f"{node.id} ahead", self._warm(node, head))

    async def _warm(self, node: Gen | Select, head: Prompt) -> None:
        options = self._outcomes.options
        call = WarmCall(
            program_id=self._outcomes.program_id,
            node_id=node.id,
            prompt=head,
            hint=self._hints.hint_ahead_of(node),
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

    async def _perform(self, node: Node, code: NodeCode) -> NodeResult:
        if isinstance(node, Gen):
            output = code if isinstance(code, OutputType) else TEXT
            return await self._generate(node, output)
        if isinstance(node, Select):
            return await self._select(node)
        if isinstance(node, ToolCall):
            assert isinstance(code, Tool)
            return await self._call_tool(node, code)
        assert isinstance(node, Join)
        if node.of == "text":
            text = render(node.parts, self._outcomes.text_of)
            return NodeResult(text, text)
        results = [self._outcomes.result_of(input_id) for input_id in node.inputs]
        return NodeResult(
            "\n".join(self._outcomes.text_of(Ref(input_id)) for input_id in node.inputs),
            [result.value for result in results],
        )

    async def _generate(self, node: Gen, output: OutputType[Any]) -> NodeResult:
        """Runs a Gen; a constraint that the backend refuses is named by its option of ``gen``."""
        try:
            return await self._stream(node, output)
        except InvalidConstraintError as error:
            if not output.option:
                raise
            raise refused_constraint(error, node.constraint, output.option) from error

    async def _stream(self, node: Gen, output: OutputType[Any]) -> NodeResult:
        outcomes = self._outcomes
        call = GenerateCall(
            program_id=outcomes.program_id,
            node_id=node.id,
            prompt=self._prompts.prompt(node),
            hint=self._hint(node),
            name=node.name,
            cache_salt=outcomes.options.cache_salt,
            priority=outcomes.options.priority,
            params=node.params,
            constraint=node.constraint,
            complete=node.complete,
            landing=node.landing,
            agent_turn=node.agent_turn,
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
                    outcomes.log.append(TextPiece(node, event.text))
        if finished is None:
            raise RequestAbortedError("the backend's stream ended before the call did")
        text = "".join(pieces)
        meta = Meta(finished.reason, finished.usage, finished.timings, tokens=tuple(tokens))
        return NodeResult(text, _parsed(node, text, finished, output), meta)

    def _note_first_text(self, node: Node) -> None:
        record = self.records[node.id]
        if record.first_text_s is None:
            record.first_text_s = self.now()

    async def _select(self, node: Select) -> NodeResult:
        outcomes = self._outcomes
        choices = tuple(render(choice, outcomes.text_of) for choice in node.choices)
        call = ScoreCall(
            program_id=outcomes.program_id,
            node_id=node.id,
            prompt=self._prompts.prompt(node),
            hint=self._hint(node),
            name=node.name,
            cache_salt=outcomes.options.cache_salt,
            priority=outcomes.options.priority,
            continuations=choices,
            unconditional=node.method == "unconditional_likelihood_normalized",
        )
        scores = await self._backend.score(call)
        if len(scores.continuations) != len(choices):
            raise ScriptError("the backend scored another number of choices than it was given")
        best, numbers = best_choice(scores.continuations, node.method)
        self._note_first_text(node)
        outcomes.log.append(TextPiece(node, choices[best]))
        meta = Meta(
            "stop",
            scores.finished.usage,
            scores.finished.timings,
            choice_scores=dict(zip(choices, numbers, strict=True)),
        )
        return NodeResult(choices[best], choices[best], meta)

    async def _call_tool(self, node: ToolCall, tool: Tool[..., Any]) -> NodeResult:
        outcomes = self._outcomes
        value = await tool.invoke(fill(node.arguments, outcomes.result_of, outcomes.text_of))
        return NodeResult(text_of(value), value)


def _parsed(node: Gen, text: str, finished: Finished, output: OutputType[Any]) -> Any:
    if node.constraint is not None and finished.reason == "length":
        if output.parse_cut is not None:
            return output.parse_cut(text)
        limit = node.params.max_tokens
        after = "the context was full" if limit is None else f"max_tokens ({limit})"
        reason = f"it ended after {after}, before it was complete"
        raise OutputTruncatedError(text, output.label, reason)
    return output.parse(text)
