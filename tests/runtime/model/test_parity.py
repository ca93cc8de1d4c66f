"""Every architecture: logits and greedy tokens of the library that wrote it, on each runner.

Models are small and random; ``transformers`` makes them and says what they answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from ramet.runtime.api.batch import Batch
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.config import ARCHITECTURES
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.files.huggingface import _ARCHITECTURES
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.load import open_model
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.tokenizer import read_tokenizer

transformers = pytest.importorskip("transformers")

VOCAB_SIZE = 288
NUM_LAYERS = 4
YARN = {"rope_type": "yarn", "rope_theta": 900.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 64}
FACTORS = {"short_factor": [1.0 + i / 3 for i in range(8)], "long_factor": [4.0] * 8}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 700.0, **FACTORS}
LONG_ROPE |= {"original_max_position_embeddings": 256}
SCALES = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
SCALES |= {"attention_multiplier": 0.3}
GEMMA = {"query_pre_attn_scalar": 20, "sliding_window": 9}
GEMMA3_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
}
LOCAL = ["sliding_attention", "full_attention"] * 2

EXPERTS = {"num_experts": 6, "num_local_experts": 6, "num_experts_per_tok": 2}
SMALL = EXPERTS | {"moe_intermediate_size": 32}
GPT_OSS_ROPE = YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}
LATENT = {"kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
LATENT |= {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
LATENT |= {"n_shared_experts": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4}
LATENT_YARN = YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-biases": ("Llama", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "ministral": ("Ministral", {"sliding_window": 7, "layer_types": LOCAL}),
    "qwen2": ("Qwen2", {"rope_parameters": YARN | {"attention_factor": 1.3}}),
    "qwen3": ("Qwen3", {}),
    "phi3": ("Phi3", {"pad_token_id": 0}),
    "phi3-window": ("Phi3", {"pad_token_id": 0, "sliding_window": 7}),
    "phi3-longrope": (
        "Phi3",
        {
            "pad_token_id": 0,
            "rope_parameters": LONG_ROPE,
            "original_max_position_embeddings": 256,
        },
    ),
    "smollm3": ("SmolLM3", {"pad_token_id": 0}),
    "granite": ("Granite", SCALES),
    "phi4-mini": (
        "Phi3",
        {
            "pad_token_id": 0,
            "rope_parameters": LONG_ROPE
            | {"partial_rotary_factor": 0.75, "short_factor": FACTORS["short_factor"][:6]}
            | {"long_factor": [4.0] * 6},
            "original_max_position_embeddings": 256,
            "tie_word_embeddings": True,
        },
    ),
    "olmo2": ("Olmo2", {}),
    "stablelm": ("StableLm", {"use_qkv_bias": True}),
    "stablelm-parallel": ("StableLm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "command-r": ("Cohere", {"logit_scale": 0.3}),
    "command-r-plus": ("Cohere", {"logit_scale": 0.3, "use_qk_norm": True}),
    "command-r7b": ("Cohere2", {"sliding_window": 7, "layer_types": LOCAL, "logit_scale": 0.3}),
    "mixtral": ("Mixtral", EXPERTS),
    "qwen2-moe": ("Qwen2Moe", SMALL | {"shared_expert_intermediate_size": 64}),
    "qwen3-moe": ("Qwen3Moe", SMALL | {"norm_topk_prob": True}),
    "granite-moe": ("GraniteMoe", SCALES | EXPERTS),
    "gpt-oss": (
        "GptOss",
        EXPERTS | {"sliding_window": 7, "layer_types": LOCAL, "rope_parameters": GPT_OSS_ROPE},
    ),
    "deepseek-v2-lite": ("DeepseekV2", LATENT | {"q_lora_rank": None}),
    "deepseek-v2": (
        "DeepseekV2",
        LATENT
        | {"q_lora_rank": 32, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
        | {"routed_scaling_factor": 3.0},
    ),
    "deepseek-v3": (
        "DeepseekV3",
        LATENT | {"q_lora_rank": 32, "n_group": 4, "topk_group": 2, "rope_parameters": LATENT_YARN},
    ),
    "gemma2": ("Gemma2", GEMMA | {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3Text", GEMMA | {"rope_parameters": GEMMA3_ROPE, "layer_types": LOCAL}),
}
LAYER_NORM = ("StableLm", "Cohere", "Cohere2")
PROMPTS = [[5, 9, 17, 3, 200, 41, 6], [5, 9, 17, 3, 200, 41, 6, 77, 8, 150, 31, 2, 99, 12, 64], [7]]
IDS = [(11 * i * i + 3 * i) % 256 for i in range(40)]


def tokenizer() -> Library:
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(models.BPE({char: i for i, char in enumerate(characters)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def written(family: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder, and the other library's model."""
    kind, changes = FAMILIES[family]
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": NUM_LAYERS}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    if kind in ("Phi3", "Olmo2", "StableLm", "Cohere", "GraniteMoe", "DeepseekV2", "DeepseekV3"):
        del heads["head_dim"]
    config = getattr(transformers, f"{kind}Config")(
        **{
            **sizes,
            **heads,
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": 1024,
            ("layer_norm_eps" if kind in LAYER_NORM else "rms_norm_eps"): 1e-5,
            "bos_token_id": None,
            "eos_token_id": None,
            "attn_implementation": "eager",
            **changes,
        }
    )
    name = f"{kind}ForCausalLM" if kind != "Gemma3Text" else "Gemma3ForCausalLM"
    model = getattr(transformers, name)(config).eval()
    for name, weight in model.named_parameters():
        is_norm = "norm" in name
        mean = 1.0 if is_norm and not kind.startswith("Gemma") else 0.0
        torch.nn.init.normal_(weight, mean, 0.1 if is_norm else 0.15)
    path = tmp_path_factory.mktemp(family)
    model.save_pretrained(path)
    tokenizer().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({}))
    return path, model


