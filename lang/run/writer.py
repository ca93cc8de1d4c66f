"""Writer: appends nodes for a state. It holds the state's place in the graph, its variables and
the current chat turn; ``State`` is its public interface."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.base import writes_tool_calls
from ramet.lang.base.errors import DuplicateNameError, RoleError, UsageError
from ramet.lang.graph.nodes import (
    Fork,
    Gen,
    Join,
    Node,
    Role,
    Select,
    Text,
    TextWithRefs,
    ToolCall,
)
from ramet.lang.graph.references import Ref, TextPart
from ramet.lang.run.executor import NodeCode
from ramet.lang.run.outcomes import current_join
from ramet.lang.run.session import Session
from ramet.lang.types.expressions import (
    Appendable,
    GenExpr,
    RoleExpr,
    RoleMark,
    SelectExpr,
    SequenceExpr,
)
from ramet.lang.types.options import landing_share, sampling_params, split_options
from ramet.lang.types.values import Value

if TYPE_CHECKING:
    from ramet.lang.types.tools import Tool
    from ramet.runtime.api.agent_turn import AgentTurn


class Writer:
    """Appends nodes to one state of a run.

    Attributes:
        branch: the id of the branch that the state is.
        tail: the last node, or the fork that the branch comes from.
        variables: the state's own variables; ``inherited`` are those from before its fork.
        is_closed: nothing can be appended any more.
    """

    def __init__(
        self,
        session: Session,
        branch: str = "",
        *,
        origin: Writer | None = None,
        parent: str | None = None,
    ) -> None:
        self.session = session
        self._outcomes = session.outcomes
        self.branch = branch
        self.tail = parent
        self.is_closed = False
        self.is_chat: bool | None = None
        self.variables: dict[str, Value[Any]] = {}
        self.inherited: dict[str, Value[Any]] = {}
        self._numbers = itertools.count()
        self._role: Role | None = None
        self._turn = 0
        self._busy_with: str | None = None
        if origin is not None:
            self.inherited = origin.all_variables()
            self.is_chat = origin.is_chat
            self._role, self._turn = origin._role, origin._turn
        session.add_writer(self)
        self._lost = weakref.finalize(self, session.lose_branch, branch)
        self._lost.atexit = False

    def all_variables(self) -> dict[str, Value[Any]]:
        """Own and inherited variables."""
        return {**self.inherited, **self.variables}

    def append(self, item: Appendable) -> None:
        """Appends a text, a value, a call, a turn, or a sequence of these."""
        self.wait_for_borrower()
        if isinstance(item, str):
            self.text(item)
        elif isinstance(item, Value):
            self._outcomes.ref_to(item)
            if item.node_id == self.tail:
                raise UsageError(
                    "this value is what the state ends with already: calling s.gen(...) or "
                    's.select(...) appends it. To repeat its text, append f"{value}"'
                )
            self.text(f"{item}")
        elif isinstance(item, GenExpr):
            self.gen(item)
        elif isinstance(item, SelectExpr):
            self.select(item)
        elif isinstance(item, SequenceExpr):
            for part in item.items:
                self.append(part)
        elif isinstance(item, RoleExpr):
            with self.turn(item.role):
                for part in item.items or ("",):
                    self.append(part)
        elif isinstance(item, RoleMark):
            self._mark(item)
        else:
            raise TypeError(
                f"only texts, values and calls can be appended, not {type(item).__name__}"
            )

    def text(self, text: str) -> None:
        """Appends text, with the references in it."""
        parts = self._outcomes.references.parse(text)
        if self._role is None:
            if not parts:
                return
            self._set_chat(is_chat=False)
        self._add(lambda place: Text(parts=parts, **place))

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the model calls tools in a format of its own at this place."""
        at_turn = self._role is None and bool(self.is_chat)
        return at_turn and writes_tool_calls(self.session.backend)

    def gen(
        self, expr: GenExpr, *, next_tool: str = "", agent_turn: AgentTurn | None = None
    ) -> Value[Any]:
        """Appends a Gen; ``next_tool`` names the tool (or several, joined by ``|``) that its text
        calls, for hints."""
        self.wait_for_borrower()
        self._check_name(expr.name)
        options = dict(expr.options)
        num_texts = options.pop("n", None)
        if num_texts is not None:
            return self._gen_several(replace(expr, options=options), num_texts)
        complete = options.pop("complete", None)
        if complete not in (None, True, False):
            raise UsageError(f"complete is True or False, not {complete!r}")
        landing = options.pop("landing", None)
        own, output = split_options(expr.type, options)
        for option, value in (*options.items(), ("type_", output.constraint)):
            self._outcomes.references.plain(repr(value), f"option {option!r}")
        typed = output.constraint is not None
        params = sampling_params(self.session.options.sampling, own, is_typed=typed)
        share = landing_share(landing, output)
        if share is not None and complete is False:
            raise UsageError("landing needs complete")

        def make(place: dict[str, Any]) -> Gen:
            seed = params.seed if params.seed is not None else self.session.seed_of(place["id"])
            return Gen(
                name=expr.name,
                params=replace(params, seed=seed),
                constraint=output.constraint,
                complete=complete,
                landing=share,
                returns=output.label,
                agent_turn=agent_turn,
                **place,
            )

        with self._speaking():
            node = self._add(make, output)
        if next_tool:
            self.session.expect_tool(node.id, next_tool)
        return self._variable(expr.name, node)

    def _gen_several(self, expr: GenExpr, num_texts: Any) -> Value[list[Any]]:
        """Appends a Gen to each of several branches, and the Join of their values."""
        if type(num_texts) is not int or num_texts < 1:
            raise UsageError(f"n is the number of texts, at least 1, not {num_texts!r}")
        inputs: list[str] = []
        for index, branch in enumerate(self.fork(num_texts)):
            options = dict(expr.options)
            if isinstance(options.get("seed"), int):
                options["seed"] += index  # texts of one seed would be the same
            inputs.append(branch.gen(replace(expr, options=options)).node_id)
            branch.close()
        node = self._add(lambda place: Join(name=expr.name, inputs=tuple(inputs), **place))
        return self._variable(expr.name, node)

    def select(self, expr: SelectExpr) -> Value[str]:
        """Appends a Select."""
        self.wait_for_borrower()
        self._check_name(expr.name)
        for choice in expr.choices:
            if isinstance(choice, Value):
                self._outcomes.ref_to(choice)
        choices = tuple(
            self._outcomes.references.parse(choice if isinstance(choice, str) else f"{choice}")
            for choice in expr.choices
        )
        if not all(choices):
            raise UsageError("a choice is empty")
        with self._speaking():
            node = self._add(
                lambda place: Select(name=expr.name, choices=choices, method=expr.method, **place)
            )
            return self._variable(expr.name, node)

    def call(self, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Value[Any]:
        """Appends a ToolCall."""
        data = {key: self._data(item) for key, item in arguments.items()}
        node = self._add(
            lambda place: ToolCall(name=tool.name, tool=tool.name, arguments=data, **place), tool
        )
        return Value(self._outcomes, node.id)

    def fork(self, num_branches: int) -> list[Writer]:
        """Appends a Fork and returns its branches' writers."""
        self.wait_for_borrower()
        fork = self._add(lambda place: Fork(num_branches=num_branches, **place))
        return [
            Writer(self.session, f"{fork.id}.{index}", origin=self, parent=fork.id)
            for index in range(num_branches)
        ]

    def join(self, name: str, inputs: tuple[str, ...]) -> None:
        """Appends a Join of some nodes' values as the variable ``name``."""
        self._check_name(name)
        self._variable(name, self._add(lambda place: Join(name=name, inputs=inputs, **place)))

    def set_variable(self, name: str, value: str | Value[Any]) -> None:
        """Appends a Join of one value, or of a text, as the variable ``name``."""
        self._check_name(name)
        text = value if isinstance(value, str) else f"{value}"
        if isinstance(value, Value):
            self._outcomes.ref_to(value)
        parts = self._outcomes.references.parse(text)
        node = self._add(lambda place: Join(name=name, of="text", parts=parts, **place))
        self._variable(name, node)

    def set_scope(self, name: str, before: str | None) -> None:
        """Appends a Join of the text that follows the node ``before``, as a variable."""
        self._check_name(name)
        parts: list[TextPart] = []
        for node in self.session.graph.back_from(self.tail):
            if node.id == before:
                break
            if isinstance(node, Text):
                parts[:0] = node.parts
            elif isinstance(node, Gen | Select):
                parts.insert(0, Ref(node.id))
        node = self._add(lambda place: Join(name=name, of="text", parts=tuple(parts), **place))
        self._variable(name, node)

    def join_branch(self, label: str) -> Value[Any]:
        """Appends the Join that a spawned function's result will settle."""
        node = self._add(lambda place: Join(name=label, of="branch", **place))
        return Value(self._outcomes, node.id)

    def join_agent(self, name: str) -> Value[Any]:
        """Appends the Join that an agent's answer will settle, and lends the state to the agent:
        others wait until it has ended."""
        self._check_name(name)
        node = self._add(lambda place: Join(name=name, of="agent", **place))
        self._busy_with = node.id
        return self._variable(name, node)

    @contextmanager
    def turn(self, role: Role) -> Iterator[None]:
        """A chat turn: what is appended inside belongs to it."""
        self.begin_turn(role)
        try:
            yield
        finally:
            self.end_turn()

    def begin_turn(self, role: Role) -> None:
        """Begins a chat turn."""
        self.wait_for_borrower()
        if self._role is not None:
            raise RoleError(f"a {role} turn can't begin inside a {self._role} turn")
        self._set_chat(is_chat=True)
        self._turn += 1
        self._role = role

    def end_turn(self) -> None:
        """Ends the chat turn that has begun."""
        self._role = None

    def continue_turn(self, role: Role, text: str) -> None:
        """Appends a turn, or goes on with the last one where it has the same role."""
        before = self.session.graph.back_from(self.tail)
        last = next((node for node in before if isinstance(node, Text | Gen | Select)), None)
        if self._role is None and self.is_chat and last is not None and last.role == role:
            self._role = role
            try:
                self.text(f"\n\n{text}")
            finally:
                self.end_turn()
        else:
            with self.turn(role):
                self.text(text)

    def wait_for_borrower(self) -> None:
        """Waits until code that the state was lent to has ended."""
        if self._busy_with is not None and current_join.get() != self._busy_with:
            self._outcomes.wait_for(self._busy_with)
            self._busy_with = None

    def close(self) -> None:
        """Ends the state."""
        if not self.is_closed:
            self.is_closed = True
            self._lost.detach()
            self.session.end_branch(self.branch)

    def _add(self, make: Callable[[dict[str, Any]], Node], code: NodeCode = None) -> Node:
        self.wait_for_borrower()
        if self.is_closed:
            raise UsageError("this state has ended: its branches were joined, or its run is over")
        number = next(self._numbers)
        node = make(
            {
                "id": f"{self.branch}.{number}" if self.branch else str(number),
                "parent": self.tail,
                "role": self._role,
                "turn": self._turn,
            }
        )
        self.session.add(node, code)
        self.tail = node.id
        return node

    def _variable(self, name: str, node: Node) -> Value[Any]:
        value: Value[Any] = Value(self._outcomes, node.id)
        if name:
            self.variables[name] = value
        return value

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str):
            raise UsageError(f"a variable's name is a text, not {name!r}; a type comes after it")
        self._outcomes.references.plain(name, "a variable's name")
        if name and (name in self.variables or name in self.inherited):
            raise DuplicateNameError(f"variable {name!r} exists already in this state", param=name)

    def _data(self, value: Any) -> Any:
        """A ToolCall's argument with its values as references."""
        if isinstance(value, Value):
            return self._outcomes.ref_to(value)
        if isinstance(value, str):
            parts = self._outcomes.references.parse(value)
            return TextWithRefs(parts) if any(isinstance(p, Ref) for p in parts) else value
        if type(value) in (list, tuple):
            return type(value)(self._data(item) for item in value)
        if type(value) is dict:
            return {key: self._data(item) for key, item in value.items()}
        return value

    def _mark(self, mark: RoleMark) -> None:
        if mark.begins:
            self.begin_turn(mark.role)
        elif self._role != mark.role:
            raise RoleError(f"no {mark.role} turn has begun")
        else:
            self.end_turn()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """The model speaks: in a chat, in the assistant's turn, which is begun if none is."""
        if self._role is None and self.is_chat:
            with self.turn("assistant"):
                yield
            return
        if self._role not in (None, "assistant"):
            raise RoleError(f"the model can't write a {self._role} turn, only the assistant's")
        if self._role is None:
            self._set_chat(is_chat=False)
        yield

    def _set_chat(self, *, is_chat: bool) -> None:
        if self.is_chat is not None and self.is_chat != is_chat:
            raise RoleError(
                "the state holds raw text; roles can't follow"
                if is_chat
                else "the state holds chat turns; put the text into user(...) or assistant(...)"
            )
        self.is_chat = is_chat
