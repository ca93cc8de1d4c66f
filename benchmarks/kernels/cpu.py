# ruff: noqa: ARG001 (numba calls intrinsics with fixed arguments)
"""Measures each optimisation of the CPU kernels, as ratios on this machine.

Times are the calling thread's CPU time, the least of several runs, on one thread, so a busy
neighbour changes little.

    python benchmarks/kernels/cpu.py [linear] [attention] [step]

- ``linear``: the integer dot products that this machine has, and float32 activations, against the
  best one, in turns; and the best one against the multiplier's peak, which is measured too.
- ``attention``: decode rows that share a prefix, its pages read once a tile of rows against once a
  row; and products of bfloat16, where the machine has them, against float32 ones.
- ``step``: where a step of the model goes, by operation.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.attention import cpu as attention
from ramet.kernels.cpu.program import STAGE_WORDS, Program, Stage
from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.buffers import aligned_empty
from ramet.kernels.cpu_support.features import (
    AttentionPath,
    DotPath,
    best_attention_path,
    host_features,
    host_name,
    supported_dot_paths,
)
from ramet.kernels.cpu_support.memory import call_op, load_i64
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear.cpu_product import linear_op
from ramet.kernels.linear.cpu_weights import pack
from ramet.runtime.api.batch import Batch
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.files.locate import locate_model


@njit(nogil=True)
def _call_stage(table, index, counters, step):
    stage = table + index * STAGE_WORDS * 8
    step += load_i64(stage, 1)
    call_op(load_i64(stage, 0), stage, step, counters + 64 * index, 0)


def stage_times(program: Program, step: np.ndarray, repeats: int) -> np.ndarray:
    """The least CPU time of each stage, in seconds."""
    step[..., words.NUM_THREADS] = 1
    best = np.full(program.num_stages, np.inf)
    for _ in range(repeats):
        program.counters[:] = 0
        for index in range(program.num_stages):
            begin = time.thread_time()
            _call_stage(program.table.ctypes.data, index, program.counters.ctypes.data,
                        step.ctypes.data)  # fmt: skip
            best[index] = min(best[index], time.thread_time() - begin)
    return best


@intrinsic
def _multiply_add_chains(typingctx, count):
    """16 chains of ``count`` vector multiply-adds."""

    def codegen(context, b, sig, args):
        chains = [vec.Variable(b, vec.vf32(i)) for i in range(16)]
        with cgutils.for_range(b, args[0]):
            for chain in chains:
                chain.set(vec.fma(b, chain.get(), vec.vf32(0.5), vec.vf32(0.25)))
        total = chains[0].get()
        for chain in chains[1:]:
            total = b.fadd(total, chain.get())
        return vec.fold(b, total, vec.fadd)

    return types.float32(types.int64), codegen


@njit(nogil=True)
def _multiply_adds(count):
    return _multiply_add_chains(count)


def peak_flops() -> float:
    """Float32 operations a second of one core, multiply and add counted apart."""
    count = 200_000
    _multiply_adds(10)
    return 2 * 16 * 16 * count / least(lambda: _multiply_adds(count), 20)


def least(function: Callable[[], object], repeats: int) -> float:
    best = np.inf
    for _ in range(repeats):
        begin = time.thread_time()
        function()
        best = min(best, time.thread_time() - begin)
    return float(best)


def _random_rows(rng: np.random.Generator, outputs: int, inputs: int) -> np.ndarray:
    """Float32 weights as they are stored."""
    return rng.normal(size=(outputs, inputs)).astype(np.float32).view(np.uint8)


def benchmark_linear() -> None:
    outputs, inputs, copies = 1024, 576, 60
    rng = np.random.default_rng(0)
    flops = peak_flops()
    # A dot product of bytes does four multiply-adds where a float one does one.
    int8_peak = 4 * flops if "avx512vnni" in host_features() else None
    print(f"## Linear layers: {outputs} x {inputs}, 8-bit weights, {copies} layers in turn\n")
    paths: list[DotPath | None] = [*supported_dot_paths(), None]
    names = [path or "float32 activations" for path in paths]
    print("| rows | " + " | ".join(f"{name}, time" for name in names) + " | of the int8 peak |")
    print("|---" * (len(paths) + 2) + "|")
    weights = [
        pack("F32", _random_rows(rng, outputs, inputs), (outputs, inputs)) for _ in range(copies)
    ]
    scratch = aligned_empty((inputs // 32 * 512,))
    for num_rows in (1, 8, 16, 64, 256):
        x = rng.normal(size=(num_rows, inputs)).astype(np.float32)
        quants = rng.integers(-127, 128, (num_rows, inputs)).astype(np.int8)
        side = rng.random((3, num_rows, inputs // 32)).astype(np.float32)
        y = np.zeros((num_rows, outputs), np.float32)
        programs = []
        for path in paths:
            source = x if path is None else quants
            stages = [
                Stage(
                    linear_op("u8", path),
                    {
                        linear.WEIGHT: weight.data.ctypes.data,
                        linear.NUM_BLOCKS: weight.num_blocks,
                        linear.NUM_GROUPS: weight.num_groups,
                        linear.BLOCK_BYTES: weight.data.shape[1],
                        linear.X: source.ctypes.data,
                        linear.X_STRIDE: source.strides[0],
                        linear.SCALES: side[0].ctypes.data,
                        linear.SCALED_SUMS: side[1].ctypes.data,
                        linear.SUMS: side[2].ctypes.data,
                        linear.SCALE_STRIDE: side.strides[1],
                        linear.Y: y.ctypes.data,
                        linear.Y_STRIDE: y.strides[0],
                        linear.ROWS: words.NUM_TOKENS,
                        linear.TASK_BLOCKS: 8,
                    },
                )
                for weight in weights
            ]
            programs.append(Program(stages))
        step = np.zeros(words.SIZE, np.int64)
        step[words.NUM_TOKENS] = num_rows
        step[words.SCRATCH], step[words.SCRATCH_BYTES] = scratch.ctypes.data, len(scratch)
        rounds = [[stage_times(each, step, 1) for each in programs] for _ in range(7)]
        times = np.min(rounds, axis=0).sum(axis=1)  # of each stage the least, in turns
        work = 2 * outputs * inputs * num_rows * copies
        share = f"{work / times[0] / int8_peak:.0%}" if int8_peak else "-"
        ratios = " | ".join(f"{each / times[0]:.2f}" for each in times)
        print(f"| {num_rows} | {ratios} | {share} |")
    print()


def decode_batch(num_rows: int, shared_pages: int, own_pages: int) -> Batch:
    """One token a row; the first ``shared_pages`` of each row are the same."""
    tables = np.empty((num_rows, shared_pages + own_pages), np.int32)
    tables[:, :shared_pages] = np.arange(shared_pages)
    own = np.arange(num_rows * own_pages).reshape(num_rows, own_pages)
    tables[:, shared_pages:] = shared_pages + own
    context_len = 16 * tables.shape[1]
    return Batch(
        token_ids=np.full(num_rows, 5, np.int32),
        positions=np.full(num_rows, context_len - 1, np.int32),
        row_starts=np.arange(num_rows + 1, dtype=np.int32),
        context_lens=np.full(num_rows, context_len, np.int32),
        page_tables=tables,
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.arange(num_rows, dtype=np.int32),
        sampling=None,  # type: ignore[arg-type]  # a runner never looks at it
    )


def prefill_batch(num_tokens: int, done: int) -> Batch:
    """The next ``num_tokens`` of one prompt of which ``done`` are computed."""
    end = done + num_tokens
    return Batch(
        token_ids=np.arange(num_tokens, dtype=np.int32) + 100,
        positions=np.arange(done, end, dtype=np.int32),
        row_starts=np.array([0, num_tokens], np.int32),
        context_lens=np.array([end], np.int32),
        page_tables=np.arange(-(-end // 16), dtype=np.int32)[None],
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.array([num_tokens - 1], np.int32),
        sampling=None,  # type: ignore[arg-type]
    )


def attention_time(
    batch: Batch, num_heads: int, num_kv_heads: int, path: AttentionPath, *, grouping: bool
) -> float:
    """CPU seconds of one layer's attention, head size 64, over cold-started pages."""
    head_dim, group_size = 64, num_heads // num_kv_heads
    num_tokens, num_pages = batch.num_tokens, int(batch.page_tables.max()) + 1
    rng = np.random.default_rng(0)
    bits = rng.normal(size=(2, num_pages, num_kv_heads, 16 * head_dim)).astype(np.float32)
    keys, values = (bits.view(np.uint32) >> 16).astype(np.uint16)
    queries = rng.normal(size=(num_tokens, num_heads * head_dim)).astype(np.float32)
    out = np.zeros_like(queries)
    rows, slots = np.zeros((2, num_tokens), np.int32)
    tiles = np.zeros((num_tokens, 2), np.int32)
    size = attention.scratch_bytes(group_size, head_dim)
    scratch = np.zeros(size, np.uint8)
    step = np.zeros(words.SIZE, np.int64)
    step[words.NUM_TOKENS] = num_tokens
    step[words.NUM_TILES] = attention.plan_tokens(
        batch.row_starts, batch.context_lens, batch.page_tables, 16,
        attention.max_tile_tokens(group_size), grouping, num_kv_heads, 1, rows, slots,
        batch.positions, tiles,
    )  # fmt: skip
    step[words.PAGE_TABLE_STRIDE] = batch.page_tables.shape[1]
    step[words.SCRATCH_BYTES] = size
    for word, array in ((words.POSITIONS, batch.positions), (words.PAGE_TABLES, batch.page_tables),
                        (words.TOKEN_ROWS, rows), (words.TILES, tiles),
                        (words.SCRATCH, scratch)):  # fmt: skip
        step[word] = array.ctypes.data
    operands = {
        attention.Q: queries.ctypes.data, attention.Q_STRIDE: queries.strides[0],
        attention.OUT: out.ctypes.data, attention.OUT_STRIDE: out.strides[0],
        attention.KEYS: keys.ctypes.data, attention.VALUES: values.ctypes.data,
        attention.PAGE_SIZE: 16, attention.HEAD_BYTES: keys.strides[1],
        attention.PAGE_BYTES: keys.strides[0],
        attention.NUM_KV_HEADS: num_kv_heads, attention.GROUP_SIZE: group_size,
        attention.HEAD_DIM: head_dim,
    }  # fmt: skip
    program = Program([Stage(attention.attend_op(path), operands)])
    return float(stage_times(program, step, 15)[0])


