"""The reference forward pass: equal to independent implementations of the architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from ramet.runtime.api.errors import InvalidParameterError, ModelLoadError, UnsupportedModelError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.rotary import inverse_frequencies
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.tokenizer import ChatTemplate, read_tokenizer

VOCAB_SIZE, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 50, 32, 4, 2, 16, 48
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
}
# Gemma's has the same word for another norm.
GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, architecture: str) -> str:
    for theirs, ours in (NAMES | (GEMMA_NAMES if architecture == "gemma3" else {})).items():
        name = name.replace(theirs, ours)
    return name.replace("model.layers.", "blk.")


def interleaved(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Half-split rotary rows, reordered as GGUF files of the llama architecture store them."""
    halves = rows.reshape(num_heads, 2, HEAD_DIM // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def write_model(
    path: Path,
    architecture: str,
    weights: dict[str, np.ndarray],
    metadata: dict[str, Any] | None = None,
    *,
    num_layers: int = 2,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(num_layers)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{architecture}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    for name, tensor in weights.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_model(architecture: str, *, tied: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    if architecture == "gemma3":
        return random_gemma3(transformers)
    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[architecture]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=128,
        rope_theta=5000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for name, weight in model.named_parameters():
        spread = 0.1 if weight.dim() == 1 else 0.3
        mean = 1.0 if "norm" in name else 0.0
        torch.nn.init.normal_(weight, mean, spread)
    return model


def weights_of(model: Any, architecture: str, *, tied: bool) -> dict[str, np.ndarray]:
    weights: dict[str, np.ndarray] = {}
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = tensor.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = interleaved(values, HEADS if "q_proj" in name else KV_HEADS)
        if architecture == "gemma3" and "norm" in name:
            values = values + 1  # as its files have it
        weights[gguf_name(name, architecture)] = values
    return weights


def random_gemma3(transformers: Any) -> Any:
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_hidden_layers=NUM_GEMMA_LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        query_pre_attn_scalar=HEAD_DIM,
        sliding_window=4,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        },
        attn_implementation="eager",
    )
    model = transformers.Gemma3ForCausalLM(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.1 if weight.dim() == 1 else 0.3)
    return model


GEMMA3 = {
    "attention.sliding_window": 4,
    "attention.sliding_window_pattern": 3,
    "rope.freq_base_swa": 700.0,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 8.0,
}
NUM_GEMMA_LAYERS = 3


def test_gemma3_equals_an_independent_implementation(tmp_path: Path) -> None:
    model = random_model("gemma3", tied=True)
    weights = weights_of(model, "gemma3", tied=True)
    path = write_model(tmp_path / "m.gguf", "gemma3", weights, GEMMA3, num_layers=NUM_GEMMA_LAYERS)
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    reference = ReferenceModel(GgufFile(path))
    assert reference.config.windows == (4, 4, 0)
    np.testing.assert_allclose(reference.logits(ids), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [(None, (8,) * 5 + (0,) + (8,) * 2), (4, (8, 8, 8, 0) * 2), ([True, False] * 4, (8, 0) * 4)],
)
def test_gemma3_files_say_which_layers_are_local(
    tmp_path: Path, pattern: Any, windows: tuple[int, ...]
) -> None:
    metadata = {"attention.sliding_window": 8}
    if pattern is not None:
        metadata["attention.sliding_window_pattern"] = pattern
    weights = random_weights("gemma3", num_layers=8)
    file = GgufFile(write_model(tmp_path / "m.gguf", "gemma3", weights, metadata, num_layers=8))
    config = ModelConfig.from_gguf(file)
    assert config.windows == windows
    local = inverse_frequencies(config.rope, file, "local")
    np.testing.assert_allclose(local, 10_000.0 ** -(np.arange(0, HEAD_DIM, 2) / HEAD_DIM))


def test_a_gemma3_file_without_a_window_is_a_load_error(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "gemma3", random_weights("gemma3"))
    with pytest.raises(ModelLoadError, match="sliding_window"):
        ModelConfig.from_gguf(GgufFile(path))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_an_independent_implementation(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    model = random_model(architecture, tied=tied)
    path = write_model(
        tmp_path / "m.gguf", architecture, weights_of(model, architecture, tied=tied)
    )
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    reference = ReferenceModel(GgufFile(path))
    assert reference.config.tied_embeddings == tied
    np.testing.assert_allclose(reference.logits(ids), expected, rtol=2e-4, atol=2e-4)


def random_weights(architecture: str = "llama", *, num_layers: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB_SIZE, HIDDEN)}
    for layer in range(num_layers):
        prefix = f"blk.{layer}."
        if architecture == "gemma3":
            shapes |= {
                prefix + "attn_q_norm.weight": (HEAD_DIM,),
                prefix + "attn_k_norm.weight": (HEAD_DIM,),
                prefix + "post_attention_norm.weight": (HIDDEN,),
                prefix + "post_ffw_norm.weight": (HIDDEN,),
            }
        shapes |= {
            prefix + "attn_norm.weight": (HIDDEN,),
            prefix + "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            prefix + "ffn_norm.weight": (HIDDEN,),
            prefix + "ffn_gate.weight": (FFN, HIDDEN),
            prefix + "ffn_up.weight": (FFN, HIDDEN),
            prefix + "ffn_down.weight": (HIDDEN, FFN),
        }
    shapes["output_norm.weight"] = (HIDDEN,)
    return {name: rng.standard_normal(shape) * 0.3 for name, shape in shapes.items()}


