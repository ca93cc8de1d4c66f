"""Small random models as GGUF files, and batches for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from ramet.runtime.api.batch import Batch, SamplingRows
from ramet.runtime.model.files.gguf import GgufFile

ModelFactory = Callable[..., GgufFile]


def write_model(
    path: Path,
    *,
    architecture: str = "llama",
    weight_types: Sequence[str] = ("Q8_0",),
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    hidden_size: int = 64,
    ffn_size: int = 96,
    vocab_size: int = 250,
    tied: bool = True,
    bias: bool = False,
    window: int = 0,
    global_every: int = 2,
    rope_scale: float = 1.0,
    seed: int = 0,
) -> Path:
    """Writes a model with random weights; ``weight_types`` go round over its linear layers.

    ``window``, ``global_every`` and ``rope_scale`` are gemma3's.
    """
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(num_layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden_size)
    writer.add_feed_forward_length(ffn_size)
    writer.add_head_count(num_heads)
    writer.add_head_count_kv(num_kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture == "gemma3":
        writer.add_sliding_window(window)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", global_every)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope_scale)
    has_head_norms = architecture in ("qwen3", "gemma3")
    num_linear = 0

    def linear(name: str, rows: int, columns: int) -> None:
        nonlocal num_linear
        kind = gguf.GGMLQuantizationType[weight_types[num_linear % len(weight_types)]]
        num_linear += 1
        values = rng.normal(size=(rows, columns)).astype(np.float32) * (columns**-0.5) * 1.3
        if kind.name == "F32":
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    def vector(name: str, size: int, around: float) -> None:
        values = around + 0.2 * rng.normal(size=size)
        writer.add_tensor(name, values.astype(np.float32))

    linear("token_embd.weight", vocab_size, hidden_size)
    q_size, kv_size = num_heads * head_dim, num_kv_heads * head_dim
    for layer in range(num_layers):
        prefix = f"blk.{layer}."
        vector(f"{prefix}attn_norm.weight", hidden_size, 1)
        for part, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            linear(f"{prefix}attn_{part}.weight", size, hidden_size)
            if bias:
                vector(f"{prefix}attn_{part}.bias", size, 0)
            if has_head_norms and part != "v":
                vector(f"{prefix}attn_{part}_norm.weight", head_dim, 1)
        linear(f"{prefix}attn_output.weight", hidden_size, q_size)
        vector(f"{prefix}ffn_norm.weight", hidden_size, 1)
        linear(f"{prefix}ffn_gate.weight", ffn_size, hidden_size)
        linear(f"{prefix}ffn_up.weight", ffn_size, hidden_size)
        linear(f"{prefix}ffn_down.weight", hidden_size, ffn_size)
        if architecture == "gemma3":
            vector(f"{prefix}post_attention_norm.weight", hidden_size, 1)
            vector(f"{prefix}post_ffw_norm.weight", hidden_size, 1)
    vector("output_norm.weight", hidden_size, 1)
    if not tied:
        linear("output.weight", vocab_size, hidden_size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def make_batch(
    rows: Sequence[tuple[Sequence[int], int, Sequence[int]]],
    *,
    all_logits: bool = False,
    copies: Sequence[tuple[int, int, int]] = (),
) -> Batch:
    """Rows of (new tokens, tokens already computed, pages)."""
    lens = [len(tokens) for tokens, _, _ in rows]
    starts = np.cumsum([0, *lens]).astype(np.int32)
    tables = np.full((len(rows), max(len(pages) for _, _, pages in rows)), -1, np.int32)
    for table, (_, _, pages) in zip(tables, rows, strict=True):
        table[: len(pages)] = pages
    return Batch(
        token_ids=np.concatenate([np.asarray(tokens, np.int32) for tokens, _, _ in rows]),
        positions=np.concatenate(
            [np.arange(done, done + len(tokens), dtype=np.int32) for tokens, done, _ in rows]
        ),
        row_starts=starts,
        context_lens=np.array([done + len(tokens) for tokens, done, _ in rows], np.int32),
        page_tables=tables,
        page_copies=np.array(copies, np.int32).reshape(-1, 3),
        logit_tokens=np.arange(starts[-1], dtype=np.int32) if all_logits else starts[1:] - 1,
        sampling=SamplingRows.greedy(0),
    )


@pytest.fixture(scope="session")
def model_factory(tmp_path_factory: pytest.TempPathFactory) -> ModelFactory:
    """Makes a model file; see ``write_model`` for the options."""

    def make(**options: object) -> GgufFile:
        path = tmp_path_factory.mktemp("model") / "model.gguf"
        return GgufFile(write_model(path, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Batch]:
    return make_batch
