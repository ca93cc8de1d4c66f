"""A sandbox for chat templates in which rendering is bounded in time and size.

Jinja's own sandbox keeps templates from files and from Python. Here, what a render makes (printed
text, and the results of operators, calls and filters) is charged to a ``RenderBudget``, and so is
each pass of a loop or macro. Nothing is folded into constants when a template is compiled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox
import jinja2.visitor

from ramet.runtime.api.off_loop import stop_if_gone

BUDGET = "ramet_budget"
_PASS, _PRINT, _RESULT = "ramet_pass", "ramet_print", "ramet_result"
RESERVED = frozenset({BUDGET, _PASS, _PRINT, _RESULT})
"""Variables that belong to the sandbox."""

MAX_SOURCE_LEN = 1 << 20
_MAX_CHARS = 16 << 20
_CHARS_PER_INPUT = 16
_MAX_CPU_S = 10.0
_MAX_NUMBER = 100_000
"""The largest width, count or indent in a call; as long as the longest ``range``."""

_CHARGES_PER_LOOK = 1000
"""Number of charges between two checks for the client's disconnect."""

_LONG_NUMBER = re.compile(r"\d{6}")
_NESTED_FIELD = re.compile(r"\{[^{}]*[:!][^{}]*\{")
_STARRED_FIELD = re.compile(r"%[-+ #0-9.]*\*")


class RenderLimitError(Exception):
    """A template does more than it may."""


class RenderBudget:
    """The remaining work of one render, in characters and items of lists.

    Args:
        num_input_chars: of the messages and everything else that is rendered.
    """

    def __init__(self, num_input_chars: int) -> None:
        self.left = _MAX_CHARS + _CHARS_PER_INPUT * num_input_chars
        self._deadline = time.thread_time() + _MAX_CPU_S
        self._num_charges = 0

    def variables(self) -> dict[str, Any]:
        """The sandbox's variables, to render with."""
        return {
            BUDGET: self,
            _PASS: self.charge,
            _PRINT: self.charge_printed,
            _RESULT: self.charge_result,
        }

    def require(self, size: int) -> None:
        """Refuses to make something of more than what is left."""
        if size > self.left:
            raise RenderLimitError("it produces too much text")

    def charge(self, size: int) -> str:
        """Charges a pass of a loop, with what it prints without expressions."""
        self.left -= size + 1
        if self.left < 0:
            raise RenderLimitError("it produces too much text")
        if time.thread_time() > self._deadline:
            raise RenderLimitError(f"it takes more than {_MAX_CPU_S:g} s of CPU time")
        self._num_charges += 1
        if not self._num_charges % _CHARGES_PER_LOOK:
            stop_if_gone()
        return ""

    def charge_printed(self, value: Any) -> Any:
        """Charges a printed value."""
        if not isinstance(value, str):
            value = str(value)
        self.charge(len(value))
        return value

    def charge_result(self, value: Any) -> Any:
        """Charges the result of an operator, a call or a filter."""
        if isinstance(value, list | tuple):
            self.charge(len(value) + sum(map(_size, value)))
        else:
            self.charge(_size(value))
        return value


class TemplateSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The environment of chat templates; compile what ``bounded`` returns.

    Args:
        filters: in place of Jinja's of these names.
        options: the environment's.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(
        self, filters: Mapping[str, Callable[..., Any]] | None = None, **options: Any
    ) -> None:
        super().__init__(optimized=False, **options)
        del self.globals["lipsum"]
        for name in [*_FILTER_CHECKS, *(filters or ())]:
            filter_ = (filters or {}).get(name) or self.filters[name]
            self.filters[name] = _checked(filter_, _FILTER_CHECKS[name])

    def bounded(self, source: str) -> jinja2.nodes.Template:
        """The template's syntax tree with charges in it."""
        return _AddCharges().visit(self.parse(source))  # type: ignore[no-any-return]

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        budget: RenderBudget = context[BUDGET]
        if operator == "*":
            budget.require(_size(left) * _size(right, as_count=True))
            budget.require(_size(right) * _size(left, as_count=True))
            if isinstance(left, int) and isinstance(right, int):
                budget.require(left.bit_length() * right.bit_length())
        elif operator == "**":
            _check_numbers((left, right), 1000)
        elif operator == "%" and isinstance(left, str):
            values = right.values() if isinstance(right, dict) else right
            _check_format(left, values if isinstance(right, tuple | dict) else (right,))
        else:
            budget.require(_size(left) + _size(right))
        return budget.charge_result(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            values = [*args, *kwargs.values()]
            values += [
                inner for each in values if isinstance(each, dict) for inner in each.values()
            ]
            _check_format(value.__self__, values, braces=True)
            return wrapped(*args, **kwargs)

        return checked

    def call(
        __self,  # as in Jinja: templates may have an argument called self
        __context: jinja2.runtime.Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, RenderBudget):
            return __obj(*args)
        budget: RenderBudget = __context[BUDGET]
        if isinstance(owner, str | bytes):
            _check_method(budget, owner, __obj.__name__, args, kwargs)
        return budget.charge_result(super().call(__context, __obj, *args, **kwargs))


Looping = TypeVar("Looping", jinja2.nodes.For, jinja2.nodes.Macro, jinja2.nodes.CallBlock)


class _AddCharges(jinja2.visitor.NodeTransformer):
    """Adds charges to loops, macros, blocks, printed values, concatenations and filters."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.For:
        return self._with_pass(node)

    def visit_Macro(self, node: jinja2.nodes.Macro) -> jinja2.nodes.Macro:
        return self._with_pass(node)

    def visit_CallBlock(self, node: jinja2.nodes.CallBlock) -> jinja2.nodes.CallBlock:
        return self._with_pass(node)

    def _with_pass(self, node: Looping) -> Looping:
        plain = sum(len(each.data) for each in node.find_all(jinja2.nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, jinja2.nodes.ExprStmt(_call(_PASS, jinja2.nodes.Const(plain))))
        return node

    def visit_AssignBlock(self, node: jinja2.nodes.AssignBlock) -> jinja2.nodes.AssignBlock:
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_FilterBlock(self, node: jinja2.nodes.FilterBlock) -> jinja2.nodes.FilterBlock:
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_Output(self, node: jinja2.nodes.Output) -> jinja2.nodes.Output:
        self.generic_visit(node)
        node.nodes = [
            each if isinstance(each, jinja2.nodes.TemplateData) else _call(_PRINT, each)
            for each in node.nodes
        ]
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        node.nodes = [_call(_PRINT, each) for each in node.nodes]
        return node

    def visit_Getitem(self, node: jinja2.nodes.Getitem) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        return _call(_RESULT, node) if isinstance(node.arg, jinja2.nodes.Slice) else node

    def visit_Filter(self, node: jinja2.nodes.Filter) -> jinja2.nodes.Expr:
        self.generic_visit(node)
        return _call(_RESULT, node)


def _call(name: str, *arguments: jinja2.nodes.Expr) -> jinja2.nodes.Call:
    return jinja2.nodes.Call(jinja2.nodes.Name(name, "load"), list(arguments), [], None, None)


def _size(value: Any, *, as_count: bool = False) -> int:
    if as_count:
        return abs(value) if isinstance(value, int) else 0
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _check_numbers(values: Iterable[Any], most: int = _MAX_NUMBER) -> None:
    for value in values:
        if isinstance(value, int | float) and abs(value) > most:
            raise RenderLimitError(f"it calls something with {value:.3g}")


def _check_format(text: str, values: Iterable[Any], *, braces: bool = False) -> None:
    """Refuses widths and precisions that are too large, or that are values themselves."""
    if _LONG_NUMBER.search(text) or (_NESTED_FIELD if braces else _STARRED_FIELD).search(text):
        raise RenderLimitError("it formats with a width that is too large or unknown")
    if max(map(_size, values), default=0) * text.count("{" if braces else "%") > _MAX_CHARS:
        raise RenderLimitError("it produces too much text")


def _check_method(
    budget: RenderBudget, text: str | bytes, name: str, args: tuple[Any, ...], kwargs: Any
) -> None:
    """Refuses calls of a text's methods whose results would be too long."""
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        _check_numbers((*args, *kwargs.values()))
        budget.require(len(text) * (max([1, *filter(_is_int, args)]) if "tabs" in name else 1))
    elif name == "replace" and len(args) > 1:
        budget.require((len(text) + 1) * max(1, _size(args[1])) if _size(args[1]) > 1 else 0)
    elif name == "join" and args:
        items = list(args[0]) if isinstance(args[0], str | list | tuple | dict) else []
        budget.require(len(text) * len(items) + sum(map(_size, items)))
    elif name == "translate":
        raise RenderLimitError("it calls translate")


def _is_int(value: Any) -> bool:
    return isinstance(value, int)


def _check_filter_numbers(*args: Any) -> None:
    _check_numbers(args)
    if sum(map(_size, args[1:])) > 1000:
        raise RenderLimitError("it fills with a text that is too long")


def _check_indent(text: Any, width: Any = 4, *others: Any) -> None:
    _check_numbers((width, *others), 1000)
    step = width if isinstance(width, int) else _size(width)
    if step * str(text).count("\n") > _MAX_CHARS:
        raise RenderLimitError("it produces too much text")


def _check_join(value: Any, separator: Any = "", *_: Any) -> None:
    if _size(value) * len(str(separator)) > _MAX_CHARS:
        raise RenderLimitError("it produces too much text")
    if not isinstance(value, str | list | tuple | dict) and len(str(separator)) > 1000:
        raise RenderLimitError("it joins with a text that is too long")


def _check_replace(text: Any, _: Any, new: Any, *__: Any) -> None:
    if (len(str(text)) + 1) * len(str(new)) > _MAX_CHARS and len(str(new)) > 100:
        raise RenderLimitError("it produces too much text")


def _check_sum(_: Any, __: Any = None, start: Any = 0) -> None:
    if not isinstance(start, int | float):
        raise RenderLimitError("it sums values that are not numbers")


def _check_json(_: Any, indent: Any = None, *__: Any) -> None:
    _check_numbers((indent,), 64)
    if _size(indent) > 64:
        raise RenderLimitError("it indents too far")


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _check_filter_numbers,
    "center": _check_filter_numbers,
    "format": lambda text, *args, **named: _check_format(str(text), (*args, *named.values())),
    "indent": _check_indent,
    "join": _check_join,
    "replace": _check_replace,
    "slice": _check_filter_numbers,
    "sum": _check_sum,
    "tojson": _check_json,
    "wordwrap": _check_filter_numbers,
}


def _checked(filter_: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """A filter that checks its arguments first; it gets what Jinja passes to the original."""
    pass_arg = getattr(filter_, "jinja_pass_arg", None)

    def checked(*args: Any, **kwargs: Any) -> Any:
        own = args if pass_arg is None else args[1:]
        try:
            check(*own, *kwargs.values())
        except TypeError:
            raise RenderLimitError("it calls a filter with wrong arguments") from None
        return filter_(*args, **kwargs)

    if pass_arg is not None:
        checked.jinja_pass_arg = pass_arg  # type: ignore[attr-defined]
    return checked
