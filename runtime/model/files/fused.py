"""Splits fused tensors and stacks separate ones, under GGUF's names; no values are copied.

Fused: q, k and v; gate and up, of one layer or of all experts. Apart: each expert's matrix. In
another order: gpt-oss's experts, whose gates and ups alternate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor, MadeTensor, UInt8Array


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
        file.tensors[part] = _rows_from(part, tensor, start, size)
        start += size


def _rows_from(name: str, tensor: GgufTensor, start: int, size: int) -> GgufTensor:
    """``size`` rows of a matrix as a tensor."""

    def rows(first: int, end: int) -> UInt8Array:
        return tensor.rows(start + first, start + end)

    return MadeTensor(name, tensor.type, (size, tensor.shape[1]), rows)


def stacked(file: ModelFile, name: str, parts: Mapping[int, GgufTensor]) -> GgufTensor:
    """Tensors of one shape and type, numbered from 0 on, as one with one more dimension.

    Raises ``ModelLoadError`` where one is missing or differs.
    """
    tensors = [parts[index] for index in sorted(parts)]
    shape, kind = tensors[0].shape, tensors[0].type
    if sorted(parts) != list(range(len(parts))):
        raise ModelLoadError(
            f"{file.path}: parts of {name!r} are missing: {sorted(parts)} are there"
        )
    if any((each.shape, each.type) != (shape, kind) for each in tensors):
        raise ModelLoadError(f"{file.path}: parts of {name!r} differ in shape or type")
    size = tensors[0].num_rows

    def rows(first: int, end: int) -> UInt8Array:
        pieces = [
            tensors[index].rows(max(first - index * size, 0), min(end - index * size, size))
            for index in range(first // size, -(-end // size))
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    return MadeTensor(name, kind, (len(tensors), *shape), rows)


def split_experts(file: ModelFile) -> None:
    """Replaces experts' gates and ups that are one tensor, and what is stored transposed."""
    for name in list(file.tensors):
        block, _, kind = name.rpartition(".")
        if not block.endswith("_exps"):
            continue
        if kind == "transposed":
            _untranspose(file, name, block)
        elif kind == "pairs":
            _split_pairs(file, name, block)
        elif kind == "blocks":
            _join_mxfp4(file, name, block)
        elif block.endswith("gate_up_exps") and kind == "weight":
            _split_halves(file, name, block)


def _both(block: str, kind: str) -> list[str]:
    return [f"{block.removesuffix('gate_up_exps')}{part}_exps.{kind}" for part in ("gate", "up")]


def _taken(
    file: ModelFile, name: str, num_dimensions: int, evenly: int | None = None
) -> GgufTensor:
    tensor = file.tensors.pop(name)
    odd = evenly is not None and tensor.shape[min(evenly, len(tensor.shape) - 1)] % 2
    if len(tensor.shape) != num_dimensions or odd:
        raise ModelLoadError(f"{file.path}: {name!r} has the shape {tensor.shape}")
    return tensor


def _pieces(first: int, end: int, size: int) -> list[tuple[int, int, int]]:
    """Rows of a stack of matrices of ``size`` rows as (matrix, first row in it, end)."""
    return [
        (index, max(first - index * size, 0), min(end - index * size, size))
        for index in range(first // size, -(-end // size))
    ]


def _split_halves(file: ModelFile, name: str, block: str) -> None:
    """[experts, 2 * size, inputs], gates first."""
    tensor = _taken(file, name, 3, 1)
    num, double, width = tensor.shape
    size = double // 2
    for half, part in enumerate(_both(block, "weight")):

        def rows(first: int, end: int, half: int = half) -> UInt8Array:
            return np.concatenate(
                [
                    tensor.rows(base + begin, base + stop)
                    for index, begin, stop in _pieces(first, end, size)
                    for base in [index * double + half * size]
                ]
            )

        file.tensors[part] = MadeTensor(part, tensor.type, (num, size, width), rows)


def _untranspose(file: ModelFile, name: str, block: str) -> None:
    """[experts, inputs, outputs], of gate and up alternating outputs."""
    is_pair = block.endswith("gate_up_exps")
    tensor = _taken(file, name, 3, 2 if is_pair else None)
    num, inputs, outputs = tensor.shape
    parts = _both(block, "weight") if is_pair else [f"{block}.weight"]
    step = len(parts)
    size = outputs // step
    for offset, part in enumerate(parts):

        def rows(first: int, end: int, offset: int = offset) -> UInt8Array:
            pieces = []
            for index, begin, stop in _pieces(first, end, size):
                matrix = tensor.rows(index * inputs, (index + 1) * inputs)
                values = matrix.reshape(inputs, outputs, -1)[:, offset::step][:, begin:stop]
                turned = np.ascontiguousarray(values.swapaxes(0, 1))
                pieces.append(turned.reshape(stop - begin, -1))
            return np.concatenate(pieces)

        file.tensors[part] = MadeTensor(part, tensor.type, (num, size, inputs), rows)


def _split_pairs(file: ModelFile, name: str, block: str) -> None:
    """Biases [experts, 2 * size], alternating."""
    values = _taken(file, name, 2, 1).to_float32()
    for offset, part in enumerate(_both(block, "bias")):
        own = np.ascontiguousarray(values[:, offset::2])
        file.tensors[part] = GgufTensor(part, "F32", own.shape, own.view(np.uint8))


def _join_mxfp4(file: ModelFile, name: str, block: str) -> None:
    """Blocks [experts, outputs, groups, 16] and scales [experts, outputs, groups] as MXFP4.

    A byte holds neighbours, the first in its low nibble; in GGUF, values 16 apart.
    """
    blocks, scales = _taken(file, name, 4), _taken(file, f"{block}.scales", 3)
    num, outputs, groups, width = blocks.shape
    is_pair = block.endswith("gate_up_exps")
    fits = (blocks.type, scales.type, width) == ("U8", "U8", 16)
    if not fits or scales.shape != blocks.shape[:3] or (is_pair and outputs % 2):
        raise ModelLoadError(f"{file.path}: {name!r} is not MXFP4 with its scales")
    parts = _both(block, "weight") if is_pair else [f"{block}.weight"]
    step = len(parts)
    size = outputs // step
    for offset, part in enumerate(parts):

        def rows(first: int, end: int, offset: int = offset) -> UInt8Array:
            pieces = []
            for index, begin, stop in _pieces(first, end, size):
                low, high = index * outputs + begin * step, index * outputs + stop * step
                codes = blocks.rows(low * groups, high * groups).reshape(-1, groups, 16)
                pieces.append(_mxfp4(codes[offset::step], scales.rows(low, high)[offset::step]))
            return np.concatenate(pieces)

        file.tensors[part] = MadeTensor(part, "MXFP4", (num, size, 32 * groups), rows)


def _mxfp4(codes: UInt8Array, scales: UInt8Array) -> UInt8Array:
    """GGUF's blocks [rows, 17 * groups] of bytes with neighbours [rows, groups, 16], and scales."""
    values = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], 32)
    nibbles = values[..., :16] | values[..., 16:] << np.uint8(4)
    joined: UInt8Array = np.concatenate([scales[..., None], nibbles], axis=-1)
    return joined.reshape(len(codes), -1)
