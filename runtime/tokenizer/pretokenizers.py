"""How a text is cut into pieces before byte-pair merges: by model family, as published."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ramet.runtime.api.errors import UnsupportedModelError

MAX_SPACE_RUN = 1 << 16
_LONG_SPACE_RUN = re.compile(rf"(?<!\s)\s{{{MAX_SPACE_RUN + 1},}}")

_CONTRACTIONS = r"'(?:[sdmt]|ll|ve|re)"
_ANY_CASE_CONTRACTIONS = r"'(?i:[sdmt]|ll|ve|re)"
_GPT2_WORDS = r" ?\p{L}+"
_GPT2_TAIL = r" ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A family's rule.

    Attributes:
        pattern: each match is one piece; together the matches cover any text.
        normal_form: the Unicode normalisation that the family applies first, or None.
        adds_bos: whether a prompt begins with the beginning-of-text token, where the model file
            doesn't say.
    """

    pattern: str
    normal_form: Literal["NFC"] | None = None
    adds_bos: bool = False

    def normalise(self, text: str) -> str:
        return unicodedata.normalize(self.normal_form, text) if self.normal_form else text


_GPT2 = PreTokenizer(rf"{_CONTRACTIONS}|{_GPT2_WORDS}| ?\p{{N}}+|{_GPT2_TAIL}")
# Digits stand alone, also without the space before them.
_SMOLLM = PreTokenizer(
    rf"\p{{N}}|{_CONTRACTIONS}|{_GPT2_WORDS}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?=\p{{N}})|\s+(?!\S)|\s+"
)
_LLAMA3 = PreTokenizer(
    rf"{_ANY_CASE_CONTRACTIONS}|{_LLAMA3_WORDS}|\p{{N}}{{1,3}}|{_LLAMA3_TAIL}", adds_bos=True
)
_QWEN2 = PreTokenizer(
    rf"{_ANY_CASE_CONTRACTIONS}|{_LLAMA3_WORDS}|\p{{N}}|{_LLAMA3_TAIL}", normal_form="NFC"
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
"""The rules that Ramet knows, by ``tokenizer.ggml.pre``."""


def pre_tokenizer(name: str) -> PreTokenizer:
    """The rule called ``name``; ``UnsupportedModelError`` if there is none."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"the pre-tokenizer {name!r} is not supported; Ramet has {', '.join(PRE_TOKENIZERS)}"
        ) from None


def bounded_chunks(text: str) -> Iterator[str]:
    """Cuts ``text`` so that no chunk has more than ``MAX_SPACE_RUN`` spaces in a row.

    A lookahead behind a run of white space makes the pattern matcher remember every place in the
    run, and a run of about a million exhausts it. Only texts with such runs are cut, inside them.
    """
    start = 0
    if len(text) > MAX_SPACE_RUN:
        for run in _LONG_SPACE_RUN.finditer(text):
            for cut in range(run.start() + MAX_SPACE_RUN, run.end(), MAX_SPACE_RUN):
                yield text[start:cut]
                start = cut
    yield text[start:]
