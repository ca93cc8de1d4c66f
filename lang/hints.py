"""What a call tells the engine of its program's future, read off the graph as known so far.

The program usually runs ahead of its calls, so the graph mostly holds more than has been sent.
What the graph can't know yet (a state that is still open may grow) is left unknown, never guessed.
"""

from __future__ import annotations

from ramet.lang.nodes import CALL_KINDS, Gen, Select, ToolCall
from ramet.lang.session import Session
from ramet.runtime.request import ProgramHint

MAX_LOOK_AHEAD = 64
"""Nodes that are looked at for one hint: more would change nobody's mind."""


def hint_for(session: Session, node: Gen | Select) -> ProgramHint:
    """The hint of a call that is about to be sent."""
    if not session.options.hints:
        return ProgramHint(program_id=session.program_id, node_id=node.id)
    extending = _next_calls(session, node.id)
    remaining: int | None = _num_calls_after(session, extending)
    if remaining == 0 and _may_grow(session, node.id):
        remaining = None
    steps = min((_steps_before(session, call, node.id) for call in extending), default=None)
    return ProgramHint(
        program_id=session.program_id,
        node_id=node.id,
        steps_to_next_use=steps,
        remaining_uses=remaining,
        critical_path_weight=_weight(session, node.id),
        tool=_awaited_tool(session, node.id, extending),
    )


def ahead_hint(session: Session, node: Gen | Select) -> ProgramHint:
    """The hint of what is computed ahead of a call: that the call will use it, and how soon."""
    if not session.options.hints:
        return ProgramHint(program_id=session.program_id, node_id=node.id)
    return ProgramHint(
        program_id=session.program_id,
        node_id=node.id,
        steps_to_next_use=_steps_before(session, node.id, ""),
        remaining_uses=1,
    )


def _next_calls(session: Session, node_id: str) -> list[str]:
    """The nearest calls whose prompts extend a node's: one, or one a branch."""
    found, stack = [], [node_id]
    while stack:
        for child in session.graph.children(stack.pop()):
            if isinstance(child, CALL_KINDS):
                found.append(child.id)
            else:
                stack.append(child.id)
    return found


def _num_calls_after(session: Session, extending: list[str]) -> int:
    count, stack = 0, list(extending)
    while stack and count < MAX_LOOK_AHEAD:
        count += 1
        stack.extend(_next_calls(session, stack.pop()))
    return count


def _may_grow(session: Session, node_id: str) -> bool:
    """Whether a state that is still open contains the node."""
    branch, _, number = node_id.rpartition(".")
    prefix = f"{branch}." if branch else ""
    for writer in session.writers:
        if writer.is_closed:
            continue
        if writer.branch == branch:
            return True
        if writer.branch.startswith(prefix):
            fork_number = writer.branch[len(prefix) :].split(".", 1)[0]
            if int(fork_number) > int(number):
                return True
    return False


def _steps_before(session: Session, call_id: str, node_id: str) -> int:
    """How many calls must still finish, one after the other, before ``call_id`` can be sent,
    not counting ``node_id`` itself."""
    depth: dict[str, int] = {node_id: 0}
    stack = [call_id]
    while stack:
        current = stack[-1]
        if current in depth:
            stack.pop()
            continue
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
    for call_id in extending:
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
