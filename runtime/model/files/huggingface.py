"""Reads a Hugging Face model folder: ``config.json``, safetensors and ``tokenizer.json``.

Everything is brought under GGUF's names and order of rows, so what runs a GGUF file runs a folder.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.architectures import ARCHITECTURES
from ramet.runtime.model.files.fused import split_experts, stacked
from ramet.runtime.model.files.huggingface_attention import (
    latent_metadata,
    rope_metadata,
    window_metadata,
)
from ramet.runtime.model.files.huggingface_experts import expert_metadata
from ramet.runtime.model.files.huggingface_names import UnknownName, gguf_name
from ramet.runtime.model.files.huggingface_tokenizer import tokenizer_metadata
from ramet.runtime.model.files.model_file import MetadataValue, ModelFile, read_json
from ramet.runtime.model.files.quantised import plain_tensors
from ramet.runtime.model.files.safetensors import read_safetensors
from ramet.runtime.model.files.tensor import GgufTensor, MadeTensor, UInt8Array
from ramet.runtime.model.files.unified import unify_tensors

_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "ministral": "llama",
    "granite": "granite",
    "smollm3": "smollm3",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "olmo2": "olmo2",
    "stablelm": "stablelm",
    "cohere": "command-r",
    "cohere2": "cohere2",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "granitemoe": "granitemoe",
    "gpt_oss": "gpt-oss",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
}
_GEMMA = ("gemma2", "gemma3")
_INTERLEAVED = ("llama", "granite", "granitemoe", "smollm3")
"""Architectures whose GGUF files keep the values that rotate together side by side; folders keep
them half a head apart."""
_SCALES = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
"""Numbers of ``config.json``, by their keys in GGUF."""
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_PLAIN_TYPES = ("F32", "F16", "BF16", "MXFP4", "Q4_1", "Q8_0")


class HfDirectory(ModelFile):
    """A model folder.

    Raises ``ModelLoadError`` for a folder that lacks a file or contradicts itself,
    ``UnsupportedModelError`` for a model that Ramet doesn't run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._read(read_json(self.path / "config.json"))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Its JSON files are read as what they should be.
            raise ModelLoadError(
                f"{self.path}: unexpected content in its JSON files ({error!r})"
            ) from error

    def _read(self, config: Mapping[str, Any]) -> None:
        model_type = str(config.get("model_type"))
        if model_type not in _ARCHITECTURES:
            raise UnsupportedModelError(
                f"{self.path}: the model type {model_type!r} is not supported; "
                f"Ramet runs {', '.join(_ARCHITECTURES)}"
            )
        architecture = _ARCHITECTURES[model_type]
        self._refuse_variants(config, architecture)
        self.metadata: dict[str, MetadataValue] = self._metadata(config, architecture)
        self.tensors: dict[str, GgufTensor] = {}
        self._read_tensors(config, architecture)
        unify_tensors(self, architecture)
        self.metadata |= self._recommended_sampling()
        num_rows = self.tensor("token_embd.weight").shape[0]
        self.metadata |= tokenizer_metadata(self.path, config, num_rows)

    @property
    def fingerprint(self) -> str:
        """A hash of the configuration, the tensors' descriptions and samples of their values."""
        return self._fingerprint

    def drop_cached(self) -> None:
        """Unmaps the files' pages from memory; the system reads them again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for buffer in self._buffers:
                buffer.madvise(mmap.MADV_DONTNEED)

    def _recommended_sampling(self) -> dict[str, MetadataValue]:
        """Numbers of ``generation_config.json``, under GGUF's keys."""
        path = self.path / "generation_config.json"
        stated = read_json(path) if path.is_file() else {}
        return {
            f"general.sampling.{ours}": stated[theirs]
            for ours, theirs in _SAMPLING.items()
            if isinstance(stated.get(theirs), int | float)
        }

    def _refuse_variants(self, config: Mapping[str, Any], architecture: str) -> None:
        activation = config.get("hidden_activation") or config.get("hidden_act")
        wanted = "gelu_pytorch_tanh" if architecture in _GEMMA else "silu"
        refused = {
            f"the activation {activation!r}": activation != wanted,
        }
        for what, present in refused.items():
            if present:
                raise UnsupportedModelError(f"{self.path}: {what} is not supported")

    def _metadata(self, config: Mapping[str, Any], architecture: str) -> dict[str, MetadataValue]:
        def number(key: str, default: Any = None) -> Any:
            value = config.get(key)
            value = default if value is None else value
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ModelLoadError(f"{self.path}: config.json has no number {key!r}")
            return value

        num_heads = number("num_attention_heads")
        head_dim = number("head_dim", number("hidden_size") // max(1, num_heads))
        kind = ARCHITECTURES[architecture].norm
        eps = (
            ("rms_norm_eps", "layer_norm_rms")
            if kind == "rms"
            else ("layer_norm_eps", "layer_norm")
        )
        values: dict[str, MetadataValue] = {
            "block_count": number("num_hidden_layers"),
            "context_length": number("max_position_embeddings"),
            "embedding_length": number("hidden_size"),
            "feed_forward_length": number("intermediate_size"),
            "attention.head_count": num_heads,
            "attention.head_count_kv": number("num_key_value_heads", num_heads),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            f"attention.{eps[1]}_epsilon": float(number(eps[0])),
        }
        if ARCHITECTURES[architecture].multiplies_logits:
            values["logit_scale"] = float(number("logit_scale", 1.0))
        if ARCHITECTURES[architecture].normalises_experts is not None:
            values |= expert_metadata(self.path, config)
        if ARCHITECTURES[architecture].latent:
            values |= latent_metadata(config)
            head_dim = number("qk_rope_head_dim")
        for ours, theirs in _SCALES.items():
            if config.get(theirs) is not None:
                values[ours] = float(number(theirs))
        if architecture in _GEMMA and config.get("query_pre_attn_scalar"):
            values["attention.scale"] = float(number("query_pre_attn_scalar")) ** -0.5
        values |= window_metadata(config, values["block_count"])
        rope = rope_metadata(self.path, config, values["context_length"], head_dim)
        self._divisors, self._divisors_name = rope.divisors, rope.name
        return {
            "general.architecture": architecture,
            "general.name": self.path.resolve().name,
            **{f"{architecture}.{key}": value for key, value in (values | rope.values).items()},
        }

    def _read_tensors(self, config: Mapping[str, Any], architecture: str) -> None:
        digest = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=16)
        stored: dict[str, GgufTensor] = {}
        self._buffers: list[mmap.mmap] = []
        for path in self._weight_files():
            tensors, header_hash, buffer = read_safetensors(path)
            self._buffers.append(buffer)
            stored |= tensors
            digest.update(header_hash.encode())
            for tensor in tensors.values():
                digest.update(tensor.data[0, :4096].tobytes() + tensor.data[-1, :4096].tobytes())
        parts: dict[str, dict[int, GgufTensor]] = {}
        for name, tensor in plain_tensors(self.path, config, stored).items():
            found = self._gguf_name(name, config, architecture)
            if found is None or (
                found[0] == "output.weight" and config.get("tie_word_embeddings", False)
            ):
                continue
            ours, part = found
            if part is not None:
                parts.setdefault(ours, {})[part] = tensor
            else:
                self.tensors[ours] = self._in_gguf_order(ours, tensor, architecture)
        self.tensors |= {name: stacked(self, name, parts[name]) for name in parts}
        split_experts(self)
        for name, tensor in self.tensors.items():
            if tensor.type not in _PLAIN_TYPES:
                raise UnsupportedModelError(
                    f"{self.path}: the tensor {name!r} is stored as {tensor.type}, without a "
                    "quantization_config that says what that means"
                )
        if self._divisors is not None:
            data = self._divisors.astype("<f4").view(np.uint8).reshape(1, -1)
            shape, name = (len(self._divisors),), self._divisors_name
            self.tensors[name] = GgufTensor(name, "F32", shape, data)
        self._fingerprint = digest.hexdigest()

    def _weight_files(self) -> list[Path]:
        single, index = "model.safetensors", "model.safetensors.index.json"
        if (self.path / single).is_file():
            return [self.path / single]
        if not (self.path / index).is_file():
            raise ModelLoadError(f"{self.path}: neither {single} nor {index} is there")
        names = set((read_json(self.path / index).get("weight_map") or {}).values())
        if any(Path(name).name != name for name in map(str, names)):
            raise ModelLoadError(f"{self.path}: {index} names files outside the folder")
        return sorted(self.path / str(name) for name in names)

    def _gguf_name(
        self, name: str, config: Mapping[str, Any], architecture: str
    ) -> tuple[str, int | None] | None:
        """See ``gguf_name``."""
        num_layers = int(config["num_hidden_layers"])
        post_norms = ARCHITECTURES[architecture].post_norms
        try:
            return gguf_name(name, num_layers=num_layers, post_norms=post_norms)
        except UnknownName:
            raise UnsupportedModelError(
                f"{self.path}: the tensor {name!r} is not supported"
            ) from None

    def _in_gguf_order(self, name: str, tensor: GgufTensor, architecture: str) -> GgufTensor:
        shape = tensor.shape
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if architecture in _GEMMA and "norm" in name:
            # Folders store what is added to 1.
            values = tensor.to_float32() + np.float32(1.0)
            return GgufTensor(name, "F32", shape, values.view(np.uint8).reshape(1, -1))
        if architecture in _INTERLEAVED and part in ("attn_q", "attn_k"):
            head_dim = int(self.metadata[f"{architecture}.attention.key_length"])
            rope_dim = int(self.metadata[f"{architecture}.rope.dimension_count"])
            num_rows = shape[0]
            if num_rows % head_dim or rope_dim % 2 or rope_dim > head_dim:
                raise ModelLoadError(f"{self.path}: {name!r} doesn't divide into heads")
            head = np.arange(head_dim)
            head[:rope_dim] = head[:rope_dim].reshape(2, -1).T.ravel()
            order = (np.arange(0, num_rows, head_dim)[:, None] + head).ravel()
            if len(shape) == 1:  # a bias
                values = tensor.to_float32()[order]
                return GgufTensor(name, "F32", shape, values.view(np.uint8).reshape(1, -1))

            def rows(first: int, end: int) -> UInt8Array:
                wanted = order[first:end]  # of few heads: others aren't read
                lowest = int(wanted.min())
                taken: UInt8Array = tensor.rows(lowest, int(wanted.max()) + 1)[wanted - lowest]
                return taken

            return MadeTensor(name, tensor.type, shape, rows)
        if part == "ffn_gate_inp_shexp":
            shape = shape[-1:]
        return (
            tensor if shape == tensor.shape else GgufTensor(name, tensor.type, shape, tensor.data)
        )
