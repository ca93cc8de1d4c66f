"""Compares the CPU runner's logits with a float32 forward pass over dequantised weights.

For each window of a text corpus (the Python documentation topics that ship with the interpreter),
both compute the distribution of every next token. Printed: the mean Kullback-Leibler divergence
D(reference || runner) in nats, how often the likeliest tokens agree, how often they agree where the
reference's two likeliest are at least 0.1 apart in log-probability, and the difference in the
text's mean log-probability a token.

    python benchmarks/models/accuracy.py [--model smollm2] [--windows 8] [--window-len 512]

With ``--storage``, the runner stores weights and KV cache in each way that ``--quantize`` and
``--kv-dtype`` name, and ``--floats`` first writes the model's matrices as bfloat16, each value
moved by up to half a step of 4 bits, at random: otherwise 4 bits would find the file's own levels.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import quantize

from ramet.runtime.api.batch import Batch
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.tokenizer import read_tokenizer

Float64Array = npt.NDArray[np.float64]
_CLEAR_MARGIN = 0.1


def log_softmax(logits: npt.NDArray[np.floating]) -> Float64Array:
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


@dataclass
class Comparison:
    """Sums over tokens."""

    tokens: int = 0
    divergence: float = 0.0
    agree: int = 0
    clear: int = 0
    clear_agree: int = 0
    scored: int = 0
    score_difference: float = 0.0
    largest: list[float] = field(default_factory=list)

    def add(self, reference: Float64Array, other: Float64Array, token_ids: list[int]) -> None:
        divergence = (np.exp(reference) * (reference - other)).sum(-1)
        top = np.sort(np.partition(reference, -2, axis=-1)[:, -2:], axis=-1)
        clear = top[:, 1] - top[:, 0] >= _CLEAR_MARGIN
        agree = reference.argmax(-1) == other.argmax(-1)
        self.tokens += len(reference)
        self.divergence += float(divergence.sum())
        self.agree += int(agree.sum())
        self.clear += int(clear.sum())
        self.clear_agree += int((agree & clear).sum())
        following = np.arange(len(token_ids) - 1), np.array(token_ids[1:])
        self.scored += len(token_ids) - 1
        self.score_difference += float((other[following] - reference[following]).sum())
        self.largest.append(float(divergence.max()))

    def row(self, name: str) -> str:
        return (
            f"| {name} | {self.divergence / self.tokens:.2e} | {max(self.largest):.2f} "
            f"| {self.agree / self.tokens:.2%} | {self.clear_agree / self.clear:.2%} "
            f"| {self.score_difference / self.scored:+.4f} |"
        )


def whole_prompt(token_ids: list[int], page_size: int) -> Batch:
    """One row that computes a whole prompt and wants every logit."""
    from ramet.runtime.api.batch import SamplingRows

    num_tokens = len(token_ids)
    num_pages = -(-num_tokens // page_size)
    return Batch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(num_tokens, dtype=np.int32),
        row_starts=np.array([0, num_tokens], np.int32),
        context_lens=np.array([num_tokens], np.int32),
        page_tables=np.arange(num_pages, dtype=np.int32)[None],
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.arange(num_tokens, dtype=np.int32),
        sampling=SamplingRows.greedy(0),
    )


@contextmanager
def stored_as_bfloat16(file: GgufFile) -> Iterator[GgufFile]:
    """The model with all matrices as bfloat16, between the levels of the stored ones."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        reader = gguf.GGUFReader(file.path)
        writer = gguf.GGUFWriter(path, str(file.metadata["general.architecture"]))
        for field in reader.fields.values():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                sub_type = field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
        kind = gguf.GGMLQuantizationType.BF16
        for name, tensor in file.tensors.items():
            values = tensor.to_float32()
            if values.ndim < 2:
                writer.add_tensor(name, values)
            else:
                groups = values.reshape(len(values), -1, 32)
                steps = np.ptp(groups, axis=-1, keepdims=True) / 15
                groups += steps * rng.uniform(-0.5, 0.5, groups.shape).astype(np.float32)
                writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield GgufFile(path)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "int8": {"activations": "int8"},
    "float32": {"activations": "float32"},
}
STORAGE: dict[str, dict[str, Any]] = {
    "none, bf16": {"quantise": "none", "kv_dtype": "bf16"},
    "none, int8": {"quantise": "none", "kv_dtype": "int8"},
    "int8, bf16": {"quantise": "int8", "kv_dtype": "bf16"},
    "int8, int8": {"quantise": "int8", "kv_dtype": "int8"},
    "int4, bf16": {"quantise": "int4", "kv_dtype": "bf16"},
    "int4, int8": {"quantise": "int4", "kv_dtype": "int8"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--window-len", type=int, default=512)
    parser.add_argument("--storage", action="store_true")
    parser.add_argument("--floats", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        file = GgufFile(locate_model(options.model))
        if options.floats:
            file = stack.enter_context(stored_as_bfloat16(file))
        compare(file, options)


def compare(file: GgufFile, options: argparse.Namespace) -> None:
    """Prints the table."""
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    tokenizer = read_tokenizer(file)
    token_ids = tokenizer.encode(text)
    start = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    window_len = options.window_len - len(start)
    stride = (len(token_ids) - window_len) // options.windows
    windows = [start + token_ids[i * stride :][:window_len] for i in range(options.windows)]

    reference = ReferenceModel(file)
    kinds = STORAGE if options.storage else ACTIVATIONS
    results = {kind: Comparison() for kind in kinds}
    num_pages = -(-options.window_len // 16)
    runners = {kind: CpuRunner(file, num_pages=num_pages, **each) for kind, each in kinds.items()}
    for window in windows:
        expected = log_softmax(reference.logits(window))
        for kind, runner in runners.items():
            logits = log_softmax(runner.logits(whole_prompt(window, runner.page_size)))
            results[kind].add(expected, logits, window)
    tokens = next(iter(results.values())).tokens
    print(f"{reference.config.name}, {tokens} tokens of the Python documentation topics\n")
    first = "weights, KV cache" if options.storage else "activations"
    print(f"| {first} | mean KL (nats) | largest KL | top-1 | top-1, clear | Δ log p / token |")
    print("|---|---|---|---|---|---|")
    for kind, result in results.items():
        print(result.row(kind))
    for runner in runners.values():
        runner.close()


if __name__ == "__main__":
    main()
