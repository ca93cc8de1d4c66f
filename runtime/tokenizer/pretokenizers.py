"""Pre-tokenizers: how a model family cuts a text into pieces before byte-pair merges.

The patterns are those that the models were published with; names are those that GGUF files state
in ``tokenizer.ggml.pre``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ramet.runtime.api.errors import UnsupportedModelError

MAX_SPACE_RUN = 1 << 16
_LONG_SPACE_RUN = re.compile(rf"(?<!\s)\s{{{MAX_SPACE_RUN + 1},}}")


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A family's rule.

    Attributes:
        patterns: applied one after another; each cuts the pieces of those before it into its
            matches and what lies between them.
        normal_form: the Unicode normalisation that the family applies first, or None.
        adds_bos: whether a prompt begins with the beginning-of-text token, where the model file
            doesn't say.
        ignores_merges: a piece that is a token as a whole is that token.
        is_covering: whether the matches of a single pattern leave nothing between them.
        cuts_at_runs: whether pieces end where runs of letters, digits, white space and other
            characters do, as ``ByteLevelMerger.settled_len`` describes.
    """

    patterns: tuple[str, ...]
    normal_form: Literal["NFC"] | None = None
    adds_bos: bool = False
    ignores_merges: bool = False
    is_covering: bool = True
    cuts_at_runs: bool = True

    def in_form(self, normal_form: Literal["NFC"] | None) -> PreTokenizer:
        """The same rule after another normalisation."""
        return replace(self, normal_form=normal_form)

    def normalise(self, text: str) -> str:
        """The text in the family's normal form."""
        return unicodedata.normalize(self.normal_form, text) if self.normal_form else text


_CONTRACTIONS = r"'(?:[sdmt]|ll|ve|re)"
_ANY_CASE_CONTRACTIONS = r"'(?i:[sdmt]|ll|ve|re)"
_GPT2_TAIL = r" ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def _cl100k(digits: str) -> str:
    return rf"{_ANY_CASE_CONTRACTIONS}|{_WORD}|{digits}|{_TAIL}"