@torch.inference_mode()
def expected_logits(model: Any, ids: Sequence[int]) -> np.ndarray:
    return model(torch.tensor([list(ids)]), use_cache=False).logits[0].float().numpy()


def prefill(ids: Sequence[int], page_size: int) -> Batch:
    num_pages = -(-len(ids) // page_size)
    positions = np.arange(len(ids), dtype=np.int32)
    return Batch(
        token_ids=np.array(ids, np.int32),
        positions=positions,
        row_starts=np.array([0, len(ids)], np.int32),
        context_lens=np.array([len(ids)], np.int32),
        page_tables=np.arange(num_pages, dtype=np.int32)[None],
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=positions,
        sampling=None,  # type: ignore[arg-type]  # no token is chosen
    )


def runner_of(path: Path, kind: str) -> Any:
    if kind == "cpu":
        return CpuRunner(path, num_pages=64, num_threads=1, activations="float32")
    return TorchRunner.load(path, TorchOptions(device="cpu", num_pages=64))


def test_the_reference_has_the_logits_of_the_library(written: tuple[Path, Any]) -> None:
    path, model = written
    found = ReferenceModel(open_model(path)).logits(IDS)
    np.testing.assert_allclose(found, expected_logits(model, IDS), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_runners_have_the_logits_and_tokens_of_the_library(
    written: tuple[Path, Any], kind: str
) -> None:
    path, model = written
    runner = runner_of(path, kind)
    # The CPU runner keeps keys and values in half precision. Which experts a token uses can change
    # by that, so it is compared with the definition, which has the library's logits, rounded alike.
    rounded = ReferenceModel(open_model(path), kv_dtype="bf16")
    tolerance = 1e-4 if kind == "torch" else 0.03

    def expected(ids: Sequence[int]) -> np.ndarray:
        return expected_logits(model, ids) if kind == "torch" else rounded.logits(ids)

    found = runner.logits(prefill(IDS, runner.page_size))[:, :VOCAB_SIZE]
    np.testing.assert_allclose(found, expected(IDS), atol=tolerance, rtol=1e-4)
    with Engine(runner, read_tokenizer(open_model(path)), EngineConfig()) as engine:
        params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
        first = engine.generate(PROMPTS[0], params)
        # Together, and behind a prefix that is cached by now.
        streams = [
            engine.submit(Request(prompt_token_ids=tuple(prompt), params=params))
            for prompt in PROMPTS
        ]
        outputs = [[each.token_id for each in stream.result(60).tokens] for stream in streams]
        assert outputs[0] == [token.token_id for token in first.tokens]
        engine.check()
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert len(output) == 64
        logits = expected([*prompt, *output])[len(prompt) - 1 : -1]
        chosen = logits[np.arange(64), output]
        assert (logits.max(axis=1) - chosen).max() <= (0 if kind == "torch" else 2 * tolerance)


BATCH_FAMILIES = ("olmo2", "stablelm-parallel", "qwen2-moe", "gpt-oss", "deepseek-v3")


@pytest.mark.parametrize("family", BATCH_FAMILIES, indirect=True)
def test_a_row_has_the_same_logits_alone_and_in_a_batch_on_the_cpu(
    written: tuple[Path, Any],
) -> None:
    path, _ = written
    runner = CpuRunner(path, num_pages=64, num_threads=2)  # activations in 8 bits
    others, size = [(7 * i) % 256 for i in range(33)], runner.page_size
    alone = runner.logits(prefill(IDS, size)).copy()
    first, second = prefill(IDS, size), prefill(others, size)
    width = max(first.page_tables.shape[1], second.page_tables.shape[1])
    tables = np.zeros((2, width), np.int32)
    tables[0, : first.page_tables.shape[1]] = first.page_tables
    tables[1, : second.page_tables.shape[1]] = second.page_tables + first.page_tables.size
    together = Batch(
        token_ids=np.concatenate([first.token_ids, second.token_ids]),
        positions=np.concatenate([first.positions, second.positions]),
        row_starts=np.array([0, len(IDS), len(IDS) + len(others)], np.int32),
        context_lens=np.array([len(IDS), len(others)], np.int32),
        page_tables=tables,
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.arange(len(IDS) + len(others), dtype=np.int32),
        sampling=None,  # type: ignore[arg-type]  # no token is chosen
    )
    np.testing.assert_array_equal(runner.logits(together)[: len(IDS)], alone)
    exact = ReferenceModel(open_model(path)).logits(IDS)
    similar = [np.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(alone, exact, strict=True)]
    assert np.median(similar) > 0.98


def write_gguf(path: Path, folder: ModelFile) -> Path:
    """The same model as a GGUF file, under the keys and with the tensors that converters write."""
    architecture = folder.text("general.architecture")
    writer = gguf.GGUFWriter(path, architecture)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, value in folder.metadata.items():
        if not key.startswith(f"{architecture}.") or key.endswith((".rope.layers", ".magnitude")):
            continue
        if isinstance(value, np.ndarray):
            writer.add_array(key, value.tolist())
        else:
            add.get(type(value), writer.add_string)(key, value)
    tensors = {name: tensor.to_float32() for name, tensor in folder.tensors.items()}
    for layer in range(NUM_LAYERS if architecture == "phi3" else 0):
        block = f"blk.{layer}."
        for fused, parts in (
            ("attn_qkv", ("attn_q", "attn_k", "attn_v")),
            ("ffn_up", ("ffn_gate", "ffn_up")),
        ):
            rows = [tensors.pop(f"{block}{part}.weight") for part in parts]
            tensors[f"{block}{fused}.weight"] = np.concatenate(rows)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_has_the_logits_of_the_library(
    family: str, written: tuple[Path, Any], tmp_path: Path
) -> None:
    path, model = written
    if family == "qwen2":
        pytest.skip("GGUF files don't state a magnitude of YaRN other than its own")
    found = ReferenceModel(open_model(write_gguf(tmp_path / "m.gguf", open_model(path))))
    np.testing.assert_allclose(found.logits(IDS), expected_logits(model, IDS), atol=1e-4, rtol=1e-4)


def test_every_architecture_is_tested_and_in_the_table_of_models() -> None:
    table = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")
    tested = {getattr(transformers, f"{kind}Config").model_type for kind, _ in FAMILIES.values()}
    assert {_ARCHITECTURES[name] for name in tested} == set(ARCHITECTURES)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    stated = {row[1].strip("`"): row[2:] for row in rows if len(row) == 5}
    for model_type in tested:
        file_name, on_cpu, on_torch = stated[model_type]
        assert file_name == f"`{_ARCHITECTURES[model_type]}`"
        assert (on_cpu, on_torch) == ("yes", "yes")
