"""The steps of ``docs/adding-a-model.md``, for an architecture that differs from all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ramet.runtime.api.batch import Batch
from ramet.runtime.api.errors import UnsupportedModelError
from ramet.runtime.model import architectures, config
from ramet.runtime.model.architectures import Architecture
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.files import huggingface
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.load import open_model
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner
from ramet.runtime.testing.reference_model import ReferenceModel

IDS = [(11 * i * i + 3 * i) % 256 for i in range(40)]
CONFIG = {
    "model_type": "madeup",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-5,
    "hidden_act": "silu",
    "sliding_window": 9,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
DECLARATION = Architecture(
    "half_split",
    norm="layer",
    qk_norm="head",
    parallel=True,
    local_pattern=2,
    normalises_experts=True,
)
"""LayerNorm, parallel layers, windows in every other one and experts: none has all of these."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(5)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (256, 64),
        "model.norm.weight": (64,),
    }
    for layer in range(3):
        block = f"model.layers.{layer}."
        shapes |= {
            block + "input_layernorm.weight": (64,),
            block + "self_attn.q_proj.weight": (64, 64),
            block + "self_attn.k_proj.weight": (32, 64),
            block + "self_attn.v_proj.weight": (32, 64),
            block + "self_attn.o_proj.weight": (64, 64),
            block + "self_attn.q_norm.weight": (16,),
            block + "self_attn.k_norm.weight": (16,),
            block + "mlp.gate.weight": (4, 64),
        }
        for expert in range(4):
            for part, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32))):
                shapes[f"{block}mlp.experts.{expert}.{part}_proj.weight"] = shape
    tensors = {
        name: torch.randn(shape, generator=generator) * 0.15 + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }
    save_file(tensors, str(tmp_path / "model.safetensors"))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def open_without_tokenizer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    monkeypatch.setattr(huggingface, "tokenizer_metadata", lambda *_: {})
    return open_model(folder)


def prefill() -> Batch:
    positions = np.arange(len(IDS), dtype=np.int32)
    return Batch(
        token_ids=np.array(IDS, np.int32),
        positions=positions,
        row_starts=np.array([0, len(IDS)], np.int32),
        context_lens=np.array([len(IDS)], np.int32),
        page_tables=np.arange(3, dtype=np.int32)[None],
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=positions,
        sampling=None,  # type: ignore[arg-type]  # no token is chosen
    )


def test_a_declaration_is_enough_for_both_runners(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnsupportedModelError, match="'madeup'"):
        open_model(folder)
    declared: dict[str, Any] = {**architectures.ARCHITECTURES, "madeup": DECLARATION}
    for module in (architectures, config, huggingface):
        monkeypatch.setattr(module, "ARCHITECTURES", declared)
    model_types = {**huggingface._ARCHITECTURES, "madeup": "madeup"}
    monkeypatch.setattr(huggingface, "_ARCHITECTURES", model_types)
    file = open_without_tokenizer(folder, monkeypatch)
    exact = ReferenceModel(file).logits(IDS)
    assert np.isfinite(exact).all()
    torch_runner = TorchRunner.load(file, TorchOptions(device="cpu", num_pages=8))
    np.testing.assert_allclose(torch_runner.logits(prefill()), exact, atol=1e-4)
    rounded = ReferenceModel(file, kv_dtype="bf16").logits(IDS)
    cpu_runner = CpuRunner(file, num_pages=8, num_threads=1, activations="float32")
    try:
        np.testing.assert_allclose(cpu_runner.logits(prefill()), rounded, atol=0.03)
    finally:
        cpu_runner.close()
