"""Quantised safetensors: each method's layout gives the values that it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.quantised import plain_tensors
from ramet.runtime.model.files.tensor import GgufTensor

PATH = Path("folder")
NAME = "model.layers.0.mlp.up_proj"
OUTPUTS, INPUTS, GROUP = 48, 128, 64
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight neighbours each nibble of a word holds, from the lowest on."""


def tensor(name: str, values: np.ndarray, kind: str) -> GgufTensor:
    data = np.ascontiguousarray(values).view(np.uint8)
    return GgufTensor(name, kind, values.shape, data.reshape(-1, data.shape[-1]))


def packed(values: np.ndarray, columns: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """4-bit values [rows, columns] as words of eight of a row."""
    words = np.zeros((len(values), values.shape[1] // 8), np.uint32)
    for nibble, column in enumerate(columns):
        words |= values[:, column::8].astype(np.uint32) << np.uint32(4 * nibble)
    return words


@pytest.fixture
def group() -> dict[str, np.ndarray]:
    """4-bit values [outputs, inputs], scales and zero points [outputs, groups]."""
    rng = np.random.default_rng(0)
    return {
        "codes": rng.integers(0, 16, (OUTPUTS, INPUTS)),
        "scales": rng.uniform(0.01, 0.1, (OUTPUTS, INPUTS // GROUP)).astype(np.float16),
        "zeros": rng.integers(1, 16, (OUTPUTS, INPUTS // GROUP)),
    }


def meaning(group: dict[str, np.ndarray]) -> np.ndarray:
    scales, zeros = (np.repeat(group[name], GROUP, axis=1) for name in ("scales", "zeros"))
    return scales.astype(np.float32) * (group["codes"] - zeros)


def check(config: dict[str, Any], stored: dict[str, tuple[np.ndarray, str]], want: Any) -> None:
    tensors = {
        f"{NAME}.{part}": tensor(f"{NAME}.{part}", values, kind)
        for part, (values, kind) in stored.items()
    }
    made = plain_tensors(PATH, {"quantization_config": config}, tensors)
    assert set(made) == {f"{NAME}.weight"}
    weight = made[f"{NAME}.weight"]
    np.testing.assert_allclose(weight.to_float32(), want, rtol=2e-3, atol=1e-3)
    some = weight.rows(13, 37)
    np.testing.assert_array_equal(some, weight.data[13:37])


def test_awq(group: dict[str, np.ndarray]) -> None:
    stored = {
        "qweight": (packed(group["codes"].T, AWQ_COLUMNS), "I32"),
        "qzeros": (packed(group["zeros"].T, AWQ_COLUMNS), "I32"),
        "scales": (group["scales"].T.copy(), "F16"),
    }
    check({"quant_method": "awq", "bits": 4, "version": "gemm"}, stored, meaning(group))


@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_gptq(group: dict[str, np.ndarray], form: str) -> None:
    zeros = group["zeros"] - (form == "gptq")
    stored = {
        "qweight": (packed(group["codes"]).T.copy(), "I32"),
        "qzeros": (packed(zeros.T), "I32"),
        "scales": (group["scales"].T.copy(), "F16"),
        "g_idx": ((np.arange(INPUTS) // GROUP).astype(np.int32), "I32"),
    }
    config = {"quant_method": "gptq", "bits": 4, "checkpoint_format": form}
    check(config, stored, meaning(group))
    stored["g_idx"] = (stored["g_idx"][0][::-1].copy(), "I32")
    with pytest.raises(UnsupportedModelError, match="desc_act"):
        check(config, stored, meaning(group))


def compressed(bits: int, strategy: str) -> dict[str, Any]:
    weights = {"num_bits": bits, "strategy": strategy}
    return {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": weights}}}


@pytest.mark.parametrize("has_zeros", [True, False])
def test_compressed_tensors_of_four_bits(group: dict[str, np.ndarray], has_zeros: bool) -> None:
    stored = {
        "weight_packed": (packed(group["codes"]), "I32"),
        "weight_scale": (group["scales"], "F16"),
        "weight_shape": (np.array([OUTPUTS, INPUTS]), "I64"),
    }
    if has_zeros:
        stored["weight_zero_point"] = (packed(group["zeros"].T).T.copy(), "I32")
    else:
        group["zeros"] = np.full_like(group["zeros"], 8)
    check(compressed(4, "group"), stored, meaning(group))


def test_compressed_tensors_of_eight_bits() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-128, 128, (OUTPUTS, INPUTS)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (OUTPUTS, 1)).astype(np.float16)
    stored = {"weight": (codes, "I8"), "weight_scale": (scales, "F16")}
    check(compressed(8, "channel"), stored, codes * scales.astype(np.float32))


def fp8() -> tuple[np.ndarray, np.ndarray]:
    """Bits, and their values as torch has them."""
    values = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(2))
    stored = values.to(torch.float8_e4m3fn)
    return stored.view(torch.uint8).numpy(), stored.float().numpy()


def test_compressed_tensors_in_fp8() -> None:
    bits, values = fp8()
    scales = np.linspace(0.5, 2.0, OUTPUTS, dtype=np.float32)[:, None]
    stored = {"weight": (bits, "F8_E4M3"), "weight_scale": (scales, "F32")}
    check(compressed(8, "channel"), stored, values * scales)


def test_fp8_in_blocks() -> None:
    bits, values = fp8()
    scales = np.arange(1, 3 * 4 + 1, dtype=np.float32).reshape(3, 4)
    config = {"quant_method": "fp8", "weight_block_size": [20, 32]}
    rows, columns = np.arange(OUTPUTS) // 20, np.arange(INPUTS) // 32
    stored = {"weight": (bits, "F8_E4M3"), "weight_scale_inv": (scales, "F32")}
    check(config, stored, values * scales[rows][:, columns])
    stored["weight_scale_inv"] = (scales[:, :2].copy(), "F32")
    with pytest.raises(ModelLoadError, match="up_proj"):
        check(config, stored, values)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes'"),
        ({"quant_method": "awq", "bits": 3}, "AWQ"),
        ({"quant_method": "gptq", "bits": 8}, "8 bits"),
        (compressed(2, "group"), "num_bits"),
    ],
)
def test_other_methods_are_refused_by_name(config: dict[str, Any], match: str) -> None:
    with pytest.raises(UnsupportedModelError, match=match):
        plain_tensors(PATH, {"quantization_config": config}, {})


def test_a_missing_part_is_named() -> None:
    stored = {f"{NAME}.qweight": tensor(f"{NAME}.qweight", np.zeros((8, 8), np.uint32), "I32")}
    with pytest.raises(ModelLoadError, match=r"up_proj\.qzeros"):
        plain_tensors(PATH, {"quantization_config": {"quant_method": "awq", "bits": 4}}, stored)
