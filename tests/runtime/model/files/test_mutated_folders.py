"""Thousands of damaged model folders: each loads, or ends in a typed error that names the file."""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.model.files.test_huggingface import trained_tokenizer

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.load_weights import load_cpu_weights
from ramet.runtime.model.files.huggingface import HfDirectory
from ramet.runtime.model.memory_needs import memory_needs
from ramet.runtime.tokenizer import ChatTemplate, read_tokenizer

NUM_MUTATIONS = int(os.environ.get("RAMET_MUTATIONS", "150"))
CONFIG = {
    "model_type": "llama", "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": True, "rope_theta": 10000.0, "eos_token_id": 1,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}  # fmt: skip
SETTINGS = {
    "eos_token": {"content": "<|im_end|>"},
    "bos_token": "<|endoftext|>",
    "add_bos_token": True,
    "chat_template": "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
}
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "\ud800", "F32", [], {}, [1], {"a": 1}, [[]], "x" * 10_000,
]  # fmt: skip


def tensors() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (320, 32), "model.norm.weight": (32,),
    }  # fmt: skip
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (32,),
            f"{prefix}post_attention_layernorm.weight": (32,),
            f"{prefix}self_attn.q_proj.weight": (32, 32),
            f"{prefix}self_attn.k_proj.weight": (16, 32),
            f"{prefix}self_attn.v_proj.weight": (16, 32),
            f"{prefix}self_attn.o_proj.weight": (32, 32),
            f"{prefix}mlp.gate_proj.weight": (64, 32),
            f"{prefix}mlp.up_proj.weight": (64, 32),
            f"{prefix}mlp.down_proj.weight": (32, 64),
        }
    return shapes


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a tiny model that loads."""
    folder = tmp_path_factory.mktemp("sound")
    header, end = {}, 0
    for name, shape in tensors().items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    values = np.random.default_rng(1).normal(0, 0.2, end // 4).astype("<f4").tobytes()
    (folder / "model.safetensors").write_bytes(safetensors(header, values))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    trained_tokenizer("smollm").save(str(folder / "tokenizer.json"))
    return folder


def safetensors(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def load(folder: Path) -> None:
    """What a start does with a folder, short of making an engine."""
    file = HfDirectory(folder)
    config = ModelConfig.from_gguf(file)
    memory_needs(file, page_size=16, on_gpu=False)
    tokenizer = read_tokenizer(file)
    if tokenizer.chat_template is not None:
        ChatTemplate.of(tokenizer)
    tokenizer.encode("the cat <|im_end|>", allow_special=True)
    load_cpu_weights(file, config, exact=False, middles=False)


def mutate_json(rng: random.Random, value: Any) -> Any:
    """A copy with one to three values, keys or parts replaced, removed or doubled."""
    for _ in range(rng.randint(1, 3)):
        path: list[Any] = []
        here = value
        while isinstance(here, dict | list) and here and (not path or rng.random() < 0.8):
            step = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
            path.append(step)
            here = here[step]
        if not path:
            return rng.choice(VALUES)
        parent = value
        for step in path[:-1]:
            parent = parent[step]
        kind = rng.random()
        if kind < 0.6:
            parent[path[-1]] = copy.deepcopy(rng.choice([*VALUES, value]))
        elif kind < 0.8:
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[rng.choice(["", "x", "id", "type", "0"])] = parent.pop(path[-1])
        else:
            parent.extend(parent[:1000])
    return value


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(changed) or 1)
        kind = rng.random()
        if kind < 0.6:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif kind < 0.8:
            del changed[at : at + rng.randint(1, 5000)]
        else:
            changed[at:at] = rng.randbytes(rng.randint(1, 20))
    return bytes(changed)


def mutate_header(rng: random.Random, data: bytes) -> bytes:
    """Safetensors with another header, or with damaged bytes near it."""
    length = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + length], data[8 + length :]
    kind = rng.random()
    if kind < 0.5:
        return safetensors(json.dumps(mutate_json(rng, json.loads(header))).encode(), body)
    if kind < 0.8:
        return safetensors(mutate_bytes(rng, header), body)
    if kind < 0.9:
        size = rng.choice([0, 1, length - 1, length + 1, len(data), 2**40, 2**64 - 1])
        return struct.pack("<Q", size) + data[8:]
    return data[: rng.randrange(len(data))]


def mutate_document(rng: random.Random, data: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.02:
        return b'{"nested": ' * 100_000
    if kind < 0.8:
        return json.dumps(mutate_json(rng, json.loads(data))).encode("utf-8", "surrogatepass")
    return mutate_bytes(rng, data)


@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("model.safetensors", mutate_header),
        ("config.json", mutate_document),
        ("tokenizer.json", mutate_document),
        ("tokenizer_config.json", mutate_document),
    ],
)
def test_damaged_files_are_typed_errors_that_name_them(
    sound: Path, tmp_path: Path, name: str, mutate: Callable[[random.Random, bytes], bytes]
) -> None:
    load(sound)
    folder = tmp_path / "damaged"
    shutil.copytree(sound, folder)
    original = (sound / name).read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest, refusals, faults = 0.0, [], []
    for seed in range(NUM_MUTATIONS):
        (folder / name).write_bytes(mutate(random.Random(seed), original))
        began = time.thread_time()
        try:
            load(folder)
        except ModelLoadError as error:
            refusals.append(str(error))
        except Exception as error:
            faults.append((seed, error))
        slowest = max(slowest, time.thread_time() - began)
    assert not faults
    unnamed = [each for each in refusals if str(folder) not in each and "template" not in each]
    assert not unnamed
    assert len(refusals) > NUM_MUTATIONS // 10
    assert slowest < 20  # nothing hangs
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 300 << 10
