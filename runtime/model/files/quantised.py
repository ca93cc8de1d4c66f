"""Quantised weights of safetensors, as tensors in GGUF's types or in floating point.

Rows are made when they are read. Integers of 4 bits with a scale and a zero point a group become
Q4_1: scale and minimum in float16, as files of that type have them. Integers of 8 bits become
Q8_0, FP8 becomes float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.tensor import GgufTensor, MadeTensor, UInt8Array

Tensors = dict[str, GgufTensor]
Float32Array = npt.NDArray[np.float32]
_GROUP = 32
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which nibble of a 32-bit word holds each of eight neighbours."""


def plain_tensors(path: Path, config: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """The tensors of a folder, none of them quantised otherwise than GGUF's types are.

    Raises ``UnsupportedModelError`` for a method that Ramet doesn't read, ``ModelLoadError`` for
    tensors that don't fit together.
    """
    stated = config.get("quantization_config")
    if not stated:
        return tensors
    method = str(stated.get("quant_method"))
    if method not in _METHODS:
        raise UnsupportedModelError(
            f"{path}: weights quantised by {method!r} are not supported; Ramet reads "
            f"{', '.join(_METHODS)}"
        )
    try:
        return _METHODS[method](path, stated, tensors)
    except KeyError as error:
        raise ModelLoadError(f"{path}: the tensor {error.args[0]!r} is missing") from None


def _parts(tensors: Tensors, suffix: str) -> list[str]:
    return [name.removesuffix(suffix) for name in tensors if name.endswith(suffix)]


def _array(tensor: GgufTensor, dtype: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(tensor.data).view(dtype).reshape(tensor.shape)


def _refuse(path: Path, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: {what} is not supported")


def _checked(path: Path, name: str, sound: bool) -> None:
    if not sound:
        raise ModelLoadError(f"{path}: the tensors of {name!r} don't fit each other in shape")


def _q4_1(codes: UInt8Array, scales: Float32Array, zeros: Float32Array) -> UInt8Array:
    """Blocks of Q4_1 of values 0 to 15 [rows, columns]; scales and zero points [rows, groups]."""
    blocks = codes.reshape(len(codes), -1, _GROUP)
    repeats = blocks.shape[1] // scales.shape[1]
    scale = np.repeat(scales, repeats, axis=1)
    least = np.repeat(-scales * zeros, repeats, axis=1)
    sides = np.stack([scale, least], axis=-1).astype(np.float16)
    nibbles = blocks[..., :16] | blocks[..., 16:] << np.uint8(4)
    made: UInt8Array = np.concatenate([sides.view(np.uint8), nibbles], axis=-1)
    return made.reshape(len(codes), -1)


def _q8_0(codes: npt.NDArray[np.int8], scales: Float32Array) -> UInt8Array:
    """Blocks of Q8_0 of values [rows, columns]; scales [rows, groups]."""
    blocks = codes.reshape(len(codes), -1, _GROUP)
    scale = np.repeat(scales, blocks.shape[1] // scales.shape[1], axis=1).astype(np.float16)
    sides = scale[..., None].view(np.uint8)
    made: UInt8Array = np.concatenate([sides, blocks.view(np.uint8)], axis=-1)
    return made.reshape(len(codes), -1)


def _nibbles(words: npt.NDArray[np.uint32], order: tuple[int, ...] | range) -> UInt8Array:
    """Eight values of each word, side by side in the last dimension."""
    shifts = np.array([4 * place for place in order], np.uint32)
    values = (words[..., None] >> shifts & np.uint32(15)).astype(np.uint8)
    return values.reshape(*words.shape[:-1], -1)


def _four_bits(
    path: Path,
    name: str,
    shape: tuple[int, int],
    codes: Callable[[int, int], UInt8Array],
    scales: Float32Array,
    zeros: Float32Array,
) -> GgufTensor:
    """A tensor of rows of ``codes``; ``scales`` and ``zeros`` [rows, groups]."""
    groups = scales.shape[1]
    fits = scales.shape == zeros.shape == (shape[0], groups) and groups > 0
    _checked(path, name, fits and shape[1] % (groups * _GROUP) == 0)

    def rows(first: int, end: int) -> UInt8Array:
        return _q4_1(codes(first, end), scales[first:end], zeros[first:end])

    return MadeTensor(f"{name}.weight", "Q4_1", shape, rows)


def _read_awq(path: Path, stated: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """``qweight`` [inputs, outputs / 8], ``qzeros`` [groups, outputs / 8], ``scales``."""
    if stated.get("bits") != 4 or str(stated.get("version", "gemm")).lower() != "gemm":
        raise _refuse(path, "AWQ other than of 4 bits in the version 'gemm'")
    plain = dict(tensors)
    for name in _parts(tensors, ".qweight"):
        words = _array(plain.pop(f"{name}.qweight"), "<u4")
        zeros = _nibbles(_array(plain.pop(f"{name}.qzeros"), "<u4"), _AWQ_ORDER)
        scales = plain.pop(f"{name}.scales").to_float32()
        inputs, outputs = words.shape[0], 8 * words.shape[1]
        _checked(path, name, scales.shape == zeros.shape and scales.shape[1] == outputs)

        def codes(first: int, end: int, words: npt.NDArray[np.uint32] = words) -> UInt8Array:
            begin = first // 8
            values = _nibbles(words[:, begin : -(-end // 8)], _AWQ_ORDER)
            return np.ascontiguousarray(values[:, first - 8 * begin : end - 8 * begin].T)

        made = _four_bits(
            path, name, (outputs, inputs), codes, scales.T, zeros.T.astype(np.float32)
        )
        plain[made.name] = made
    return plain


def _read_gptq(path: Path, stated: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """``qweight`` [inputs / 8, outputs], ``qzeros`` [groups, outputs / 8], ``scales``, ``g_idx``:
    the group of each input. Zero points are stored less one, but in the format ``gptq_v2``."""
    if stated.get("bits") != 4:
        raise _refuse(path, f"GPTQ of {stated.get('bits')} bits")
    offset = 0.0 if stated.get("checkpoint_format") == "gptq_v2" else 1.0
    plain = dict(tensors)
    for name in _parts(tensors, ".qweight"):
        words = _array(plain.pop(f"{name}.qweight"), "<u4")
        zeros = _nibbles(_array(plain.pop(f"{name}.qzeros"), "<u4"), range(8))
        scales = plain.pop(f"{name}.scales").to_float32()
        inputs, outputs = 8 * words.shape[0], words.shape[1]
        order = plain.pop(f"{name}.g_idx", None)
        _checked(path, name, scales.shape == zeros.shape and scales.shape[1] == outputs)
        in_order = np.arange(inputs) // max(1, inputs // len(scales))
        if order is not None and not np.array_equal(_array(order, "<i4").ravel(), in_order):
            raise _refuse(path, "GPTQ with groups in another order than their inputs (desc_act)")

        def codes(first: int, end: int, words: npt.NDArray[np.uint32] = words) -> UInt8Array:
            return _nibbles(np.ascontiguousarray(words[:, first:end].T), range(8))

        made = _four_bits(
            path, name, (outputs, inputs), codes, scales.T, zeros.T.astype(np.float32) + offset
        )
        plain[made.name] = made
    return plain


def _read_fp8(path: Path, stated: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """``weight`` in FP8 (E4M3), ``weight_scale_inv``: a scale a block of rows and columns."""
    block = tuple(int(size) for size in stated.get("weight_block_size") or ())
    plain = dict(tensors)
    for name in _parts(tensors, ".weight_scale_inv"):
        scales = plain.pop(f"{name}.weight_scale_inv").to_float32()
        weight = plain[f"{name}.weight"]
        plain[f"{name}.weight"] = _scaled_fp8(path, name, weight, scales, block)
    return plain


def _scaled_fp8(
    path: Path, name: str, weight: GgufTensor, scales: Float32Array, block: tuple[int, ...]
) -> GgufTensor:
    """FP8 times scales [row blocks, column blocks], as float32."""
    num_rows, num_columns = weight.shape[0], weight.shape[-1]
    scales = scales.reshape(len(scales), -1) if scales.ndim else scales.reshape(1, 1)
    if len(block) != 2:
        block = (num_rows // max(1, len(scales)), num_columns // max(1, scales.shape[1]))
    fits = weight.type == "F8_E4M3" and len(weight.shape) == 2 and min(block) > 0
    _checked(path, name, fits)
    needed = -(-num_rows // block[0]), -(-num_columns // block[1])
    _checked(path, name, scales.shape == needed)
    table = _fp8_values()
    columns = np.arange(num_columns) // block[1]

    def rows(first: int, end: int) -> UInt8Array:
        own = scales[np.arange(first, end) // block[0]][:, columns]
        return np.ascontiguousarray(table[weight.rows(first, end)] * own).view(np.uint8)

    return MadeTensor(weight.name, "F32", weight.shape, rows)


def _fp8_values() -> Float32Array:
    """The values of FP8 E4M3 (Micikevicius et al. 2022), by their bits."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, (bits & 7) / 8
    sizes = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - 7), fraction * 2.0**-6)
    sizes[bits & 127 == 127] = np.nan
    return np.where(bits >> 7, -sizes, sizes).astype(np.float32)


def _read_compressed(path: Path, stated: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """``weight_packed`` of 4 bits, or ``weight`` of 8, with ``weight_scale``. Activations stay as
    they are: ``input_scale`` is not used."""
    kinds = [dict(group.get("weights") or {}) for group in stated.get("config_groups", {}).values()]
    for kind in kinds:
        sound = kind.get("num_bits") in (4, 8) and kind.get("strategy") in (
            "group",
            "channel",
            "tensor",
            "block",
        )
        if not sound or kind.get("actorder") in ("group", True):
            raise _refuse(path, f"compressed-tensors with weights {kind}")
    plain = dict(tensors)
    for name in _parts(tensors, ".weight_scale"):
        scales = plain.pop(f"{name}.weight_scale").to_float32()
        plain.pop(f"{name}.weight_g_idx", None)
        plain.pop(f"{name}.input_scale", None)
        packed = plain.pop(f"{name}.weight_packed", None)
        shape = plain.pop(f"{name}.weight_shape", None)
        if packed is not None and shape is not None:
            made = _compressed_four_bits(path, name, packed, shape, scales, plain)
        elif plain[f"{name}.weight"].type == "F8_E4M3":
            made = _scaled_fp8(path, name, plain[f"{name}.weight"], scales, ())
        else:
            if f"{name}.weight_zero_point" in plain:
                raise _refuse(path, "compressed-tensors of 8 bits with zero points")
            made = _eight_bits(path, name, plain[f"{name}.weight"], scales)
        plain[f"{name}.weight"] = made
    return plain


def _compressed_four_bits(
    path: Path,
    name: str,
    packed: GgufTensor,
    stated: GgufTensor,
    scales: Float32Array,
    plain: Tensors,
) -> GgufTensor:
    """Words [outputs, inputs / 8] of values plus 8; zero points [outputs / 8, groups], or none."""
    words = _array(packed, "<u4")
    shape = tuple(int(size) for size in _array(stated, "<i8").ravel())
    _checked(path, name, len(shape) == 2 and words.shape == (shape[0], shape[1] // 8))
    zeros = np.full_like(scales, 8.0)
    if (own := plain.pop(f"{name}.weight_zero_point", None)) is not None:
        stored = _nibbles(np.ascontiguousarray(_array(own, "<u4").T), range(8)).T
        zeros = stored[: len(scales)].astype(np.float32)

    def codes(first: int, end: int) -> UInt8Array:
        return _nibbles(words[first:end], range(8))

    return _four_bits(path, name, (shape[0], shape[1]), codes, scales, zeros)


def _eight_bits(path: Path, name: str, weight: GgufTensor, scales: Float32Array) -> GgufTensor:
    """int8 [outputs, inputs], with scales of rows or of groups in them."""
    num_rows, num_columns = weight.shape[0], weight.shape[-1]
    scales = scales.reshape(len(scales), -1) if scales.ndim else scales.reshape(1, 1)
    fits = weight.type == "I8" and len(weight.shape) == 2 and len(scales) in (1, num_rows)
    _checked(path, name, fits and num_columns % (_GROUP * scales.shape[1]) == 0)
    scales = np.broadcast_to(scales, (num_rows, scales.shape[1]))

    def rows(first: int, end: int) -> UInt8Array:
        codes = np.ascontiguousarray(weight.rows(first, end)).view(np.int8)
        return _q8_0(codes, scales[first:end])

    return MadeTensor(weight.name, "Q8_0", weight.shape, rows)


_METHODS: Mapping[str, Callable[[Path, Mapping[str, Any], Tensors], Tensors]] = {
    "awq": _read_awq,
    "gptq": _read_gptq,
    "fp8": _read_fp8,
    "compressed-tensors": _read_compressed,
    "mxfp4": lambda _path, _stated, tensors: tensors,
}
"""By ``quant_method``. MXFP4 is gpt-oss's, and ``fused`` brings it to GGUF's order."""
