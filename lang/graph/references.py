"""References inside text: how an f-string can hold a Value that isn't there yet.

``f"{value}"`` must be a plain ``str`` immediately, so a Value formats itself as a *token*: a run's
number, the index of the reference in that run's table, and a keyed hash of both. Text that is
given to a run is split at the tokens whose hash is right; everything else in it is text, even if it
resembles a token. Only this process can make such a hash, its key is never written anywhere, and
what a model writes is put into prompts as data that is never split again. So no user text and no
model output can become a reference, and a reference of another run is recognised as one.

A token is fixed in width and its first letters can't occur in the rest of it, so two tokens never
overlap: splitting is exact. It is plain ASCII that survives JSON and HTML escaping; one that was
sliced or changed in case is found by its run number and refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from ramet.lang.base.errors import DamagedReferenceError, ForeignValueError

_KEY = secrets.token_bytes(32)
_TOKEN = re.compile(r"ramet_ref_([0-9a-f]{16})_([0-9a-f]{8})_([0-9a-f]{32})")
_BEGINNING = re.compile(r"ramet_ref_([0-9a-f]{4,16})")


@dataclass(frozen=True, slots=True)
class Ref:
    """A node's value inside a text, formatted by ``spec`` (``""``: the text as it is)."""

    node_id: str
    spec: str = ""


TextPart = str | Ref
Template = tuple[TextPart, ...]
"""Text with references in it. Adjacent strings are merged, and none is empty."""


def _hash(run_number: str, index: str) -> str:
    message = f"{run_number}.{index}".encode()
    return hashlib.blake2b(message, key=_KEY, digest_size=16).hexdigest()


class ReferenceTable:
    """The references that one run has made, and the only reader of its tokens."""

    def __init__(self) -> None:
        self._run_number = secrets.token_hex(8)
        self._refs: list[Ref] = []
        self._indices: dict[Ref, int] = {}

    def token(self, ref: Ref) -> str:
        """The text that stands for ``ref`` until the run reads it."""
        index = self._indices.setdefault(ref, len(self._refs))
        if index == len(self._refs):
            self._refs.append(ref)
        number = f"{index:08x}"
        return f"ramet_ref_{self._run_number}_{number}_{_hash(self._run_number, number)}"

    def parse(self, text: str) -> Template:
        """Splits ``text`` at this run's references.

        Raises:
            ForeignValueError: a reference of another run.
            DamagedReferenceError: a piece of one of this run's references.
        """
        text = str.__str__(text)  # the characters of a str subclass, whatever its methods say
        parts: list[TextPart] = []
        start = 0
        for match in _TOKEN.finditer(text):
            run_number, index, digest = match.groups()
            if not hmac.compare_digest(_hash(run_number, index), digest):
                continue
            if run_number != self._run_number:
                raise ForeignValueError(
                    "the text refers to a value of another run; use that value's .value"
                )
            self._append_text(parts, text[start : match.start()])
            parts.append(self._refs[int(index, 16)])
            start = match.end()
        self._append_text(parts, text[start:])
        return tuple(parts)

    def plain(self, text: str, what: str) -> str:
        """``text`` itself, for a place where no reference may stand."""
        if any(isinstance(part, Ref) for part in self.parse(text)):
            raise DamagedReferenceError(
                f"{what} can't refer to a value that isn't there yet; use the value's .value"
            )
        return text

    def _append_text(self, parts: list[TextPart], text: str) -> None:
        if not text:
            return
        if self._refs and self._has_piece(text.lower()):
            raise DamagedReferenceError(
                "the text holds a damaged reference: a string method was used on an f-string "
                "that holds a value; use the value's .value there"
            )
        parts.append(text)

    def _has_piece(self, text: str) -> bool:
        """Whether the text has this run's number, or a token's beginning with a part of it."""
        return self._run_number in text or any(
            self._run_number.startswith(digits) for digits in _BEGINNING.findall(text)
        )
