"""What loading a GGUF file takes on the CPU: peak memory, and time in proportion to reading it.

``python -m benchmarks.models.loading`` writes a file in the mixture of types of Q4_K_M with random
weights, and loads it in a process of its own. ``--layers`` sets its size.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2048, 6144, 16, 4, 32_000
_BLOCK_BYTES = {"Q4_K": 144, "Q6_K": 210}


def write_model(path: Path, num_layers: int) -> None:
    """Writes a model of the llama architecture with random weights of sound sizes."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(num_layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)

    def matrix(name: str, rows: int, columns: int, kind: str) -> None:
        data = rng.integers(0, 256, (rows, columns // 256, _BLOCK_BYTES[kind]), np.uint8)
        scale = np.frombuffer(np.float16(1e-4).tobytes(), np.uint8)
        data[..., -2:] = scale
        if kind == "Q4_K":
            data[..., :2] = data[..., 2:4] = scale
        stored = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, data.reshape(rows, -1), raw_dtype=stored)

    def vector(name: str) -> None:
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", VOCAB, HIDDEN, "Q6_K")
    vector("output_norm.weight")
    kv_size = HIDDEN // HEADS * KV_HEADS
    for layer in range(num_layers):
        block = f"blk.{layer}."
        finer = "Q6_K" if layer % 2 else "Q4_K"
        vector(block + "attn_norm.weight")
        vector(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", HIDDEN, HIDDEN, "Q4_K")
        matrix(block + "attn_k.weight", kv_size, HIDDEN, "Q4_K")
        matrix(block + "attn_v.weight", kv_size, HIDDEN, finer)
        matrix(block + "attn_output.weight", HIDDEN, HIDDEN, "Q4_K")
        matrix(block + "ffn_gate.weight", FFN, HIDDEN, "Q4_K")
        matrix(block + "ffn_up.weight", FFN, HIDDEN, "Q4_K")
        matrix(block + "ffn_down.weight", HIDDEN, FFN, finer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(path: Path) -> None:
    """Loads a file and prints what that took."""
    from ramet.kernels.cpu_support.features import multiplies_bf16
    from ramet.runtime.model.config import ModelConfig
    from ramet.runtime.model.cpu.load_weights import load_cpu_weights
    from ramet.runtime.model.load import open_model

    buffer, started = bytearray(1 << 24), time.process_time()
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass
    reading = time.process_time() - started
    file = open_model(path)
    config = ModelConfig.from_gguf(file)
    before = _status("VmRSS")
    started, wall = time.process_time(), time.perf_counter()
    weights = load_cpu_weights(file, config, exact=False, middles=multiplies_bf16())
    loading, wall = time.process_time() - started, time.perf_counter() - wall
    peak, final = _status("VmHWM") - before, _status("VmRSS") - before
    assert len(weights.layers) == config.num_layers
    size = path.stat().st_size
    print(f"file {size >> 20} MiB, packed {final >> 20} MiB")
    print(f"peak memory: {peak / final:.2f} of the final size")
    print(
        f"CPU time: {loading / reading:.1f} of reading the file, {wall / loading:.2f} of it elapsed"
    )
    print(f"packed by core and second of CPU time: {size / loading / 2**20:.0f} MiB")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":")) << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28, help="28: 1.5 billion parameters")
    parser.add_argument("--load", type=Path, help="load this file, and write none")
    options = parser.parse_args()
    if options.load is not None:
        load(options.load)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, options.layers)
        command = [sys.executable, "-m", "benchmarks.models.loading", "--load", str(path)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
