"""Derives the ProgramHints of a run's calls from its graph as known so far.

The program usually runs ahead of its calls, so the graph mostly holds more than has been sent.
What the graph can't know yet (a state that is still open may grow) is left unknown, never guessed;
when it turns out that nothing comes, ``Hints`` names the calls whose prefixes nothing will use.
"""

from __future__ import annotations

from collections.abc import Iterator

from ramet.lang.graph.nodes import CALL_KINDS, Fork, Gen, Node, Select, Text, ToolCall
from ramet.lang.run.open_branches import OpenBranches
from ramet.lang.run.outcomes import Outcomes
from ramet.lang.run.unsent_tokens import UnsentTokens
from ramet.runtime.api.request import AHEAD, ProgramHint

MAX_LOOK_AHEAD = 32
"""Nodes that one part of a hint considers; more would change no decision."""


class Hints:
    """Tracks the known future use of one run's prefixes.

    A call's hint announces later calls, or leaves open whether there will be any. When its state
    has ended, or an announced call can never be sent, the prefix is kept without need:
    ``unneeded_before`` lists such calls.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._graph = outcomes.graph
        self._open_branches = OpenBranches()
        self._unsent = UnsentTokens(outcomes.graph)
        self._dependents: dict[str, list[str]] = {}
        self._next_tools: dict[str, str] = {}
        self._tails: dict[str, str] = {}
        self._expected: set[str] = set()
        self._sent: set[str] = set()

    # Changes.

    def add_node(self, node: Node) -> None:
        """Adds a node that the graph holds."""
        if not isinstance(node, Text | Fork):
            for needed in self._graph.needs(node.id):
                self._dependents.setdefault(needed, []).append(node.id)
        self._tails[self._graph.branch_of(node.id)] = node.id
        self._unsent.add(node)

    def add_branch(self, branch: str) -> None:
        """Adds a branch whose state may grow."""
        self._open_branches.add(branch)

    def end_branch(self, branch: str) -> list[str]:
        """Ends a branch, to which nothing can be appended any more; returns the calls whose
        prefixes are kept without need."""
        self._open_branches.discard(branch)
        tail = self._tails.pop(branch, branch.rpartition(".")[0])
        return list(self._unneeded_before(tail)) if tail else []

    def drop_node(self, node_id: str) -> list[str]:
        """Removes a node that failed; returns the calls whose prefixes are kept without need."""
        self._unsent.drop(node_id)
        parent = self._graph[node_id].parent
        return list(self._unneeded_before(parent)) if parent is not None else []

    def expect_tool(self, node_id: str, tool: str) -> None:
        """Notes which tool (or several, joined by ``|``) runs after a call."""
        self._next_tools[node_id] = tool

    # Hints.

    def hint_for(self, node: Gen | Select) -> ProgramHint | None:
        """The hint of a call that is sent now; None where the run gives none."""
        self._unsent.send(node)
        self._sent.add(node.id)
        if not self._outcomes.options.hints:
            return None
        extending = self._next_calls(node.id)
        remaining: int | None = self._num_calls_after(extending)
        if remaining == 0 and self._open_branches.may_follow(node.id):
            remaining = None
        if remaining != 0:
            self._expected.add(node.id)
        steps = [self._steps_before(call, node.id) for call in extending[:MAX_LOOK_AHEAD]]
        return ProgramHint(
            program_id=self._outcomes.program_id,
            node_id=node.id,
            steps_to_next_use=min((step for step in steps if step is not None), default=None),
            remaining_uses=remaining,
            critical_path_weight=self._weight(node.id),
            tool=self._awaited_tool(node.id, extending),
            program=self._graph.name,
            extends=self._graph.previous_call(node) or "",
            tokens_to_come=self._unsent.num_tokens,
        )

    def hint_ahead_of(self, node: Gen | Select) -> ProgramHint | None:
        """The hint of a prompt's beginning that is computed ahead of its call."""
        if not self._outcomes.options.hints:
            return None
        return ProgramHint(
            program_id=self._outcomes.program_id,
            node_id=f"{node.id}{AHEAD}",
            steps_to_next_use=self._steps_before(node.id, ""),
            remaining_uses=1,
            program=self._graph.name,
            tokens_to_come=self._unsent.num_tokens,
        )

    def _next_calls(self, node_id: str) -> list[str]:
        """The nearest calls whose prompts extend a node's: one, or one a branch."""
        found, stack = [], [node_id]
        while stack:
            for child in self._graph.children(stack.pop()):
                if isinstance(child, CALL_KINDS):
                    found.append(child.id)
                else:
                    stack.append(child.id)
        return found

    def _num_calls_after(self, extending: list[str]) -> int | None:
        """How many calls there are from ``extending`` on; None: too many to count."""
        count, stack = 0, list(extending)
        while stack:
            count += len(stack)
            if count > MAX_LOOK_AHEAD:
                return None
            stack = [call for node_id in stack for call in self._next_calls(node_id)]
        return count

    def _steps_before(self, call_id: str, node_id: str) -> int | None:
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
            waiting = [n for n in self._graph.needs(current) if not self._outcomes.is_settled(n)]
            missing = [n for n in waiting if n not in depth]
            if missing:
                stack.extend(missing)
                continue
            own = 1 if isinstance(self._graph[current], CALL_KINDS) and current != call_id else 0
            depth[current] = own + max((depth[n] for n in waiting), default=0)
            stack.pop()
        return depth[call_id]

    def _awaited_tool(self, node_id: str, extending: list[str]) -> str:
        """The tool that the next call waits for, and that itself waits for this node."""
        if node_id in self._next_tools:
            return self._next_tools[node_id]
        for call_id in extending[:MAX_LOOK_AHEAD]:
            for needed in self._graph.needs(call_id):
                node = self._graph[needed]
                if isinstance(node, ToolCall) and not self._outcomes.is_settled(needed):
                    return node.tool
        return ""

    def _weight(self, node_id: str) -> float:
        """The share of the other unfinished nodes that wait for this one, directly or not."""
        others = self._outcomes.num_unsettled - 1
        if others <= 0:
            return 0.0
        waiting: set[str] = set()
        stack = [node_id]
        while stack and len(waiting) < MAX_LOOK_AHEAD:
            for dependent in self._dependents.get(stack.pop(), ()):
                if dependent not in waiting and not self._outcomes.is_settled(dependent):
                    waiting.add(dependent)
                    stack.append(dependent)
        return 1.0 if stack else min(1.0, len(waiting) / others)

    def _unneeded_before(self, node_id: str) -> Iterator[str]:
        """The calls that nothing will extend any more, now that a node is the last of a state
        that has ended, or that what follows it will never be sent."""
        for before in self._graph.back_from(node_id):
            if not isinstance(before, CALL_KINDS) or before.id not in self._sent:
                continue
            if self._open_branches.may_follow(before.id):
                return
            for call in self._next_calls(before.id):
                if call not in self._sent and not self._outcomes.is_settled(call):
                    return  # it still comes, and needs all that is before it
            if before.id in self._expected:
                self._expected.remove(before.id)
                yield before.id
