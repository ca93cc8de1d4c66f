"""Derives a call's ProgramHint from the graph as known so far.

The program usually runs ahead of its calls, so the graph mostly holds more than has been sent.
What the graph can't know yet (a state that is still open may grow) is left unknown, never guessed;
when it turns out that nothing comes, ``Promises`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ramet.lang.graph.nodes import CALL_KINDS, Gen, Node, Select, ToolCall
from ramet.lang.run.session import Session
from ramet.runtime.api.request import AHEAD, ProgramHint

MAX_LOOK_AHEAD = 32
"""Nodes that are looked at for one part of a hint: more would change no decision."""


def hint_for(session: Session, node: Gen | Select) -> ProgramHint | None:
    """The hint of a call that is about to be sent; None where the run gives none."""
    if not session.options.hints:
        return None
    extending = next_calls(session, node.id)
    remaining: int | None = _num_calls_after(session, extending)
    if remaining == 0 and session.may_follow(node.id):
        remaining = None
    steps = [_steps_before(session, call, node.id) for call in extending[:MAX_LOOK_AHEAD]]
    return ProgramHint(
        program_id=session.program_id,
        node_id=node.id,
        steps_to_next_use=min((step for step in steps if step is not None), default=None),
        remaining_uses=remaining,
        critical_path_weight=_weight(session, node.id),
        tool=_awaited_tool(session, node.id, extending),
        program=session.graph.name,
        extends=session.graph.previous_call(node) or "",
        tokens_to_come=session.unsent.num_tokens,
    )


def ahead_hint(session: Session, node: Gen | Select) -> ProgramHint | None:
    """The hint of what is computed ahead of a call: that the call will use it, and how soon."""
    if not session.options.hints:
        return None
    return ProgramHint(
        program_id=session.program_id,
        node_id=f"{node.id}{AHEAD}",
        steps_to_next_use=_steps_before(session, node.id, ""),
        remaining_uses=1,
        program=session.graph.name,
        tokens_to_come=session.unsent.num_tokens,
    )


def next_calls(session: Session, node_id: str) -> list[str]:
    """The nearest calls whose prompts extend a node's: one, or one a branch."""
    found, stack = [], [node_id]
    while stack:
        for child in session.graph.children(stack.pop()):
            if isinstance(child, CALL_KINDS):
                found.append(child.id)
            else:
                stack.append(child.id)
    return found


def _num_calls_after(session: Session, extending: list[str]) -> int | None:
    """How many calls there are from ``extending`` on; None: too many to count."""
    count, stack = 0, list(extending)
    while stack:
        count += len(stack)
        if count > MAX_LOOK_AHEAD:
            return None
        stack = [call for node_id in stack for call in next_calls(session, node_id)]
    return count


def _steps_before(session: Session, call_id: str, node_id: str) -> int | None:
    """How many calls must still finish, one after the other, before ``call_id`` can be sent,
    not counting ``node_id`` itself; None: too many to count."""
    depth: dict[str, int] = {node_id: 0}
    stack = [call_id]
    num_seen = 0
    while stack:
        current = stack[-1]
        if current in depth:
            stack.pop()
            continue
        num_seen += 1
        if num_seen > 2 * MAX_LOOK_AHEAD:
            return None
        waiting = [n for n in session.graph.needs(current) if not session.is_settled(n)]
        missing = [n for n in waiting if n not in depth]
        if missing:
            stack.extend(missing)
            continue
        own = 1 if isinstance(session.graph[current], CALL_KINDS) and current != call_id else 0
        depth[current] = own + max((depth[n] for n in waiting), default=0)
        stack.pop()
    return depth[call_id]


def _awaited_tool(session: Session, node_id: str, extending: list[str]) -> str:
    """The tool that the next call waits for, and that itself waits for this node."""
    if node_id in session.expected_tools:
        return session.expected_tools[node_id]
    for call_id in extending[:MAX_LOOK_AHEAD]:
        for needed in session.graph.needs(call_id):
            node = session.graph[needed]
            if isinstance(node, ToolCall) and not session.is_settled(needed):
                return node.tool
    return ""


def _weight(session: Session, node_id: str) -> float:
    """The share of the other unfinished nodes that wait for this one, directly or not."""
    others = session.num_unsettled - 1
    if others <= 0:
        return 0.0
    waiting: set[str] = set()
    stack = [node_id]
    while stack and len(waiting) < MAX_LOOK_AHEAD:
        for dependent in session.dependents.get(stack.pop(), ()):
            if dependent not in waiting and not session.is_settled(dependent):
                waiting.add(dependent)
                stack.append(dependent)
    return 1.0 if stack else min(1.0, len(waiting) / others)


class Promises:
    """The uses that hints announced to the engine, and those that will never come.

    A call's hint announces later calls, or leaves open whether there will be any. When its state
    has ended, or an announced call can never be sent, the prefix is kept without need.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._expected: set[str] = set()
        self._sent: set[str] = set()

    def sent(self, node: Gen | Select, hint: ProgramHint | None) -> None:
        """Notes that a call was sent with this hint."""
        self._sent.add(node.id)
        if hint is not None and hint.remaining_uses != 0:
            self._expected.add(node.id)

    def broken_by(self, node: Node | None) -> Iterator[str]:
        """The calls that nothing will extend any more, now that ``node`` is the last of a state
        that has ended, or will itself never be sent."""
        graph = self._session.graph
        for before in () if node is None else graph.back_from(node.id):
            if not isinstance(before, CALL_KINDS) or before.id not in self._sent:
                continue
            if self._session.may_follow(before.id):
                return
            for call in next_calls(self._session, before.id):
                if call not in self._sent and not self._session.is_settled(call):
                    return  # it still comes, and needs all that is before it
            if before.id in self._expected:
                self._expected.remove(before.id)
                yield before.id
