"""Valid and invalid instances of a schema: a seeded generator, judged by an independent validator.

What the generator makes is only a proposal: the validator says which are valid. Invalid ones are
valid ones with one change. Where no validator can judge, there is no instance.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
)
from openapi_schema_validator import OAS30Validator, oas30_format_checker

TRIES, VALID, INVALID = 60, 3, 6
MAX_DEPTH = 6

SAMPLES = {
    "date-time": "2024-02-29T12:30:00Z",
    "date": "2024-02-29",
    "time": "12:30:00Z",
    "email": "ann@example.org",
    "uri": "https://example.org/a?b=c",
    "url": "https://example.org/",
    "uuid": "3fa85f64-5717-4562-b3fc-2c963f66afa6",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::1",
    "hostname": "example.org",
}
WORDS = ("", "a", "main", "open source", "Zoë", "x" * 20, "2024-01-01", "42", 'q"uote', "#ff0000")


def validator_of(schema: dict[str, Any]) -> Any:
    """A validator by ``$schema``; formats are asserted."""
    dialect = str(schema.get("$schema", ""))
    if "oas/3.0" in dialect:
        plain = {k: v for k, v in schema.items() if k != "$schema"}
        return OAS30Validator(plain, format_checker=oas30_format_checker)
    for mark, found in (
        ("draft-04", Draft4Validator),
        ("draft-06", Draft6Validator),
        ("draft-07", Draft7Validator),
        ("2019-09", Draft201909Validator),
    ):
        if mark in dialect:
            return found(schema, format_checker=FormatChecker())
    return Draft202012Validator(schema, format_checker=FormatChecker())


class Generator:
    """Makes values that probably satisfy a schema."""

    def __init__(self, root: dict[str, Any], rng: random.Random) -> None:
        self.root = root
        self.rng = rng

    def resolved(self, schema: Any) -> dict[str, Any]:
        """A schema with its reference followed and its ``allOf`` merged."""
        if schema is True or not isinstance(schema, dict):
            return {}
        for _ in range(20):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#"):
                break
            target: Any = self.root
            for step in reference.split("/")[1:]:
                target = target[step.replace("~1", "/").replace("~0", "~")]
            schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        merged = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema.get("allOf", ()):
            part = self.resolved(part)
            properties = {**part.get("properties", {}), **merged.get("properties", {})}
            required = [*part.get("required", ()), *merged.get("required", ())]
            merged = {**part, **merged, "properties": properties, "required": required}
        return merged

    def value(self, schema: Any, depth: int = 0) -> Any:
        schema = self.resolved(schema)
        rng = self.rng
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        for keyword in ("oneOf", "anyOf"):
            if schema.get(keyword):
                outer = {k: v for k, v in schema.items() if k != keyword}
                chosen = self.resolved(rng.choice(schema[keyword]))
                properties = {**outer.get("properties", {}), **chosen.get("properties", {})}
                required = [*outer.get("required", ()), *chosen.get("required", ())]
                both = {**outer, **chosen}
                if properties:
                    both |= {"properties": properties, "required": required}
                return self.value(both, depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = rng.choice(kind)
        if schema.get("nullable") and rng.random() < 0.1:
            return None
        if kind is None:
            kind = (
                "object" if "properties" in schema else "array" if "items" in schema else "string"
            )
        return getattr(self, f"_{kind}")(schema, depth)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        share = self.rng.choice((0.0, 0.3, 0.9)) if depth < MAX_DEPTH else 0.0
        found = {
            name: self.value(inner, depth + 1)
            for name, inner in properties.items()
            if name in required or self.rng.random() < share
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and depth < MAX_DEPTH:
            for name in self.rng.sample(("alpha", "beta-2", "Γ"), self.rng.randrange(3)):
                found.setdefault(name, self.value(more, depth + 1))
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        low = schema.get("minItems", 0)
        high = schema.get("maxItems", low + 3)
        count = self.rng.randint(low, max(low, min(high, low + 3))) if depth < MAX_DEPTH else low
        items = schema.get("items", {})
        return [
            self.value(items if isinstance(items, dict) else {}, depth + 1) for _ in range(count)
        ]

    def _string(self, schema: dict[str, Any], _depth: int) -> str:
        if schema.get("format") in SAMPLES:
            return SAMPLES[schema["format"]]
        examples = [schema.get("example"), schema.get("default"), *_list(schema.get("examples"))]
        texts = [e for e in examples if isinstance(e, str)]
        if texts and self.rng.random() < 0.7:
            return self.rng.choice(texts)
        word = self.rng.choice(WORDS)
        low = schema.get("minLength", 0)
        if len(word) < low:
            word += "abcdefghij" * (low // 10 + 1)
        return word[: schema.get("maxLength", max(low, 60))]

    def _integer(self, schema: dict[str, Any], _depth: int) -> int:
        low = schema.get("minimum", -3 if "maximum" not in schema else schema["maximum"] - 9)
        high = schema.get("maximum", low + 100)
        step = int(schema.get("multipleOf", 1)) or 1
        return self.rng.randint(int(low), int(max(low, high))) // step * step

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        return self.rng.choice((self._integer(schema, depth), self._integer(schema, depth) + 0.25))

    def _boolean(self, _schema: dict[str, Any], _depth: int) -> bool:
        return self.rng.random() < 0.5

    def _null(self, _schema: dict[str, Any], _depth: int) -> None:
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict | list):
        for step, inner in items:
            yield from places(inner, (*at, step))


def changed(value: Any, rng: random.Random) -> Any:
    """A value with one change, which may make it invalid."""
    value = copy.deepcopy(value)
    at = rng.choice(list(places(value)))
    parent, part = None, value
    for step in at:
        parent, part = part, part[step]
    if isinstance(part, dict) and part and rng.random() < 0.6:
        del part[rng.choice(list(part))]
        return value
    if isinstance(part, dict) and rng.random() < 0.4:
        part["unlisted"] = 1
        return value
    other = rng.choice(
        [None, True, -1, 1.5, "no such value", "", [], {}, [None], 10**6, "y" * 5000]
    )
    if parent is None:
        return other
    parent[at[-1]] = other
    return value


def instances(schema: dict[str, Any], seed: str) -> list[dict[str, Any]]:
    """Up to three valid and six invalid instances, each once."""
    rng = random.Random(seed)
    validator = validator_of(schema)
    generator = Generator(schema, rng)
    found: dict[bool, list[Any]] = {True: [], False: []}
    for turn in range(TRIES):
        try:
            value = generator.value(schema)
            if found[True] and turn % 2:
                value = changed(rng.choice(found[True]), rng)
            is_valid = validator.is_valid(value)
        except (RecursionError, KeyError, TypeError, ValueError, AttributeError):
            continue
        room = VALID if is_valid else INVALID if turn % 2 else 0
        if len(found[is_valid]) < room and value not in found[is_valid]:
            found[is_valid].append(value)
    return [{"data": v, "valid": ok} for ok in (True, False) for v in found[ok]]
