"""Small model files of each architecture, and batches of rows that share pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from ramet.kernels.triton_support.dispatch import interpreting
from ramet.kernels.triton_support.interpreter import corrected_interpreter
from ramet.runtime.api.batch import Batch, SamplingRows
from ramet.runtime.model.files.gguf import GgufFile

VOCAB_SIZE, HIDDEN, FFN, NUM_LAYERS = 90, 64, 96, 2
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 6, 2, 16
PAGE_SIZE = 4


def write_model(path: Path, architecture: str, types: tuple[str, ...], seed: int = 0) -> GgufFile:
    """A model with random weights; its linear layers take the tensor types in turn."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    count = 0

    def linear(name: str, rows: int, columns: int) -> None:
        nonlocal count
        kind = gguf.GGMLQuantizationType[types[count % len(types)]]
        count += 1
        dense = (rng.normal(size=(rows, columns)) * columns**-0.5).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(dense, kind), raw_dtype=kind)

    def vector(name: str, size: int, mean: float = 1.0) -> None:
        writer.add_tensor(name, (rng.normal(size=size) * 0.2 + mean).astype(np.float32))

    linear("token_embd.weight", VOCAB_SIZE, HIDDEN)
    for layer in range(NUM_LAYERS):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", HIDDEN)
        for name, heads in (("q", NUM_HEADS), ("k", NUM_KV_HEADS), ("v", NUM_KV_HEADS)):
            linear(f"{block}attn_{name}.weight", heads * HEAD_DIM, HIDDEN)
            if architecture == "qwen2":
                vector(f"{block}attn_{name}.bias", heads * HEAD_DIM, 0.0)
        if architecture == "qwen3":
            vector(block + "attn_q_norm.weight", HEAD_DIM)
            vector(block + "attn_k_norm.weight", HEAD_DIM)
        linear(block + "attn_output.weight", HIDDEN, NUM_HEADS * HEAD_DIM)
        vector(block + "ffn_norm.weight", HIDDEN)
        linear(block + "ffn_gate.weight", FFN, HIDDEN)
        linear(block + "ffn_up.weight", FFN, HIDDEN)
        linear(block + "ffn_down.weight", HIDDEN, FFN)
    vector("output_norm.weight", HIDDEN)
    if architecture != "qwen2":
        linear("output.weight", VOCAB_SIZE, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path)


def make_sampling(num_rows: int, **changes: np.ndarray) -> SamplingRows:
    """Rows that are greedy and want log-probabilities, unless changed."""
    rows = dataclasses.replace(
        SamplingRows.greedy(num_rows),
        seeds=np.arange(num_rows, dtype=np.uint64) + np.uint64(2**63),
        positions=np.arange(num_rows, dtype=np.int64),
        masks=np.zeros((0, -(-VOCAB_SIZE // 32)), np.int32),
        num_logprobs=np.full(num_rows, 2, np.int32),
    )
    return dataclasses.replace(rows, **changes)


class Sequences:
    """Sequences that share the pages of their common leading pages, as a prefix cache would."""

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = texts
        self._pages: dict[tuple[int, ...], int] = {}

    def table(self, index: int, context_len: int) -> list[int]:
        """Pages by what is in them and before; a page of which a text has only a part is its."""
        table = []
        for start in range(0, context_len, PAGE_SIZE):
            page = tuple(self.texts[index][: start + PAGE_SIZE])
            key = page if len(page) == start + PAGE_SIZE else (-1, index, start)
            table.append(self._pages.setdefault(key, len(self._pages)))
        return table

    def batch(
        self,
        rows: list[tuple[int, int, int]],
        *,
        copies: list[tuple[int, int, int]] | None = None,
        sampling: SamplingRows | None = None,
    ) -> Batch:
        """A step of ``(sequence, first new token, end)`` rows; the last token's logits wanted."""
        tables = {row: self.table(row[0], row[2]) for row in rows}
        rows = sorted(rows, key=lambda row: tables[row])
        page_tables = np.full((len(rows), max(map(len, tables.values()))), -1, np.int32)
        for index, row in enumerate(rows):
            page_tables[index, : len(tables[row])] = tables[row]

        def ints(values: list[int]) -> np.ndarray:
            return np.array(values, np.int32)

        lens = [end - start for _, start, end in rows]
        self.order = [sequence for sequence, _, _ in rows]
        return Batch(
            token_ids=ints([t for i, start, end in rows for t in self.texts[i][start:end]]),
            positions=ints([p for _, start, end in rows for p in range(start, end)]),
            row_starts=ints([0, *np.cumsum(lens)]),
            context_lens=ints([end for _, _, end in rows]),
            page_tables=page_tables,
            page_copies=np.array(copies or [], np.int32).reshape(-1, 3),
            logit_tokens=ints([*(np.cumsum(lens) - 1)]),
            sampling=sampling or make_sampling(len(rows)),
        )


@pytest.fixture(scope="session", autouse=True)
def _interpreter():
    with corrected_interpreter() if interpreting() else nullcontext():
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Threads only wait for each other over tensors as small as these."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufFile]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "llama": write_model(folder / "llama.gguf", "llama", ("Q4_1", "Q8_0")),
        "qwen2": write_model(folder / "qwen2.gguf", "qwen2", ("Q4_0",)),
        "qwen3": write_model(folder / "qwen3.gguf", "qwen3", ("Q8_0", "F16", "Q4_0")),
    }


@pytest.fixture(scope="session")
def sequences() -> Callable[[list[list[int]]], Sequences]:
    return Sequences


@pytest.fixture(scope="session")
def sampling_rows() -> Callable[..., SamplingRows]:
    return make_sampling
