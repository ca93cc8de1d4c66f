"""Chooses how a model's weights and its KV cache are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ramet.kernels.linear.cpu_quantise import STORED_FLOATS, Quantise
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor

KvDtype = Literal["bf16", "int8"]

_EMBEDDINGS = ("token_embd.weight", "output.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How weights that a file has as floats, and keys and values, are stored.

    Attributes:
        quantise: of the weights.
        kv_dtype: of keys and values; on a GPU, bfloat16 stands for the type that it computes in.
    """

    quantise: Quantise = "int8"
    kv_dtype: KvDtype = "bf16"


def choose_storage(
    file: ModelFile, *, on_gpu: bool, quantize: str = "auto", kv_dtype: str = "auto"
) -> Storage:
    """The storage for settings, each a name or ``auto``: on a CPU weights of 8 bits, on a GPU as
    they are, and keys and values in bfloat16.

    ModelLoadError: the runner can't store that, or the file has no weights to quantise.
    """
    runner = "the GPU runner" if on_gpu else "the CPU runner"
    known = ("bf16",) if on_gpu else ("bf16", "int8")
    if kv_dtype not in ("auto", *known):
        raise ModelLoadError(
            f"--kv-dtype {kv_dtype}: {runner} stores keys and values as {' or '.join(known)}",
            param="kv_dtype",
        )
    changes = any(_is_changed(name, tensor) for name, tensor in file.tensors.items())
    if quantize in ("int8", "int4") and not changes:
        types = sorted({each.type for each in file.tensors.values() if len(each.shape) > 1})
        raise ModelLoadError(
            f"--quantize {quantize}: {file.path} has no weights stored as floats, which it would "
            f"change; they are {', '.join(types)}",
            param="quantize",
        )
    chosen: Quantise = "none" if on_gpu else "int8"
    if quantize in ("int8", "int4", "none"):
        chosen = quantize  # type: ignore[assignment]
    return Storage(quantise=chosen, kv_dtype="int8" if kv_dtype == "int8" else "bf16")


def tensor_quantise(name: str, quantise: Quantise) -> Quantise:
    """What ``quantise`` is for a matrix: embeddings and the head have at least 8 bits, and routers
    of experts, whose choices must not change by rounding, stay as they are."""
    if "ffn_gate_inp" in name:
        return "none"
    return "int8" if quantise == "int4" and name in _EMBEDDINGS else quantise


def _is_changed(name: str, tensor: GgufTensor) -> bool:
    is_matrix = len(tensor.shape) > 1 and tensor_quantise(name, "int8") != "none"
    return is_matrix and tensor.type in STORED_FLOATS
