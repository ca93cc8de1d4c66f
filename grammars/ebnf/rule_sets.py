"""Properties of all rules of a grammar: what they derive, how they call each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from .ast import Alternatives, Call, Expression, Foreign, Repeat, Sequence, Terminal, calls

T = TypeVar("T", bound=Hashable)


def has_foreign(expression: Expression) -> bool:
    """Whether an expression has anything foreign."""
    match expression:
        case Foreign():
            return True
        case Sequence(parts) | Alternatives(parts):
            return any(map(has_foreign, parts))
        case Repeat(part, _, _):
            return has_foreign(part)
        case _:
            return False


_Derives = Callable[[Expression, set[str]], bool]


def derives_text(expression: Expression, known: set[str]) -> bool:
    """Whether an expression derives any text, if the rules in ``known`` do."""
    match expression:
        case Terminal(dfa):
            return not dfa.is_empty
        case Call(name):
            return name in known
        case Foreign():
            return True
        case Sequence(parts):
            return all(derives_text(part, known) for part in parts)
        case Alternatives(options):
            return any(derives_text(option, known) for option in options)
        case Repeat(part, minimum, _):
            return minimum == 0 or derives_text(part, known)


def derives_nothing(expression: Expression, known: set[str]) -> bool:
    """Whether an expression derives the empty text, if the rules in ``known`` do."""
    match expression:
        case Terminal(dfa):
            return dfa.accepts(b"")
        case Call(name):
            return name in known
        case Foreign():
            return False
        case Sequence(parts):
            return all(derives_nothing(part, known) for part in parts)
        case Alternatives(options):
            return any(derives_nothing(option, known) for option in options)
        case Repeat(part, minimum, _):
            return minimum == 0 or derives_nothing(part, known)


def fixpoint(rules: dict[str, Expression], derives: _Derives) -> set[str]:
    """The least set of rules that ``derives`` proves of each other."""
    callers: dict[str, set[str]] = {}
    for name, expression in rules.items():
        for call in calls(expression):
            callers.setdefault(call.name, set()).add(name)
    found: set[str] = set()
    queue = list(rules)
    while queue:
        name = queue.pop()
        if name not in found and derives(rules[name], found):
            found.add(name)
            queue += callers.get(name, ())
    return found


def components(graph: dict[T, list[T]]) -> list[list[T]]:
    """Strongly connected components, callees before callers (Tarjan, 1972)."""
    index: dict[T, int] = {}
    low: dict[T, int] = {}
    path: list[T] = []
    on_path: set[T] = set()
    found: list[list[T]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in graph:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = path.pop()
                        on_path.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    found.append(group)
    return found