def benchmark_attention() -> None:
    flops, best = peak_flops(), best_attention_path()
    peaks = {"float32": flops, "bf16": 2 * flops}
    print(
        "## Attention: 32 decode rows that share 2,048 tokens, 16 own tokens each, head size 64\n"
    )
    print(f"| query heads / key heads | ungrouped / grouped | float32, grouped / {best}, grouped "
          f"| float32, ungrouped / {best}, grouped | {best}, grouped, of its peak |")  # fmt: skip
    print("|---|---|---|---|---|")
    for num_heads, num_kv_heads in ((9, 9), (9, 3), (8, 1)):
        batch = decode_batch(32, 128, 1)

        def measure(path: AttentionPath, *, grouping: bool) -> float:
            return attention_time(batch, num_heads, num_kv_heads, path, grouping=grouping)  # noqa: B023

        grouped, plain = (measure(best, grouping=grouping) for grouping in (True, False))
        float_grouped, float_plain = (
            measure("float32", grouping=grouping) for grouping in (True, False)
        )
        work = 4.0 * 64 * num_heads * int(batch.context_lens.sum())
        print(f"| {num_heads} / {num_kv_heads} | {plain / grouped:.2f} "
              f"| {float_grouped / grouped:.2f} | {float_plain / grouped:.2f} "
              f"| {work / grouped / peaks[best]:.0%} |")  # fmt: skip
    print()


