"""Reads a Hugging Face model folder: ``config.json``, safetensors and ``tokenizer.json``.

Everything is brought under GGUF's names and order of rows, so what runs a GGUF file runs a folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.huggingface_tokenizer import tokenizer_metadata
from ramet.runtime.model.files.model_file import MetadataValue, ModelFile, read_json
from ramet.runtime.model.files.safetensors import read_safetensors
from ramet.runtime.model.files.tensor import GgufTensor

_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


class HfDirectory(ModelFile):
    """A model folder of the Llama family.

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
                f"{self.path}: something in its JSON files is not what it should be ({error!r})"
            ) from error

    def _read(self, config: Mapping[str, Any]) -> None:
        model_type = str(config.get("model_type"))
        if model_type not in _ARCHITECTURES:
            raise UnsupportedModelError(
                f"{self.path}: the model type {model_type!r} is not supported; "
                f"Ramet runs {', '.join(_ARCHITECTURES)}"
            )
        self._refuse_variants(config)
        architecture = _ARCHITECTURES[model_type]
        self.metadata: dict[str, MetadataValue] = self._metadata(config, architecture)
        self.tensors: dict[str, GgufTensor] = {}
        self._read_tensors(config, architecture)
        num_rows = self.tensor("token_embd.weight").shape[0]
        self.metadata |= tokenizer_metadata(self.path, config, num_rows)

    @property
    def fingerprint(self) -> str:
        """A hash of the configuration, the tensors' descriptions and samples of their values."""
        return self._fingerprint

    def _refuse_variants(self, config: Mapping[str, Any]) -> None:
        window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
        refused = {
            "a quantization_config (use the model's GGUF file)": config.get("quantization_config"),
            "sliding-window attention": window,
            f"the activation {config.get('hidden_act')!r}": config.get("hidden_act") != "silu",
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
        values: dict[str, MetadataValue] = {
            "block_count": number("num_hidden_layers"),
            "context_length": number("max_position_embeddings"),
            "embedding_length": number("hidden_size"),
            "feed_forward_length": number("intermediate_size"),
            "attention.head_count": num_heads,
            "attention.head_count_kv": number("num_key_value_heads", num_heads),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": float(number("rms_norm_eps")),
            "rope.dimension_count": head_dim,
        }
        rope = {"rope_theta": config.get("rope_theta"), **(config.get("rope_parameters") or {})}
        rope |= config.get("rope_scaling") or {}
        values["rope.freq_base"] = float(rope["rope_theta"] or 10_000.0)
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        self._divisors: npt.NDArray[np.float64] | None = None
        if kind == "linear":
            values |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
        elif kind == "llama3":
            self._divisors = _llama3_divisors(values["rope.freq_base"], head_dim, rope)
        elif kind != "default":
            raise UnsupportedModelError(f"{self.path}: rope scaling {kind!r} is not supported")
        return {
            "general.architecture": architecture,
            "general.name": self.path.resolve().name,
            **{f"{architecture}.{key}": value for key, value in values.items()},
        }

    def _read_tensors(self, config: Mapping[str, Any], architecture: str) -> None:
        digest = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=16)
        for path in self._weight_files():
            tensors, header_hash = read_safetensors(path)
            digest.update(header_hash.encode())
            for name, tensor in tensors.items():
                ours = self._gguf_name(name)
                if ours is None or (
                    ours == "output.weight" and config.get("tie_word_embeddings", False)
                ):
                    continue
                digest.update(tensor.data[0, :4096].tobytes() + tensor.data[-1, :4096].tobytes())
                self.tensors[ours] = self._in_gguf_order(ours, tensor, architecture)
        if self._divisors is not None:
            data = self._divisors.astype("<f4").view(np.uint8).reshape(1, -1)
            shape = (len(self._divisors),)
            self.tensors["rope_freqs.weight"] = GgufTensor("rope_freqs.weight", "F32", shape, data)
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

    def _gguf_name(self, name: str) -> str | None:
        """A tensor's name in GGUF; None for one that the forward pass computes itself."""
        if name in _OTHER_TENSORS:
            return _OTHER_TENSORS[name]
        prefix, _, rest = name.removeprefix("model.layers.").partition(".")
        part, _, kind = rest.rpartition(".")
        if part == "self_attn.rotary_emb" and kind == "inv_freq":
            return None
        if not name.startswith("model.layers.") or part not in _LAYER_TENSORS:
            raise UnsupportedModelError(f"{self.path}: the tensor {name!r} is not supported")
        return f"blk.{prefix}.{_LAYER_TENSORS[part]}.{kind}"

    def _in_gguf_order(self, name: str, tensor: GgufTensor, architecture: str) -> GgufTensor:
        data, shape = tensor.data, tensor.shape
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if architecture == "llama" and part in ("attn_q", "attn_k"):
            # GGUF files of the llama architecture keep the values that rotate together side by
            # side; folders keep them half a head apart.
            head_dim = int(self.metadata["llama.attention.key_length"])
            num_rows = shape[0]
            if num_rows % head_dim or head_dim % 2:
                raise ModelLoadError(f"{self.path}: {name!r} doesn't divide into heads")
            order = np.arange(num_rows).reshape(-1, 2, head_dim // 2).swapaxes(1, 2).ravel()
            rows = data.reshape(num_rows, -1)[order]
            data = np.ascontiguousarray(rows).reshape(data.shape)
        return GgufTensor(name, tensor.type, shape, data)


@np.errstate(divide="raise", over="raise", invalid="raise")
def _llama3_divisors(
    theta: float, head_dim: int, rope: Mapping[str, Any]
) -> npt.NDArray[np.float64]:
    """Llama 3.1's long-context scaling: slow rotations are slowed down by ``factor``, fast ones
    are kept, and those in between are mixed."""
    factor, low, high = (
        float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original_len = float(rope["original_max_position_embeddings"])
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = original_len * frequencies / (2 * np.pi)  # within the original context
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - kept) / factor + kept))
