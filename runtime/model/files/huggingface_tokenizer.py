"""Reads ``tokenizer.json`` and its neighbours into the metadata that a GGUF file would have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import MetadataValue, read_json

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5

# The family's pattern as its tokenizer.json has it; {digits} is what differs.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_FAMILY_OF_PATTERN = {
    _SPLIT.format(digits=r"\p{N}{1,3}"): "llama-bpe",
    _SPLIT.format(digits=r"\p{N}"): "qwen2",
}


def tokenizer_metadata(
    path: Path, config: Mapping[str, Any], vocab_size: int
) -> dict[str, MetadataValue]:
    """The ``tokenizer.*`` metadata of a model folder.

    Args:
        path: the folder.
        config: its ``config.json``.
        vocab_size: embedding rows; ids that the tokenizer leaves out are unused.
    """
    document = _read(path / "tokenizer.json", required=True)
    settings = _read(path / "tokenizer_config.json")
    generation = _read(path / "generation_config.json")
    model = document.get("model") or {}
    vocab, merges = model.get("vocab"), model.get("merges")
    if model.get("type") != "BPE" or not isinstance(vocab, dict) or not isinstance(merges, list):
        raise UnsupportedModelError(
            f"{path}: the tokenizer {model.get('type')!r} is not supported; "
            "Ramet has byte-level BPE"
        )
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise UnsupportedModelError(f"{path}: the tokenizer's {option} is not supported")
    added = document.get("added_tokens") or []
    texts = [f"<unused {token_id}>" for token_id in range(vocab_size)]
    kinds = [_UNUSED] * vocab_size
    entries = [(text, token_id, _NORMAL) for text, token_id in vocab.items()]
    entries += [
        (each["content"], each["id"], _CONTROL if each.get("special") else _USER_DEFINED)
        for each in added
    ]
    for text, token_id, kind in entries:
        if not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise ModelLoadError(f"{path}: the token {text!r} has no row in the embedding")
        texts[token_id], kinds[token_id] = text, kind
    ids = {text: token_id for text, token_id, _ in entries}
    end_ids = _end_ids(config, generation)
    values: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _family(path, document),
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in merges
        ],
        "tokenizer.ggml.bos_token_id": ids.get(_text(settings.get("bos_token"))),
        "tokenizer.ggml.eos_token_id": ids.get(
            _text(settings.get("eos_token")), end_ids[0] if end_ids else None
        ),
        "tokenizer.ggml.add_bos_token": settings.get("add_bos_token"),
        "tokenizer.chat_template": _chat_template(path, settings),
        "ramet.end_token_ids": end_ids,
    }
    return {key: value for key, value in values.items() if value is not None}


def _family(path: Path, document: Mapping[str, Any]) -> str:
    """The name of the pre-tokenizer; ``UnsupportedModelError`` if it is none that is known."""
    normaliser = (document.get("normalizer") or {}).get("type")
    rule = document.get("pre_tokenizer") or {}
    steps = rule.get("pretokenizers", [rule]) if rule.get("type") == "Sequence" else [rule]
    kinds = [step.get("type") for step in steps]
    last = steps[-1] if steps else {}
    plain = not last.get("add_prefix_space", False)
    family = None
    if kinds == ["ByteLevel"] and plain and last.get("use_regex", True):
        family = "gpt-2"
    elif kinds == ["Digits", "ByteLevel"] and plain and last.get("use_regex", True):
        family = "smollm" if steps[0].get("individual_digits") else None
    elif kinds == ["Split", "ByteLevel"] and plain and not last.get("use_regex", True):
        isolated = steps[0].get("behavior") == "Isolated" and not steps[0].get("invert", False)
        pattern = (steps[0].get("pattern") or {}).get("Regex")
        family = _FAMILY_OF_PATTERN.get(str(pattern)) if isolated else None
    if family is None or normaliser != ("NFC" if family == "qwen2" else None):
        raise UnsupportedModelError(
            f"{path}: this pre-tokenizer is not supported: {json.dumps(rule)[:300]} after the "
            f"normaliser {normaliser!r}"
        )
    return family


def _end_ids(config: Mapping[str, Any], generation: Mapping[str, Any]) -> list[int]:
    value = generation.get("eos_token_id", config.get("eos_token_id"))
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def _chat_template(path: Path, settings: Mapping[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _text(token: Any) -> str:
    """A token that settings name as text, or as an object with its text."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _read(path: Path, *, required: bool = False) -> dict[str, Any]:
    if not required and not path.exists():
        return {}
    return read_json(path)
