"""The rows of ``ramet info MODEL``: a model file's metadata, and the needs of serving it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ramet.runtime.model.config import ModelConfig
    from ramet.runtime.model.files.model_file import ModelFile
    from ramet.runtime.tokenizer import Tokenizer

_CONTEXTS = (4_096, 32_768)
_PAGE_SIZE = 16
_SAMPLING = "general.sampling."


def model_card(model: str) -> Iterator[tuple[str, str]]:
    """Facts and values of a model, by its path or short name.

    Raises ``ModelLoadError`` as when the model is served.
    """
    from ramet.runtime.model.config import ModelConfig
    from ramet.runtime.model.load import open_model
    from ramet.runtime.tokenizer import read_tokenizer

    file = open_model(model)
    config = ModelConfig.from_gguf(file)
    yield "model", f"{config.name} ({file.path})"
    yield from _sizes(file, config)
    yield from _tokenizer(read_tokenizer(file))
    stated = [
        f"{key.removeprefix(_SAMPLING)} {value:g}"
        for key, value in file.metadata.items()
        if key.startswith(_SAMPLING) and isinstance(value, int | float)
    ]
    if stated:
        yield "recommended sampling", f"{', '.join(stated)}; for calls that set none"
    yield from _memory(file, config)


def _sizes(file: ModelFile, config: ModelConfig) -> Iterator[tuple[str, str]]:
    count = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    yield "architecture", f"{config.architecture}, {count / 1e6:,.0f} million parameters"
    windows = sum(window > 0 for window in config.windows)
    attention = f"{config.num_heads} heads of {config.head_dim}, {config.num_kv_heads} for keys"
    attention += f", {windows} layers with a window of {max(config.windows)}" if windows else ""
    yield "layers", f"{config.num_layers} of {config.hidden_size}; {attention}"
    yield "context", f"{config.max_context_len:,} tokens"
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type] += tensor.data.nbytes
    total = sizes.total()
    parts = [f"{name} {size / total:.0%}" for name, size in sizes.most_common()]
    yield "stored weights", f"{_mib(total)} MiB: {', '.join(parts)}"


def _tokenizer(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    from ramet.runtime.parsers import detect_reasoning_format, detect_tool_format
    from ramet.runtime.tokenizer import ChatTemplate

    ends = ", ".join(repr(tokenizer.token_bytes(i).decode()) for i in sorted(tokenizer.eos_ids))
    begins = ", prompts begin with its first" if tokenizer.adds_bos else ""
    yield "tokenizer", f"{tokenizer.vocab_size:,} tokens{begins}; outputs end with {ends or 'none'}"
    template = tokenizer.chat_template
    if template is None:
        yield "chat template", "none: completions only, or --chat-template"
        return
    prints_tools = ChatTemplate(template, tokenizer).prints_tools
    yield (
        "chat template",
        "has tools" if prints_tools else "has no tools: text describes them",
    )
    yield "tool format", detect_tool_format(template).name
    reasoning = detect_reasoning_format(template)
    yield "reasoning", "none" if reasoning is None else f"{reasoning.begin} ... {reasoning.end}"


def _memory(file: ModelFile, config: ModelConfig) -> Iterator[tuple[str, str]]:
    from ramet.runtime.model.memory_needs import memory_needs

    needs = memory_needs(file, page_size=_PAGE_SIZE, on_gpu=False)
    yield "weights on a CPU", f"{_mib(needs.weight_bytes)} MiB; floats become 8-bit values"
    lengths = sorted({min(each, config.max_context_len) for each in (*_CONTEXTS, 1 << 62)})
    caches = [
        f"{length:,} tokens {_mib(needs.page_bytes * -(-length // _PAGE_SIZE))} MiB"
        for length in lengths
    ]
    yield "KV cache on a CPU", ", ".join(caches)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f}"
