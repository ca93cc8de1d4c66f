"""Reads the tokenizer files of a model folder into metadata: ``tokenizer.json`` as it is, a
``tokenizer.model`` or ``tekken.json`` as a GGUF file would have it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.byte_alphabet import encode_alphabet
from ramet.runtime.model.files.model_file import MetadataValue, read_json
from ramet.runtime.model.files.sentencepiece_model import AddedTokens, sentencepiece_metadata

_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


def tokenizer_metadata(
    path: Path, config: Mapping[str, Any], vocab_size: int
) -> dict[str, MetadataValue]:
    """The ``tokenizer.*`` metadata of a model folder.

    Args:
        path: the folder.
        config: its ``config.json``.
        vocab_size: embedding rows; ids that the tokenizer leaves out are unused.

    Raises ``ModelLoadError`` for files that are missing or damaged.
    """
    try:
        return _metadata(path, config, vocab_size)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # JSON files are read as what they should be.
        raise ModelLoadError(f"{path}: a damaged tokenizer file ({error!r})") from error


def _metadata(path: Path, config: Mapping[str, Any], vocab_size: int) -> dict[str, MetadataValue]:
    settings = _read(path / "tokenizer_config.json")
    generation = _read(path / "generation_config.json")
    if (path / "tokenizer.json").is_file():
        document = read_json(path / "tokenizer.json")
        values: dict[str, MetadataValue] = {
            "tokenizer.huggingface.json": (path / "tokenizer.json").read_text("utf-8")
        }
        added = document.get("added_tokens") or []
        vocab = (document.get("model") or {}).get("vocab")
        ids = dict(vocab) if isinstance(vocab, dict) else {}
        ids |= {each["content"]: each["id"] for each in added}
    elif (path / "tokenizer.model").is_file():
        extra = _added_tokens(path, settings)
        values = sentencepiece_metadata(path / "tokenizer.model", extra, vocab_size)
        ids = _ids(values, extra)
    elif (path / "tekken.json").is_file():
        values = _tekken_metadata(path / "tekken.json", vocab_size)
        ids = _ids(values, {})
    else:
        raise ModelLoadError(
            f"{path}: no tokenizer: tokenizer.json, tokenizer.model and tekken.json are missing"
        )
    end_ids = _end_ids(config, generation)
    values |= {
        "tokenizer.ggml.bos_token_id": ids.get(
            _text(settings.get("bos_token")), values.get("tokenizer.ggml.bos_token_id")
        ),
        "tokenizer.ggml.eos_token_id": ids.get(
            _text(settings.get("eos_token")), end_ids[0] if end_ids else None
        ),
        "tokenizer.ggml.add_bos_token": settings.get("add_bos_token"),
        "tokenizer.chat_template": _chat_template(path, settings),
        "ramet.end_token_ids": end_ids,
    }
    return {key: value for key, value in values.items() if value is not None}


def _ids(values: Mapping[str, MetadataValue], added: AddedTokens) -> dict[str, int]:
    texts = values.get("tokenizer.ggml.tokens", ())
    ids = {text: token_id for token_id, text in enumerate(texts)}
    return ids | {text: token_id for token_id, (text, _) in added.items()}


def _added_tokens(path: Path, settings: Mapping[str, Any]) -> AddedTokens:
    """Tokens that the settings, or a file of older folders, add to a ``tokenizer.model``."""
    described = settings.get("added_tokens_decoder") or {}
    added = {
        int(token_id): (str(each["content"]), bool(each.get("special", False)))
        for token_id, each in described.items()
    }
    if not added:
        listed = _read(path / "added_tokens.json")
        added = {int(token_id): (text, True) for text, token_id in listed.items()}
    if any(token_id < 0 for token_id in added):
        raise ModelLoadError(f"{path}: an added token has a negative id")
    return added


def _tekken_metadata(path: Path, vocab_size: int) -> dict[str, MetadataValue]:
    """Mistral's ``tekken.json``: a ``tiktoken`` vocabulary behind numbered control tokens."""
    document = read_json(path)
    try:
        config = document["config"]
        num_special = int(config["default_num_special_tokens"])
        num_merged = int(config["default_vocab_size"]) - num_special
        entries = document["vocab"][:num_merged]
        ranked = [base64.b64decode(each["token_bytes"], validate=True) for each in entries]
        named = {
            int(each["rank"]): str(each["token_str"])
            for each in document.get("special_tokens") or _TEKKEN_TOKENS
        }
        pattern = str(config["pattern"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ModelLoadError(f"{path}: damaged ({error!r})") from None
    if num_special + len(ranked) > vocab_size or len(ranked) != num_merged:
        raise ModelLoadError(
            f"{path}: {num_special} + {num_merged} tokens, {len(document['vocab'])} of them in "
            f"the file, and {vocab_size} rows in the embedding"
        )
    texts = [named.get(i, f"<SPECIAL_{i}>") for i in range(num_special)]
    texts += [encode_alphabet(each) for each in ranked]
    padding = vocab_size - len(texts)
    texts += [f"<unused {len(texts) + i}>" for i in range(padding)]
    kinds = [_CONTROL] * num_special + [_NORMAL] * len(ranked) + [_UNUSED] * padding
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "ramet.tokenizer.ranked_tokens": [
            encode_alphabet(each) for each in ranked if len(each) > 1
        ],
        "ramet.tokenizer.pattern": pattern,
        "tokenizer.ggml.bos_token_id": texts.index("<s>") if "<s>" in texts else None,
        "tokenizer.ggml.add_bos_token": True,
    }


_TEKKEN_TOKENS: list[dict[str, Any]] = [
    {"rank": rank, "token_str": text}
    for rank, text in enumerate(
        (
            *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]"),
            *("[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"),
            *("[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
            *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
        )
    )
]
"""The control tokens of files that don't list theirs."""


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


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
