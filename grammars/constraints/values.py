"""The constraint values: descriptions of allowed text. One discriminated union, ``Constraint``.

They are plain data: they compare, hash (by content), pickle, and travel as JSON by ``kind``.
``compile_constraint`` turns one into a ``Grammar`` for a vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt

JsonValue = Any
"""Any value that ``json.loads`` can give; schemas are such values."""

Whitespace = Literal["none", "compact", "pretty"]
"""JSON whitespace: none; at most one space where JSON allows any; newlines and indentation."""

Integers = Literal["any", "plain"]
"""How a number that must be an integer is written: in any way that has an integer's value (``7``,
``7.0``, ``7e2``), as JSON Schema has it; or by its digits alone, as readers of integers expect."""

Digits = Literal["any", "bounded"]
"""How many digits a number has where its schema sets no bound: any number of them, as JSON Schema
has it; or bounded, so that no model writes one number until its tokens are used up.
``json_schema.schema.number_form`` states the bounds."""

Classes = Literal["dialect", "ascii"]
"""What ``\\d``, ``\\w`` and ``\\s`` of a regex mean: what its dialect says, or ASCII where that
narrows the regex and no ``(?u)`` opens them."""

Formats = Literal["enforced", "annotation"]
"""Whether ``format`` constrains strings, as most authors mean it, or is an annotation, as the
specification's default is."""


SchemaDialect = Literal[
    "auto", "draft-03", "draft-04", "draft-06", "draft-07", "2019-09", "2020-12",
    "openapi-3.0", "openapi-3.1", "jtd",
]  # fmt: skip
"""What a schema is written in where its ``$schema`` doesn't say: a draft of JSON Schema, OpenAPI's
schema objects, JSON Type Definition. ``auto`` takes the keywords of every draft."""


class _Value:
    """Base of all values: how they are read from JSON and checked."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", revalidate_instances="always"
    )


@dataclass(frozen=True, eq=False)
class JsonSchema(_Value):
    """Text that is one JSON value valid against ``schema``.

    ``any_order`` lets an object's properties come in any order; otherwise the schema's order is
    kept, save that an object that may have other properties takes a late optional one.
    ``documents`` maps URIs to schemas that ``$ref`` may name; nothing is ever fetched.
    """

    schema: JsonValue
    whitespace: Whitespace = "compact"
    any_order: StrictBool = True
    documents: dict[str, JsonValue] = field(default_factory=dict)
    integers: Integers = "any"
    formats: Formats = "enforced"
    dialect: SchemaDialect = "auto"
    digits: Digits = "any"
    kind: Literal["json_schema"] = "json_schema"


@dataclass(frozen=True)
class JsonObject(_Value):
    """Text that is any one JSON object."""

    whitespace: Whitespace = "compact"
    digits: Digits = "any"
    kind: Literal["json_object"] = "json_object"


@dataclass(frozen=True)
class Regex(_Value):
    """Text that the whole of ``pattern`` matches. ``dialect`` is Python's syntax or ECMA-262's."""

    pattern: str
    dialect: Literal["python", "ecma"] = "python"
    classes: Classes = "dialect"
    kind: Literal["regex"] = "regex"


@dataclass(frozen=True)
class Ebnf(_Value):
    """Text that a context-free grammar derives, in GBNF's or Lark's dialect."""

    grammar: str
    dialect: Literal["auto", "gbnf", "lark"] = "auto"
    start: str | None = None
    classes: Classes = "dialect"
    kind: Literal["ebnf"] = "ebnf"


@dataclass(frozen=True)
class Choice(_Value):
    """Text that is exactly one of ``choices``."""

    choices: tuple[str, ...]
    kind: Literal["choice"] = "choice"


# -- structural tags ------------------------------------------------------------------------------
# A structural tag is a tree of parts. Its leaves are texts and the constraints above.


@dataclass(frozen=True)
class FixedText(_Value):
    """Exactly ``text``. A special token that the vocabulary names may stand for its own text."""

    text: str
    kind: Literal["fixed_text"] = "fixed_text"


@dataclass(frozen=True)
class FreeText(_Value):
    """Any text in which none of the ``excluded`` texts occurs.

    At least ``min_tokens`` and at most ``max_tokens`` of the sequence's tokens begin in it (0: it
    is empty). After the last one the text must end, once a character that has begun is complete.
    Where the text before can be read in several ways, tokens count from the first reading that is
    in this part. Text that is matched without tokens has any number of them.
    """

    excluded: tuple[str, ...] = ()
    min_tokens: StrictInt = 0
    max_tokens: StrictInt | None = None
    kind: Literal["free_text"] = "free_text"


@dataclass(frozen=True)
class Tag(_Value):
    """``begin``, the content, ``end``: a tool call, or a reasoning channel.

    Free text as the content ends at the first ``end``.
    """

    begin: str
    content: Part
    end: str
    kind: Literal["tag"] = "tag"


@dataclass(frozen=True)
class TriggeredTags(_Value):
    """Free text in which every trigger must begin one of ``tags``: tools in auto mode.

    A trigger is a text with which some tags begin; without ``triggers`` it is each tag's own
    ``begin``. There are ``minimum`` to ``maximum`` tags (None: any number). Outside the tags no
    trigger occurs, nor any of the ``excluded`` texts.
    """

    tags: tuple[Tag, ...]
    triggers: tuple[str, ...] = ()
    minimum: StrictInt = 0
    maximum: StrictInt | None = None
    excluded: tuple[str, ...] = ()
    kind: Literal["triggered_tags"] = "triggered_tags"


@dataclass(frozen=True)
class Series(_Value):
    """Parts one after the other."""

    parts: tuple[Part, ...]
    kind: Literal["series"] = "series"


@dataclass(frozen=True)
class AnyOf(_Value):
    """One of the options."""

    options: tuple[Part, ...]
    kind: Literal["any_of"] = "any_of"


@dataclass(frozen=True)
class Repeated(_Value):
    """``part``, ``minimum`` to ``maximum`` times (None: any number)."""

    part: Part
    minimum: StrictInt = 0
    maximum: StrictInt | None = None
    kind: Literal["repeated"] = "repeated"


@dataclass(frozen=True)
class JsonString(_Value):
    """A JSON string, quotes included, whose decoded value is a text of ``content``.

    ``content`` has texts only: no JSON values, special tokens or bounds on tokens.
    """

    content: Part
    kind: Literal["json_string"] = "json_string"


Part = Annotated[
    FixedText | FreeText | Tag | TriggeredTags | Series | AnyOf | Repeated | JsonString
    | JsonSchema | JsonObject | Regex | Ebnf | Choice,
    Field(discriminator="kind"),
]  # fmt: skip


@dataclass(frozen=True)
class StructuralTag(_Value):
    """Text made of parts: fixed and free texts, tags, and any other constraints."""

    root: Part
    kind: Literal["structural_tag"] = "structural_tag"


Constraint = JsonSchema | JsonObject | Regex | Ebnf | Choice | StructuralTag
