"""State: what a program writes its prompt on; and the states that a fork gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from ramet.lang.base.errors import RoleError, UnknownNameError, UsageError
from ramet.lang.graph.nodes import Role, SelectMethod
from ramet.lang.run.agent import Agent, AgentLimits
from ramet.lang.run.turn import Turn
from ramet.lang.run.writer import Writer
from ramet.lang.types.expressions import Appendable, Expr, GenExpr, RoleExpr, select
from ramet.lang.types.options import GenOptions, SamplingOptions
from ramet.lang.types.patterns import Pattern
from ramet.lang.types.tools import Tool, as_tool
from ramet.lang.types.values import Meta, Value
from ramet.runtime.api.names import nearest

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")
P = ParamSpec("P")


class State:
    """The first argument of every program.

    Append to it by ``+=``: text, ``gen(...)``, ``select(...)``, whole turns by ``system(...)``,
    ``user(...)``, ``assistant(...)``, or sequences of these joined by ``+``. A state holds either
    raw text or chat turns. ``s["name"]`` is a variable's Value.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    # Appending.

    def __iadd__(self, item: Appendable) -> State:
        self._writer.append(item)
        return self

    def append(self, *items: Appendable) -> State:
        """The same as ``+=``, for use in an expression."""
        for item in items:
            self._writer.append(item)
        return self

    def system(self, *items: Appendable) -> Turn[State]:
        """Appends a system turn, or without items begins one: ``with s.system(): ...``."""
        return self._turn("system", items)

    def user(self, *items: Appendable) -> Turn[State]:
        """Appends a user turn, or without items begins one: ``with s.user(): ...``."""
        return self._turn("user", items)

    def assistant(self, *items: Appendable) -> Turn[State]:
        """Appends an assistant turn, or without items begins one: ``with s.assistant(): ...``."""
        return self._turn("assistant", items)

    @overload
    def gen(
        self, name: str = "", type_: None = None, *, n: int, **options: Unpack[GenOptions]
    ) -> Value[list[str]]: ...
    @overload
    def gen(
        self, name: str, type_: Pattern, *, n: int, **options: Unpack[GenOptions]
    ) -> Value[list[str]]: ...
    @overload
    def gen(
        self, name: str, type_: TypeForm[T], *, n: int, **options: Unpack[GenOptions]
    ) -> Value[list[T]]: ...
    @overload
    def gen(
        self, name: str = "", type_: None = None, **options: Unpack[GenOptions]
    ) -> Value[str]: ...
    @overload
    def gen(self, name: str, type_: Pattern, **options: Unpack[GenOptions]) -> Value[str]: ...
    @overload
    def gen(self, name: str, type_: type[T], **options: Unpack[GenOptions]) -> Value[T]: ...
    @overload
    def gen(self, name: str, type_: TypeForm[T], **options: Unpack[GenOptions]) -> Value[T]: ...
    @overload
    def gen(self, name: str, type_: Any, **options: Unpack[GenOptions]) -> Value[Any]: ...
    def gen(self, name: str = "", type_: Any = None, **options: Any) -> Value[Any]:
        """Lets the model write a text, and returns its Value immediately.

        Args:
            name: the variable; it may be left out.
            type_: what the text must be: a Python type (a pydantic model, dataclass, TypedDict,
                enum, Literal, int, float, bool, list[...], ...), whose value the Value then has,
                or a pattern such as ``regex(...)``. None is free text.
            n: write as many texts, each with a seed of its own. The Value is their list, and the
                state goes on as if nothing was written.
            options: sampling parameters, or ``regex=``, ``choices=``, ``json_schema=``, ``ebnf=``.

        Raises:
            DuplicateNameError, InvalidParameterError, OutputTypeError, UnsupportedError: before
                anything is sent.
        """
        return self._writer.gen(GenExpr(name or "", type_, options))

    def select(
        self,
        name: str = "",
        choices: Sequence[str | Value[Any]] = (),
        *,
        method: SelectMethod = "token_length_normalized",
    ) -> Value[str]:
        """Picks the likeliest of ``choices``; see ``ramet.lang.select``."""
        return self._writer.select(select(name, choices, method=method))

    # Variables.

    def __getitem__(self, name: str) -> Value[Any]:
        variables = self._writer.all_variables()
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none yet"
            hint = nearest(name, variables)
            raise UnknownNameError(f"no variable {name!r} in this state; it has: {known}{hint}")
        return variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._writer.all_variables()

    def get_meta_info(self, name: str) -> Meta:
        """Metadata of the call that set a variable; waits."""
        return self[name].meta

    def set_var(self, name: str, value: str | Value[Any]) -> None:
        """Gives a text or a Value a name in this state."""
        self._writer.set_variable(name, value)

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """Makes a variable of all the text that is appended inside, calls included."""
        writer = self._writer
        before = writer.tail
        yield
        writer.set_scope(name, before)

    def text(self) -> str:
        """The whole text of the state; waits for all of it."""
        return "".join(message["content"] for message in self._rendered())

    def messages(self) -> list[dict[str, str]]:
        """The chat turns as ``{"role": ..., "content": ...}``; waits for all of them.

        Raises:
            RoleError: the state holds raw text.
        """
        messages = self._rendered()
        if messages and not self._writer.is_chat:
            raise RoleError("the state holds raw text, not chat turns")
        return messages

    # Branches.

    def fork(self, num_branches: int = 1) -> Branches:
        """Splits the state: each branch begins with all that this one holds."""
        if not isinstance(num_branches, int) or num_branches < 1:
            raise UsageError("fork takes a number of branches, at least 1")
        return Branches(self, [State(writer) for writer in self._writer.fork(num_branches)])

    def copy(self) -> State:
        """A branch of its own."""
        return self.fork(1)[0]

    @overload
    def spawn(
        self,
        function: Callable[Concatenate[State, P], Awaitable[Value[T]]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Value[T]: ...
    @overload
    def spawn(
        self,
        function: Callable[Concatenate[State, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Value[T]: ...
    @overload
    def spawn(
        self, function: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Value[T]: ...
    def spawn(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value[Any]:
        """Runs ``function(branch, ...)`` on a branch of this state, concurrently with the rest.

        The function may read values: only its own branch waits. An exception in it is raised
        from reading the Value that this returns, and nowhere else.
        """
        branch = self.copy()
        label = getattr(function, "__name__", type(function).__name__)
        value = self._writer.join_branch(f"{label}()")
        self._writer.session.start_branch(
            branch._writer, value.node_id, function, (branch, *args), kwargs
        )
        return value

    # Tools.

    @overload
    def call(
        self,
        tool: Tool[..., Awaitable[T]] | Callable[..., Awaitable[T]],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Value[T]: ...
    @overload
    def call(self, tool: Callable[..., T], /, *args: Any, **kwargs: Any) -> Value[T]: ...
    def call(self, tool: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Value[Any]:
        """Runs a tool as a node of the graph and returns its result's Value immediately.

        Arguments, by place or by name, may be Values, texts that refer to Values, and lists and
        dicts of these.
        """
        known = as_tool(tool)
        return self._writer.call(known, known.bind(args, kwargs))

    @overload
    def tools(
        self,
        tools: Sequence[Tool[..., Any] | Callable[..., Any]],
        *,
        name: str = "answer",
        answer: None = None,
        require_call: bool = False,
        parallel: bool = True,
        instructions: bool = True,
        limits: AgentLimits | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Value[str]: ...
    @overload
    def tools(
        self,
        tools: Sequence[Tool[..., Any] | Callable[..., Any]],
        *,
        name: str = "answer",
        answer: type[T],
        require_call: bool = False,
        parallel: bool = True,
        instructions: bool = True,
        limits: AgentLimits | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Value[T]: ...
    @overload
    def tools(
        self,
        tools: Sequence[Tool[..., Any] | Callable[..., Any]],
        *,
        name: str = "answer",
        answer: TypeForm[T],
        require_call: bool = False,
        parallel: bool = True,
        instructions: bool = True,
        limits: AgentLimits | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Value[T]: ...
    def tools(
        self,
        tools: Sequence[Tool[..., Any] | Callable[..., Any]],
        *,
        name: str = "answer",
        answer: Any = None,
        require_call: bool = False,
        parallel: bool = True,
        instructions: bool = True,
        limits: AgentLimits | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Value[Any]:
        """Lets the model call tools until it answers, and returns the answer's Value immediately.

        See ``ramet.lang.run.agent``. What is appended to this state next waits for the answer.

        Args:
            name: the variable that the answer sets.
            answer: the answer's type; None is text.
            require_call: the first turn must call a tool.
            parallel: several calls may be made in one turn; they run concurrently.
            instructions: show the tools to the model: by its chat template, or as text behind the
                question where that prints none. False if the prompt has them already
                (``describe_tools`` gives the text).
            limits: of turns, tokens and time.
            options: sampling parameters of the model's turns.
        """
        agent = Agent(
            tools=[as_tool(tool) for tool in tools],
            name=name,
            answer=answer,
            require_call=require_call,
            parallel=parallel,
            instructions=instructions,
            limits=limits or AgentLimits(),
            options=options,
        )
        value = self._writer.join_agent(name)
        self._writer.session.start_branch(
            self._writer, value.node_id, agent.run, (self._writer,), {}, closes=False
        )
        return value

    # Inside.

    def _turn(self, role: Role, items: tuple[Appendable, ...]) -> Turn[State]:
        if items:
            self._writer.append(RoleExpr(role, items))
        return Turn(self, self._writer, role, is_whole=bool(items))

    def _rendered(self) -> list[dict[str, str]]:
        self._writer.wait_for_borrower()
        return self._writer.session.outcomes.rendered(self._writer.tail)


class Branches:
    """Several states that share all that came before their fork.

    ``branches += x`` appends to every branch: the same thing, one of a list each, or what a
    function of a branch's number gives. ``branches["x"]`` are the Values of a variable, in order.
    """

    def __init__(self, origin: State, states: list[State]) -> None:
        self._origin = origin
        self._states = states

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    @overload
    def __getitem__(self, key: int) -> State: ...
    @overload
    def __getitem__(self, key: str) -> list[Value[Any]]: ...
    def __getitem__(self, key: int | str) -> State | list[Value[Any]]:
        return self._states[key] if isinstance(key, int) else [s[key] for s in self._states]

    def __setitem__(self, key: int, state: State) -> None:
        """Lets ``branches[0] += x`` be written; no other state can be put in a branch's place.

        Raises:
            UsageError: another state.
        """
        if state is not self._states[key]:
            raise UsageError("a branch can be appended to, not replaced")

    def __iadd__(
        self, item: Appendable | Sequence[Appendable] | Callable[[int], Appendable]
    ) -> Branches:
        if isinstance(item, Expr | str | Value):
            each: list[Appendable] = [item] * len(self)
        elif callable(item):
            each = [item(index) for index in range(len(self))]
        else:
            each = list(item)
            if len(each) != len(self):
                raise UsageError(f"{len(each)} things for {len(self)} branches")
        for state, part in zip(self._states, each, strict=True):
            state.append(part)
        return self

    def map(
        self,
        function: Callable[Concatenate[State, P], Awaitable[T] | T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[Value[Any]]:
        """Runs ``function(branch, ...)`` on every branch, concurrently: see ``State.spawn``."""
        return [state.spawn(function, *args, **kwargs) for state in self._states]

    def join(self) -> None:
        """Ends the branches and gives their variables back to the state that was forked.

        There ``s["x"]`` is then the list of the branches' values, in order. Nothing waits.
        """
        writers = [state._writer for state in self._states]
        origin = self._origin._writer
        known = origin.all_variables()
        names = dict.fromkeys(
            name for writer in writers for name in writer.variables if name not in known
        )
        for name in names:
            inputs = [w.variables[name].node_id for w in writers if name in w.variables]
            origin.join(name, tuple(inputs))
        for writer in writers:
            writer.close()