def test_a_token_sees_only_what_is_before_it(tmp_path: Path) -> None:
    model = ReferenceModel(GgufFile(write_model(tmp_path / "m.gguf", "llama", random_weights())))
    ids = [7, 8, 9, 10, 11]
    whole = model.logits(ids)
    assert whole.shape == (5, VOCAB_SIZE)
    assert whole.dtype == np.float32
    for length in range(1, 5):
        np.testing.assert_allclose(model.logits(ids[:length]), whole[:length], atol=1e-4)
    assert not np.allclose(model.logits([8, 7, 9])[-1], model.logits([7, 8, 9])[-1])


def test_greedy_takes_the_likeliest_token_and_ends_where_it_should(tmp_path: Path) -> None:
    model = ReferenceModel(GgufFile(write_model(tmp_path / "m.gguf", "llama", random_weights())))
    output = model.greedy([1, 2], 5)
    assert len(output) == 5
    assert output[0] == model.logits([1, 2])[-1].argmax()
    assert output[3] == model.logits([1, 2, *output[:3]])[-1].argmax()
    end = frozenset({output[1]})
    assert model.greedy([1, 2], 5, end_ids=end) == output[: output.index(output[1]) + 1]


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    model = ReferenceModel(GgufFile(write_model(tmp_path / "m.gguf", "llama", random_weights())))
    for ids in ([], [-1], [VOCAB_SIZE]):
        with pytest.raises(InvalidParameterError):
            model.logits(ids)


def test_rotary_frequencies_follow_the_scaling(tmp_path: Path) -> None:
    plain_file = GgufFile(write_model(tmp_path / "p.gguf", "llama", random_weights()))
    plain = inverse_frequencies(ModelConfig.from_gguf(plain_file).rope, plain_file)
    np.testing.assert_allclose(plain, 5000.0 ** (-np.arange(8) / 8))
    scaled_file = GgufFile(
        write_model(
            tmp_path / "s.gguf",
            "llama",
            random_weights(),
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        )
    )
    scaled = inverse_frequencies(ModelConfig.from_gguf(scaled_file).rope, scaled_file)
    np.testing.assert_allclose(scaled, plain / 4)
    divisors = np.linspace(1, 8, 8)
    weights = random_weights() | {"rope_freqs.weight": divisors}
    divided_file = GgufFile(write_model(tmp_path / "d.gguf", "llama", weights))
    divided = inverse_frequencies(ModelConfig.from_gguf(divided_file).rope, divided_file)
    np.testing.assert_allclose(divided, plain / divisors, rtol=1e-6)


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"rope.scaling.type": "dynamic", "rope.scaling.factor": 2.0}, "'dynamic'"),
        ({"attn_logit_softcapping": 30.0}, "soft-capping"),
    ],
)
def test_variants_that_are_not_run_are_refused_by_name(
    tmp_path: Path, metadata: dict[str, Any], match: str
) -> None:
    path = write_model(tmp_path / "m.gguf", "llama", random_weights(), metadata)
    with pytest.raises(UnsupportedModelError, match=match):
        ModelConfig.from_gguf(GgufFile(path))


def test_experts_where_an_architecture_has_none_are_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "qwen2", random_weights(), {"expert_count": 8})
    with pytest.raises(UnsupportedModelError, match="mixture of experts"):
        ModelConfig.from_gguf(GgufFile(path))


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "mamba", random_weights())
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*llama, .*qwen2, qwen3"):
        ModelConfig.from_gguf(GgufFile(path))


def test_a_file_that_contradicts_itself_is_a_load_error(tmp_path: Path) -> None:
    lacking = random_weights()
    del lacking["blk.1.attn_v.weight"]
    with pytest.raises(ModelLoadError, match=r"blk\.1\.attn_v\.weight.*missing"):
        ModelConfig.from_gguf(GgufFile(write_model(tmp_path / "a.gguf", "llama", lacking)))
    bent = random_weights()
    bent["blk.0.ffn_up.weight"] = bent["blk.0.ffn_up.weight"][:-1]
    with pytest.raises(ModelLoadError, match=r"ffn_up\.weight.*\(47, 32\)"):
        ModelConfig.from_gguf(GgufFile(write_model(tmp_path / "b.gguf", "llama", bent)))


@pytest.mark.model
def test_the_bundled_model_answers() -> None:
    file = GgufFile(locate_model("smollm2"))
    config = ModelConfig.from_gguf(file)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert (config.vocab_size, config.head_dim, config.max_context_len) == (49152, 64, 8192)
    tokenizer = read_tokenizer(file)
    prompt = ChatTemplate.of(tokenizer).encode(
        [{"role": "user", "content": "What is the capital of France?"}]
    )
    answer = [*tokenizer.encode("The capital of France is Paris."), tokenizer.eos_id]
    likeliest = ReferenceModel(file).logits([*prompt, *answer]).argmax(1)
    assert likeliest[len(prompt) - 1 : -1].tolist() == answer
