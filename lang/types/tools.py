"""Tools: Python functions that a model may call."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

from pydantic import ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import to_json

from ramet.grammars.constraints.closed_schema import closed_schema
from ramet.grammars.constraints.values import JsonSchema
from ramet.lang.base.errors import ArgumentError, OutputTypeError, ToolFailedError
from ramet.lang.types.matching import match_text
from ramet.lang.types.schemas import schema_of
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.names import nearest, suggests_names
from ramet.runtime.api.validate import number

P = ParamSpec("P")
T = TypeVar("T")

Confirm = Callable[[str, dict[str, Any]], bool | Awaitable[bool]]
"""Whether a tool may be called with some arguments."""


class Tool(Generic[P, T]):
    """A function with a name, a description and a JSON schema of its parameters.

    Calling it calls the function. In a program, ``s.call(tool, ...)`` makes it a node of the
    graph, and ``s.tools([...])`` lets the model call it.

    Attributes:
        name: how the model names it.
        description: the first paragraph of its docstring.
        parameters: a JSON schema of an object, as MCP's ``inputSchema`` is. One that is given
            replaces that of the function's type hints; arguments are then passed by name, as JSON.
        timeout_s: seconds after which a call fails, or None.
        confirm: asked before each call with the tool's name and its arguments, which
            ``timeout_s`` doesn't count; unless it returns True, the call fails. Sync, run in a
            worker thread, or async.
    """

    @suggests_names
    def __init__(
        self,
        function: Callable[P, T],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        confirm: Confirm | None = None,
    ) -> None:
        given: Any = function
        if not inspect.isroutine(given):
            raise OutputTypeError(f"a tool is a function, not {function!r}")
        if timeout_s is not None and not number("timeout_s", timeout_s) > 0:
            raise InvalidParameterError("timeout_s must be above 0", param="timeout_s")
        self.function = function
        self.name = name or function.__name__
        self.timeout_s = timeout_s
        self.confirm = confirm
        summary, documented = _read_docstring(inspect.getdoc(function) or "")
        self.description = description or summary
        self._model: Any = None
        if parameters is None:
            self._model = _parameter_model(function, self.name, documented)
            schema = schema_of(self._model)
        else:
            schema = _given_schema(parameters, self.name)
        schema.pop("title", None)
        self.parameters: dict[str, Any] = {"type": "object", "properties": {}, **schema}
        functools.update_wrapper(self, function)

    @classmethod
    def from_schema(
        cls,
        schema: Mapping[str, Any],
        function: Callable[..., Any],
        *,
        timeout_s: float | None = None,
        confirm: Confirm | None = None,
    ) -> Tool[..., Any]:
        """A tool of its description as OpenAI's API or MCP has it, and the function that it runs.

        Raises:
            OutputTypeError: no description of a function with a name.
        """
        inner = schema.get("function", schema)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise OutputTypeError("a tool's description is an object with a name")
        parameters = inner.get("parameters", inner.get("inputSchema", {"type": "object"}))
        return Tool(
            function,
            name=inner["name"],
            description=inner.get("description"),
            parameters=parameters,
            timeout_s=timeout_s,
            confirm=confirm,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by their parameters' names.

        Raises:
            ArgumentError: the tool doesn't take them.
        """
        names = list(self.parameters["properties"])
        for name in kwargs:
            if self._model is not None and name not in names:
                hint = nearest(name, names)
                message = f"tool {self.name!r} has no parameter {name!r}{hint}"
                raise ArgumentError(message, param=name)
        if len(args) > len(names):
            raise ArgumentError(f"tool {self.name!r} takes {len(names)} arguments, not {len(args)}")
        by_place = dict(zip(names, args, strict=False))
        for name in by_place.keys() & kwargs.keys():
            raise ArgumentError(f"tool {self.name!r}: {name!r} is given twice", param=name)
        return {**by_place, **kwargs}

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the function's types want them; may take long to compile a given schema.

        Raises:
            ToolFailedError: arguments that don't fit the schema.
        """
        if self._model is None:
            outcome = match_text(JsonSchema(self.parameters), to_json(dict(arguments)).decode())
            if not outcome:
                at = f"byte {outcome.offset}: expected {outcome.expected}"
                raise ToolFailedError(self.name, f"wrong arguments at {at}")
            return dict(arguments)
        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolFailedError(self.name, f"wrong arguments: {error}") from error
        return {name: getattr(model, name) for name in model.model_fields_set}

    async def invoke(self, arguments: Mapping[str, Any]) -> Any:
        """Validates the arguments and runs the function: on the loop if it is async, else in a
        worker thread.

        Raises:
            ToolFailedError: wrong arguments, a call that wasn't confirmed, an exception in the
                tool or in ``confirm``, or its time is over.
        """
        if self._model is None:
            values = await asyncio.to_thread(self.validate, arguments)
        else:
            values = self.validate(arguments)
        if self.confirm is not None:
            try:
                is_confirmed = await _run(self.confirm, self.name, dict(values))
            except Exception as error:
                reason = f"not confirmed: {type(error).__name__}: {error}"
                raise ToolFailedError(self.name, reason) from error
            if is_confirmed is not True:
                raise ToolFailedError(self.name, "the call was not confirmed")
        try:
            async with asyncio.timeout(self.timeout_s):
                return await _run(self.function, **values)
        except TimeoutError as error:
            if self.timeout_s is None:
                raise ToolFailedError(self.name, f"TimeoutError: {error}") from error
            raise ToolFailedError(self.name, f"no result after {self.timeout_s:g} s") from error
        except (Exception, SystemExit) as error:
            raise ToolFailedError(self.name, f"{type(error).__name__}: {error}") from error

    def function_object(self) -> dict[str, Any]:
        """The tool as OpenAI's APIs list it, and chat templates print it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }

    def mcp(self) -> dict[str, Any]:
        """The tool as the Model Context Protocol lists it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.parameters,
        }


@overload
def tool(function: Callable[P, T], /) -> Tool[P, T]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
    confirm: Confirm | None = None,
) -> Callable[[Callable[P, T]], Tool[P, T]]: ...
@suggests_names
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
    confirm: Confirm | None = None,
) -> Any:
    """Makes a function, sync or async, a Tool: ``@tool`` or ``@tool(timeout_s=5)``.

    Its schema comes from its type hints; a parameter's description from the ``Args:`` part of the
    docstring or from ``Annotated[..., Field(description=...)]``. ``parameters`` is a JSON schema
    instead of the hints'.

    Raises:
        OutputTypeError: no function, a parameter without a type, or of one that JSON can't hold.
    """

    def wrap(wrapped: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(
            wrapped,
            name=name,
            description=description,
            parameters=parameters,
            timeout_s=timeout_s,
            confirm=confirm,
        )

    return wrap if function is None else wrap(function)


async def _run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Runs a function: on the loop if it is async, else in a worker thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    context = copy_context()
    call = functools.partial(function, *args, **kwargs)
    result = await asyncio.to_thread(context.run, call)
    return await result if isinstance(result, Awaitable) else result


def as_tool(function: Tool[..., T] | Callable[..., T]) -> Tool[..., T]:
    """A Tool of a Tool or a plain function."""
    return function if isinstance(function, Tool) else Tool(function)


def _parameter_model(function: Callable[..., Any], name: str, documented: dict[str, str]) -> Any:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise OutputTypeError(
                f"tool {name!r}: *{parameter.name} has no schema; give one as parameters=..."
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise OutputTypeError(f"tool {name!r}: {parameter.name!r} can't be passed by name")
        if parameter.name not in hints:
            hint = "; a method is a tool as tool(object.method)" if parameter.name == "self" else ""
            raise OutputTypeError(f"tool {name!r}: parameter {parameter.name!r} has no type{hint}")
        description = documented.get(parameter.name)
        is_required = parameter.default is parameter.empty
        field = Field(... if is_required else parameter.default, description=description)
        fields[parameter.name] = (hints[parameter.name], field)
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise OutputTypeError(f"tool {name!r} has no schema: {error}") from error
    return model


def _given_schema(parameters: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise OutputTypeError(f"tool {name!r}: its parameters are a JSON schema of an object")
    schema: dict[str, Any] = closed_schema({**parameters, "type": "object"})
    return schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the descriptions under ``Args:`` by parameter."""
    lines = text.splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip():
            break
        summary.append(line.strip())
    documented: dict[str, str] = {}
    inside, current, indent = False, "", 0
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if stripped in ("Args:", "Arguments:", "Parameters:"):
            inside, indent = True, 0
        elif inside and stripped:
            if depth == 0:
                break
            indent = indent or depth
            head, colon, rest = stripped.partition(":")
            if depth == indent and colon:
                current = head.split("(")[0].strip()
                documented[current] = rest.strip()
            elif current:
                documented[current] += " " + stripped
    return " ".join(summary), documented
