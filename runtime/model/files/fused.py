"""Splits tensors that some files store fused: q, k and v; gate and up."""

from __future__ import annotations

from collections.abc import Sequence

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor


def split_fused(file: ModelFile, architecture: str) -> None:
    """Replaces fused tensors of a file by views of their parts, under GGUF's names of these.

    Raises ``ModelLoadError`` where sizes don't fit the metadata.
    """
    prefix = f"{architecture}."
    heads = file.integer(prefix + "attention.head_count")
    kv_heads = file.integer(prefix + "attention.head_count_kv", heads)
    hidden = file.integer(prefix + "embedding_length")
    head_dim = file.integer(prefix + "attention.key_length", hidden // max(1, heads))
    ffn_size = file.integer(prefix + "feed_forward_length")
    qkv = {"attn_q": heads * head_dim, "attn_k": kv_heads * head_dim, "attn_v": kv_heads * head_dim}
    for name in [name for name in file.tensors if name.startswith("blk.")]:
        block, _, part = name.rpartition(".")[0].rpartition(".")
        kind = name.rpartition(".")[2]
        if part == "attn_qkv":
            _split(file, name, [(f"{block}.{each}.{kind}", size) for each, size in qkv.items()])
        elif part == "ffn_up" and f"{block}.ffn_gate.{kind}" not in file.tensors:
            names = [f"{block}.ffn_gate.{kind}", f"{block}.ffn_up.{kind}"]
            _split(file, name, [(each, ffn_size) for each in names])


def _split(file: ModelFile, name: str, parts: Sequence[tuple[str, int]]) -> None:
    tensor = file.tensors.pop(name)
    if len(tensor.shape) != 2 or tensor.shape[0] != sum(size for _, size in parts):
        raise ModelLoadError(
            f"{file.path}: the tensor {name!r} has the shape {tensor.shape}, and the metadata ask "
            f"for {' + '.join(str(size) for _, size in parts)} rows"
        )
    start = 0
    for part, size in parts:
        rows = tensor.data[start : start + size]
        file.tensors[part] = GgufTensor(part, tensor.type, (size, tensor.shape[1]), rows)
        start += size