def benchmark_step(model: str) -> None:
    runner = CpuRunner(locate_model(model), num_threads=1)
    for stored in (runner._pages.keys, runner._pages.values):
        stored.fill(0x3C00)  # memory that was never written is one page of zeros, in the cache
    print("## Where a step goes, one thread, share of its CPU time\n")
    batches = {
        "decode, 1 row": decode_batch(1, 0, 13),
        "decode, 16 rows": decode_batch(16, 0, 13),
        "decode, 64 rows": decode_batch(64, 0, 13),
        "prefill, 512 tokens": prefill_batch(512, 0),
        "prefill, 512 after 1,536": prefill_batch(512, 1536),
    }
    rows: dict[str, dict[str, float]] = {}
    for name, batch in batches.items():
        runner.run(batch)
        program, step = runner._program, runner._recorder.record(batch, 0)
        assert program is not None
        shares: dict[str, float] = defaultdict(float)
        kinds_of = [name.split("_")[0] for name in program.stage_names()]
        head = max(index for index, kind in enumerate(kinds_of) if kind == "linear")
        kinds_of[head] = "head"
        for kind, seconds in zip(kinds_of, stage_times(program, step, 5), strict=True):
            shares[kind] += seconds
        rows[name] = shares
    kinds: Sequence[str] = sorted({kind for shares in rows.values() for kind in shares})
    print("| step | " + " | ".join(kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    for name, shares in rows.items():
        total = sum(shares.values())
        print(f"| {name} | " + " | ".join(f"{shares[kind] / total:.0%}" for kind in kinds) + " |")
    runner.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["linear", "attention", "step"])
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    print(f"{host_name()}, {supported_dot_paths()[0]}\n")
    if "linear" in options.parts:
        benchmark_linear()
    if "attention" in options.parts:
        benchmark_attention()
    if "step" in options.parts:
        benchmark_step(options.model)


if __name__ == "__main__":
    main()
