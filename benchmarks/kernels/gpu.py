"""The Triton kernels' share of what a GPU can do.

    python benchmarks/kernels/gpu.py                # everything, as Markdown
    python benchmarks/kernels/gpu.py --only attention --only model
    python benchmarks/kernels/gpu.py --json gpu.json

First the kernels' own tests are run on the GPU; then each kernel's bytes a second are divided by
the bytes a second of a plain device copy, measured in the same run. ``fit`` prints an entry for
``kernels/data/attention_costs.json``. Every figure is a ratio, with its roofline.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ramet.kernels.attention.attention import attention_shape, paged_attention
from ramet.kernels.attention.costs import AttentionCosts, attention_costs
from ramet.kernels.attention.inputs import AttentionInputs
from ramet.kernels.attention.plan import AttentionPlan, Grouping, build_plan
from ramet.kernels.linear.linear import PackedWeight, linear, pack_q4, pack_q8
from ramet.kernels.sampling.triton import sample_gpu
from ramet.kernels.triton_support.dispatch import architecture
from ramet.runtime.api.batch import Batch
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.rotary import Rope
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner
from ramet.runtime.model.torch.weights import random_torch_weights

Timer = Callable[[Callable[[], object]], float]
"""Median seconds of a call, with caches cold."""

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The shapes that are measured; those of an 8-billion-parameter Llama by default."""

    copy_bytes: int = 1 << 31
    matmul: int = 8192
    hidden: int = 4096
    ffn: int = 14336
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 128256
    rows: int = 64
    context: int = 4096
    shared: int = 8192
    own: int = 128
    page_size: int = 16
    mask_rows: int = 256
    decode_rows: tuple[int, ...] = (1, 16, 64)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: a ratio, and what it is a ratio of."""

    name: str
    ratio: float
    of: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A device, how it is timed, and what it can do at best."""

    device: torch.device
    dtype: torch.dtype
    sizes: Sizes
    time: Timer
    bytes_per_s: float
    flops_per_s: float

    @classmethod
    def of(cls, device: torch.device, dtype: torch.dtype, sizes: Sizes, time: Timer) -> Bench:
        source = torch.empty(sizes.copy_bytes, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        copied = 2 * sizes.copy_bytes / time(lambda: target.copy_(source))
        a = torch.randn(sizes.matmul, sizes.matmul, device=device, dtype=dtype)
        flops = 2 * sizes.matmul**3 / time(lambda: a @ a)
        return cls(device, dtype, sizes, time, copied, flops)

    def bandwidth(self, name: str, num_bytes: float, call: Callable[[], object]) -> Figure:
        return Figure(name, num_bytes / self.time(call) / self.bytes_per_s, "copy bandwidth")


def masks(bench: Bench) -> list[Figure]:
    """The choice of greedy rows whose masks allow a few tokens: logits and masks are read once."""
    sizes = bench.sizes
    logits = torch.randn(sizes.mask_rows, sizes.vocab, device=bench.device)
    words = torch.zeros(sizes.mask_rows, -(-sizes.vocab // 32), dtype=torch.int32)
    words[:, ::97] = 1
    words = words.to(bench.device)
    masked = greedy_rows(sizes.mask_rows, words)
    plain = masked | {"mask_rows": torch.full_like(masked["mask_rows"], -1)}
    read = logits.nbytes + words.nbytes
    figure = bench.bandwidth("masks", read, lambda: sample_gpu(logits, masked, num_top=0))
    cost = bench.time(lambda: sample_gpu(logits, plain, num_top=0))
    paid = bench.time(lambda: sample_gpu(logits, masked, num_top=0))
    return [figure, Figure("rows without a mask", cost / paid, "rows with one")]


def greedy_rows(num_rows: int, masks: torch.Tensor) -> dict[str, torch.Tensor]:
    """``sample_gpu``'s arguments for greedy rows, each with a mask of its own."""
    device = masks.device
    ids = torch.arange(num_rows + 1, dtype=torch.int32, device=device)
    zeros = torch.zeros(num_rows, device=device)
    zero_ids, none = torch.zeros_like(ids[1:]), torch.full_like(ids[1:], -1)
    starts, no_ids = torch.zeros_like(ids), ids[:0]
    return {
        **dict.fromkeys(("temperature", "min_p", "presence_penalty"), zeros),
        **dict.fromkeys(("top_p", "repetition_penalty"), torch.ones_like(zeros)),
        **dict.fromkeys(("seeds", "positions"), zero_ids.to(torch.int64)),
        **dict.fromkeys(("targets", "num_logprobs"), none),
        **dict.fromkeys(("bias_starts", "seen_starts"), starts),
        **dict.fromkeys(("bias_token_ids", "seen_token_ids", "seen_output_counts"), no_ids),
        "bias_values": zeros[:0],
        "frequency_penalty": zeros,
        "top_k": zero_ids,
        "mask_rows": ids[:-1],
        "masks": masks,
    }


def tables(rows: int, shared: int, own: int, page_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Page tables and context lengths of rows with ``shared`` common tokens and ``own`` more."""
    num_shared, num_own = shared // page_size, -(-own // page_size)
    prefix = np.tile(np.arange(num_shared), (rows, 1))
    rest = num_shared + np.arange(rows * num_own).reshape(rows, num_own)
    context = np.full(rows, num_shared * page_size + own, np.int32)
    return np.concatenate([prefix, rest], 1).astype(np.int32), context


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """One decode step's attention, ready to call."""

    plan: AttentionPlan
    call: Callable[[], object]
    read_bytes: int


def attention_case(
    bench: Bench,
    rows: int,
    shared: int,
    own: int,
    grouping: Grouping,
    *,
    new_tokens: int = 1,
    costs: AttentionCosts | None = None,
) -> AttentionCase:
    sizes = bench.sizes
    page_tables, context = tables(rows, shared, own, sizes.page_size)
    starts = (np.arange(rows + 1) * new_tokens).astype(np.int32)
    shape = attention_shape(
        sizes.heads,
        sizes.kv_heads,
        sizes.head_dim,
        bench.dtype,
        architecture(bench.device),
    )
    plan = build_plan(
        page_tables,
        context,
        starts,
        page_size=sizes.page_size,
        shape=shape,
        costs=costs or attention_costs(architecture(bench.device)),
        grouping=grouping,
    )
    offsets = np.arange(new_tokens) - new_tokens
    positions = (context[:, None] + offsets).reshape(-1).astype(np.int32)
    inputs = AttentionInputs.from_plan(plan, page_tables, positions, bench.device)
    pages = torch.randn(
        2,
        int(page_tables.max()) + 1,
        sizes.kv_heads,
        sizes.page_size,
        sizes.head_dim,
        device=bench.device,
        dtype=bench.dtype,
    )
    q = torch.randn(
        rows * new_tokens, sizes.heads, sizes.head_dim, device=bench.device, dtype=bench.dtype
    )
    scale = sizes.head_dim**-0.5
    token_bytes = 2 * sizes.kv_heads * sizes.head_dim * bench.dtype.itemsize
    return AttentionCase(
        plan,
        lambda: paged_attention(q, pages[0], pages[1], inputs, scale=scale),
        plan.num_keys_read * token_bytes,
    )


def attention(bench: Bench) -> list[Figure]:
    sizes = bench.sizes
    figures = []
    for rows in (1, sizes.rows):
        case = attention_case(bench, rows, 0, sizes.context, "never")
        name = f"decode attention, {rows} rows of {sizes.context} keys"
        figures.append(bench.bandwidth(name, case.read_bytes, case.call))
    plain, grouped = (
        bench.time(attention_case(bench, sizes.rows, sizes.shared, sizes.own, grouping).call)
        for grouping in ("never", "auto")
    )
    name = f"attention by radix node, {sizes.rows} rows sharing {sizes.shared} keys"
    figures.append(Figure(name, plain / grouped, "times plain paged attention"))
    for shared in (0, sizes.page_size, 4 * sizes.page_size):
        plain, chosen = (
            bench.time(attention_case(bench, sizes.rows, shared, sizes.context, grouping).call)
            for grouping in ("never", "auto")
        )
        name = f"the cost formula's choice with {shared} shared keys"
        figures.append(Figure(name, chosen / plain, "the time of plain (at most 1.03)"))
    return figures


def linears(bench: Bench) -> list[Figure]:
    sizes = bench.sizes
    figures = []
    dense = torch.randn(sizes.ffn, sizes.hidden, device=bench.device) * 0.02
    weights = (pack_q4(dense), pack_q8(dense), PackedWeight("dense", dense.to(bench.dtype)))
    for weight in weights:
        for rows in (1, 16):
            x = torch.randn(rows, sizes.hidden, device=bench.device, dtype=bench.dtype)
            call = partial(linear, x, weight)
            name = f"linear {weight.format}, {rows} rows"
            figures.append(bench.bandwidth(name, weight.num_bytes, call))
    for weight in weights:
        x = torch.randn(2048, sizes.hidden, device=bench.device, dtype=bench.dtype)
        seconds = bench.time(partial(linear, x, weight))
        flops = 2 * 2048 * sizes.hidden * sizes.ffn
        name = f"linear {weight.format}, 2048 rows"
        figures.append(Figure(name, flops / seconds / bench.flops_per_s, "a dense matmul's rate"))
    return figures


def decode_batch(rows: int, context: int, page_size: int) -> Batch:
    page_tables, context_lens = tables(rows, 0, context, page_size)
    ids = np.arange(rows, dtype=np.int32)
    return Batch(
        token_ids=ids,
        positions=context_lens - 1,
        row_starts=np.arange(rows + 1, dtype=np.int32),
        context_lens=context_lens,
        page_tables=page_tables,
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=ids,
        sampling=None,  # type: ignore[arg-type]  # no token is chosen
    )


def model(bench: Bench) -> list[Figure]:
    """Decode steps of a model with random weights over reading its weights and keys once."""
    sizes = bench.sizes
    config = ModelConfig(
        architecture="llama",
        name="random",
        num_layers=sizes.layers,
        hidden_size=sizes.hidden,
        ffn_size=sizes.ffn,
        vocab_size=sizes.vocab,
        num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        max_context_len=4 * sizes.context,
        rope=Rope(theta=500_000.0, dim=sizes.head_dim),
        rope_layout="half_split",
        norm_eps=1e-5,
        head_norm_eps=1e-5,
        tied_embeddings=False,
        qkv_bias=False,
        output_bias=False,
        qk_norm="none",
    )
    num_pages = max(sizes.decode_rows) * -(-sizes.context // sizes.page_size)
    figures = []
    for format_ in ("q4", "dense"):
        weights = random_torch_weights(
            config, device=bench.device, dtype=bench.dtype, format=format_
        )
        options = TorchOptions(page_size=sizes.page_size, num_pages=num_pages)
        graphs = TorchRunner(config, weights, options)
        eager = TorchRunner(config, weights, dataclasses.replace(options, graph_tokens=0))
        for rows in sizes.decode_rows:
            batch = decode_batch(rows, sizes.context, sizes.page_size)
            token_bytes = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * bench.dtype.itemsize
            read = weights.num_bytes + rows * sizes.context * token_bytes
            step = bench.time(partial(graphs.run_on_device, batch))
            plain = bench.time(partial(eager.run_on_device, batch))
            name = f"decode step, {format_} weights, {rows} rows"
            figures.append(Figure(name, read / step / bench.bytes_per_s, "copy bandwidth"))
            figures.append(Figure(f"{name}: captured", plain / step, "times as fast as eager"))
        graphs.close()
        eager.close()
        del weights
    return figures


def fit(bench: Bench) -> AttentionCosts:
    """Cost coefficients from three steps: one bound by memory, one by products, one by items."""
    sizes, base = bench.sizes, attention_costs(architecture(bench.device))
    memory = attention_case(bench, sizes.rows, 0, sizes.context, "never")
    per_byte = bench.time(memory.call) / memory.read_bytes
    new_tokens = min(512, sizes.own)
    products = attention_case(bench, 1, sizes.context, new_tokens, "never", new_tokens=new_tokens)
    pairs = new_tokens * (sizes.context // sizes.page_size * sizes.page_size + new_tokens / 2)
    per_flop = bench.time(products.call) / (4 * sizes.head_dim * sizes.heads * pairs)
    many, few = (
        attention_case(
            bench,
            sizes.rows,
            0,
            sizes.context,
            "never",
            costs=dataclasses.replace(base, num_programs=count),
        )
        for count in (64 * base.num_programs, base.num_programs)
    )
    more = max(1, (many.plan.num_items - few.plan.num_items) * sizes.kv_heads)
    per_item = max(0.0, bench.time(many.call) - bench.time(few.call)) / more
    return dataclasses.replace(base, per_byte=per_byte, per_flop=per_flop, per_item=per_item)


SECTIONS: dict[str, Callable[[Bench], list[Figure]]] = {
    "masks": masks,
    "attention": attention,
    "linear": linears,
    "model": model,
}


def check() -> None:
    """Runs the kernels' and the runner's tests on this GPU; ends the program if one fails."""
    paths = ["tests/kernels/triton_kernels", "tests/runtime/model/torch/test_torch_runner.py"]
    if subprocess.run([sys.executable, "-m", "pytest", *paths], cwd=ROOT, check=False).returncode:
        sys.exit("the kernels are not right on this GPU: nothing is measured")


def gpu_timer() -> Timer:
    from triton.testing import do_bench

    return lambda call: float(do_bench(call, return_mode="median")) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=[*SECTIONS, "check", "fit"])
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/kernels/gpu.py needs a GPU, and torch sees none")
    chosen = arguments.only or ["check", *SECTIONS, "fit"]
    if "check" in chosen:
        check()
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device())
    bench = Bench.of(device, torch.bfloat16, Sizes(), gpu_timer())
    figures = [figure for name in SECTIONS if name in chosen for figure in SECTIONS[name](bench)]
    print(
        f"{torch.cuda.get_device_name(device)} ({architecture(device)}), torch", torch.__version__
    )
    print("\n| what | ratio | of |\n|---|---|---|")
    for figure in figures:
        print(f"| {figure.name} | {figure.ratio:.2f} | {figure.of} |")
    if "fit" in chosen:
        costs = dataclasses.asdict(fit(bench))
        print("\n" + json.dumps({architecture(device): {"source": "fitted", "costs": costs}}))
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(f) for f in figures], indent=1))


if __name__ == "__main__":
    main()