def _o200k(suffix: str, digits: str) -> str:
    """Words begin at capitals inside a run of letters."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{suffix}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_ASCII_PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_WITH_MARKS = (
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
    "Ὀ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113"
    "\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214eↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲"
    "𑢠-𑣟𞤀-𞥃"
)

_GPT2 = PreTokenizer((rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+|{_GPT2_TAIL}",))
# Digits stand alone, also without the space before them.
_SMOLLM = PreTokenizer(
    (
        rf"\p{{N}}|{_CONTRACTIONS}| ?\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+"
        r"|\s+(?=\p{N})|\s+(?!\S)|\s+",
    )
)
_DBRX = PreTokenizer((_cl100k(r"\p{N}{1,3}"),))
_LLAMA3 = replace(_DBRX, adds_bos=True, ignores_merges=True)
_ONE_DIGIT = PreTokenizer((_cl100k(r"\p{N}"),))
_QWEN2 = replace(_ONE_DIGIT, normal_form="NFC")
_QWEN35 = PreTokenizer(
    (
        rf"{_ANY_CASE_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    normal_form="NFC",
)
_TEKKEN = PreTokenizer((_o200k("", r"\p{N}"),), adds_bos=True, ignores_merges=True)
_GPT4O = PreTokenizer((_o200k(_SUFFIX, r"\p{N}{1,3}"),), cuts_at_runs=False)
_BAILING = PreTokenizer(
    (
        rf"{_ANY_CASE_CONTRACTIONS}|{_WORD}|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    cuts_at_runs=False,
)
_SEED_CODER = PreTokenizer(
    (
        rf"{_ANY_CASE_CONTRACTIONS}|{_WORD}|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_EXAONE_MOE = PreTokenizer(
    (
        rf"{_ANY_CASE_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    cuts_at_runs=False,
)
_JAIS2 = PreTokenizer(
    (
        rf"{_ANY_CASE_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        + "|".join(rf"\s{{{length}}}(?!\S)" for length in (512, 256, 128, 64, 32, 16, 8, 4))
        + r"|\s{1,2}(?!\S)|\s{1}",
    ),
    cuts_at_runs=False,
)
_KIMI = PreTokenizer(
    (
        r"[\p{Han}]+|"
        + _o200k(_SUFFIX, r"\p{N}{1,3}")
        .replace(_UPPER, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
        .replace(_LOWER, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
        .replace(r"[\r\n/]*", r"[\r\n]*"),
    ),
    cuts_at_runs=False,
)


def _several(*patterns: str) -> PreTokenizer:
    return PreTokenizer(patterns, is_covering=False, cuts_at_runs=False)


_DEFAULT = _several(r"[\p{P}\$\+<=>\^~\|]+", _GPT2.patterns[0], r"\p{N}+", "[0-9][0-9][0-9]")
_FALCON = _several(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2.patterns[0], "[0-9][0-9][0-9]")
_BLOOM = _several(r" ?[^(\s|.,!?…。，、।۔،)]+")
_VIKING = _several(*_BLOOM.patterns, r"\p{N}")
_DEEPSEEK_LLM = _several(
    "[\r\n]",
    rf"\s?[{_CASED}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
)
_DEEPSEEK_CODER = _several("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_DEEPSEEK_V3 = _several(r"\p{N}{1,3}", _CJK, _WITH_MARKS)
_MINICPM5 = replace(_several(r"\p{N}{1,3}", _cl100k(r"\p{N}+")), ignores_merges=True)
_YOUTU = replace(
    _several(
        f"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{_CJK}",
        _o200k(_SUFFIX, r"\p{N}"),
    ),
    ignores_merges=True,
)
_CHAMELEON = replace(
    _several(
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        "([\\t\\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2.patterns[0],
    ),
    adds_bos=True,
)
_TINY_AYA = replace(_several(r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O.patterns[0]), normal_form="NFC")
_LAGUNA = _several(r"[^\n]+|[\n]+", _ONE_DIGIT.patterns[0])

_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (_DEFAULT, "default"),
    (
        _GPT2,
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
        "gigachat a.x-4.0 mellum modern-bert jais trillion granite-docling exaone4",
    ),
    (replace(_GPT2, normal_form="NFC"), "mpt olmo"),
    (_SMOLLM, "smollm starcoder refact codeshell exaone minerva-7b mellum2"),
    (replace(_SMOLLM, normal_form="NFC"), "command-r"),
    (_LLAMA3, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    (_DBRX, "dbrx smaug-bpe chatglm-bpe glm4"),
    (_QWEN2, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez"),
    (_ONE_DIGIT, "stablelm2 hunyuan solar-open grok-2"),
    (_QWEN35, "qwen35"),
    (_TEKKEN, "tekken"),
    (_GPT4O, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (_KIMI, "kimi-k2"),
    (_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (_SEED_CODER, "seed-coder"),
    (_EXAONE_MOE, "exaone-moe"),
    (_JAIS2, "jais-2"),
    (PreTokenizer((rf"{_WORD}|\p{{N}}|{_TAIL}",)), "ufakzeka"),
    (_FALCON, "falcon"),
    (_BLOOM, "bloom poro-chat gpt3-finnish"),
    (_VIKING, "viking"),
    (_DEEPSEEK_LLM, "deepseek-llm"),
    (_DEEPSEEK_CODER, "deepseek-coder"),
    (_DEEPSEEK_V3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (_MINICPM5, "minicpm5"),
    (_YOUTU, "youtu"),
    (_CHAMELEON, "chameleon"),
    (_TINY_AYA, "tiny_aya cohere2moe"),
    (_LAGUNA, "laguna"),
)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: rule for rule, names in _FAMILIES for name in names.split()
}
"""The rules that Ramet knows, by ``tokenizer.ggml.pre``."""

_PUBLISHED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""The spelling of ``_ANY_CASE_CONTRACTIONS`` in tokenizer.json files."""


def covering_pattern(pattern: str) -> PreTokenizer | None:
    """The rule with this pattern, if it is one of a family and its matches cover any text."""
    wanted = pattern.replace(_PUBLISHED, _ANY_CASE_CONTRACTIONS).replace(
        _ANY_CASE_CONTRACTIONS + "?", _SUFFIX
    )
    return next(
        (rule for rule, _ in _FAMILIES if rule.is_covering and rule.patterns == (wanted,)), None
    )


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
