"""Names and forms of tensors that differ between a family's GGUF files, as one."""

from __future__ import annotations

import numpy as np

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.fused import split_fused
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import MadeTensor, UInt8Array


def unify_tensors(file: ModelFile, architecture: str) -> None:
    """Replaces what of a file's tensors is stored otherwise than the forward pass reads it.

    Raises ``ModelLoadError`` where sizes don't fit the metadata.
    """
    if architecture == "phi3":
        split_fused(file, architecture)
    elif architecture == "gpt-oss":  # the norm before feed-forward, by another name
        for name in [name for name in file.tensors if ".post_attention_norm." in name]:
            renamed = name.replace(".post_attention_norm.", ".ffn_norm.")
            file.tensors[renamed] = file.tensors.pop(name)
    elif architecture == "deepseek2":
        for name in [name for name in file.tensors if name.endswith(".attn_k_b.weight")]:
            _join_latent(file, name)


def _join_latent(file: ModelFile, name: str) -> None:
    """What makes keys [heads, rank, values], and values [heads, values, rank], as one matrix."""
    keys = file.tensors.pop(name)
    values = file.tensor(name.replace(".attn_k_b.", ".attn_v_b."))
    joined = name.replace(".attn_k_b.", ".attn_kv_b.")
    if len(keys.shape) != 3 or len(values.shape) != 3 or keys.shape[0] != values.shape[0]:
        raise ModelLoadError(f"{file.path}: the shapes of {name!r} and its values don't fit")
    num_heads, rank, key_dim = keys.shape
    size = key_dim + values.shape[1]

    def rows(first: int, end: int) -> UInt8Array:
        turned = keys.to_float32().swapaxes(1, 2)
        whole = np.concatenate([turned, values.to_float32()], axis=1).reshape(-1, rank)
        return np.ascontiguousarray(whole[first:end]).view(np.uint8)

    if values.shape[2] != rank:
        raise ModelLoadError(f"{file.path}: the shapes of {name!r} and its values don't fit")
    file.tensors[joined] = MadeTensor(joined, "F32", (num_heads * size, rank), rows)
