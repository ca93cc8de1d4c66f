"""Hugging Face folders: the same logits and tokens as the libraries they were written with."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as ReferenceTokenizer

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.huggingface import HfDirectory
from ramet.runtime.model.load import open_model
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.tokenizer import ChatTemplate, TokenKind, read_tokenizer

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]
VOCAB_SIZE = 320


def trained_tokenizer(family: str) -> ReferenceTokenizer:
    tokenizer = ReferenceTokenizer(models.BPE())
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        split: Any = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        split = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 10,
        special_tokens=["<|endoftext|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat and the dog ate the 12 fish, then slept."], trainer)
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def write_folder(path: Path, kind: str, family: str = "smollm", **changes: Any) -> Any:
    """Writes a random model with its tokenizer; returns the other library's model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=1,
        **changes,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for name, weight in model.named_parameters():
        mean, spread = (1.0, 0.1) if "norm" in name else (0.0, 0.3)
        torch.nn.init.normal_(weight, mean, spread)
    model.save_pretrained(path)
    trained_tokenizer(family).save(str(path / "tokenizer.json"))
    settings = {
        "eos_token": {"content": "<|im_end|>"},
        "bos_token": "<|endoftext|>",
        "chat_template": "{{ messages[0].content }}{{ eos_token }}",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True, "attention_bias": True}),
        ("Llama", {"rope_parameters": {"rope_theta": 5000.0, **LLAMA3_ROPE}}),
        ("Llama", {"rope_parameters": {"rope_theta": 9.0, "rope_type": "linear", "factor": 4.0}}),
        ("Mistral", {"sliding_window": None}),
        ("Qwen2", {}),
        ("Qwen3", {}),
    ],
)
def test_logits_equal_the_library_that_wrote_the_folder(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    model = write_folder(tmp_path, kind, **changes)
    with torch.inference_mode():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
    logits = ReferenceModel(open_model(tmp_path)).logits(IDS)
    np.testing.assert_allclose(logits, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["smollm", "qwen2"])
def test_tokens_equal_those_of_the_folder(tmp_path: Path, family: str) -> None:
    write_folder(tmp_path, "Llama", family)
    tokenizer = read_tokenizer(HfDirectory(tmp_path))
    expected = trained_tokenizer(family)
    for text in ("the cat", " then 1234 fish's e\u0301 日本 \n\n x", "I <think> so", "a  b   "):
        assert tokenizer.encode(text) == expected.encode(text).ids
    assert tokenizer.encode("<|im_end|>", allow_special=True) == [1]
    assert tokenizer.vocab_size == VOCAB_SIZE
    assert tokenizer.kinds[-1] is TokenKind.UNUSED
    assert tokenizer.vocabulary[-1] is None
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.eos_ids) == (0, 1, {0, 1})
    prompt = ChatTemplate.of(tokenizer).render([{"role": "user", "content": "hi"}])
    assert prompt == [("hi", False), ("<|im_end|>", True)]


def test_a_folder_in_several_files_is_read(tmp_path: Path) -> None:
    model = write_folder(tmp_path / "one", "Llama")
    expected = ReferenceModel(HfDirectory(tmp_path / "one")).logits(IDS)
    model.save_pretrained(tmp_path / "many", max_shard_size="20kB")
    shutil.copy(tmp_path / "one" / "tokenizer.json", tmp_path / "many")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    folder = HfDirectory(tmp_path / "many")
    np.testing.assert_array_equal(ReferenceModel(folder).logits(IDS), expected)


def test_half_precision_weights_are_read(tmp_path: Path) -> None:
    model = write_folder(tmp_path, "Llama")
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    folder = HfDirectory(tmp_path)
    assert folder.tensor("blk.0.ffn_up.weight").type == "BF16"
    name = "model.layers.0.mlp.up_proj.weight"
    expected = model.state_dict()[name].float().numpy()
    np.testing.assert_array_equal(folder.tensor("blk.0.ffn_up.weight").to_float32(), expected)
    assert ModelConfig.from_gguf(folder).num_layers == 2


def change_config(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model_type": "mamba"}, "'mamba'"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"quantization_config": {"quant_method": "hqq"}}, "'hqq'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    ],
)
def test_what_is_not_run_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    write_folder(tmp_path, "Llama")
    change_config(tmp_path, **changes)
    with pytest.raises(UnsupportedModelError, match=match):
        HfDirectory(tmp_path)


def test_unknown_tensors_and_types_are_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, "Llama")
    weights = tmp_path / "model.safetensors"
    save_file({"model.layers.0.adapter.weight": torch.zeros(2, 2)}, weights)
    with pytest.raises(UnsupportedModelError, match="adapter"):
        HfDirectory(tmp_path)
    save_file({"model.norm.weight": torch.zeros(2, 2, dtype=torch.int8)}, weights)
    with pytest.raises(UnsupportedModelError, match="I8"):
        HfDirectory(tmp_path)


def test_damaged_folders_are_load_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        open_model(tmp_path)
    write_folder(tmp_path, "Llama")
    weights = tmp_path / "model.safetensors"
    data = weights.read_bytes()
    for length in (0, 4, 100, len(data) - 1):
        weights.write_bytes(data[:length])
        with pytest.raises(ModelLoadError, match="safetensors"):
            HfDirectory(tmp_path)
    weights.write_bytes(data[:8] + b"{" * 40 + data[48:])
    with pytest.raises(ModelLoadError, match="header"):
        HfDirectory(tmp_path)
    weights.unlink()
    with pytest.raises(ModelLoadError, match="neither"):
        HfDirectory(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ModelLoadError, match="not a JSON object"):
        HfDirectory(tmp_path)


WRONG = [None, True, -1, 0, 1e308, "x", [1], {"a": 1}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is inside a JSON value; of long lists and objects, in the first few."""
    if path:
        yield path
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in islice(inside, 40 if len(path) < 2 else 4):
            yield from places(each, (*path, key))


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_any_value_in_a_json_file_is_taken_or_is_a_load_error(tmp_path: Path, name: str) -> None:
    rope = {"rope_theta": 5000.0, **LLAMA3_ROPE}
    write_folder(tmp_path, "Llama", "qwen2", rope_parameters=rope)
    sound = json.loads((tmp_path / name).read_text())
    refused = 0
    for place, wrong in product(places(sound), WRONG):
        changed = copy.deepcopy(sound)
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = wrong
        (tmp_path / name).write_text(json.dumps(changed))
        try:
            folder = HfDirectory(tmp_path)
            ModelConfig.from_gguf(folder)
            tokenizer = read_tokenizer(folder)
            if tokenizer.chat_template is not None:
                ChatTemplate.of(tokenizer)
        except ModelLoadError:
            refused += 1
    assert refused or name in ("generation_config.json", "tokenizer_config.json")


def test_an_index_can_not_name_files_elsewhere(tmp_path: Path) -> None:
    write_folder(tmp_path, "Llama")
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "elsewhere.safetensors")
    index = {"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match="outside the folder"):
        HfDirectory(tmp_path)


def test_other_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, "Llama")
    sound = json.loads((tmp_path / "tokenizer.json").read_text())

    def read(**changes: Any) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(sound | changes))
        read_tokenizer(HfDirectory(tmp_path))

    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json.*WordPiece"):
        read(model={"type": "WordPiece", "vocab": {}, "unk_token": "[UNK]"})
    with pytest.raises(UnsupportedModelError, match="BPEDecoder"):
        read(decoder={"type": "BPEDecoder", "suffix": "</w>"})
    with pytest.raises(UnsupportedModelError, match="end_of_word_suffix"):
        read(model=sound["model"] | {"end_of_word_suffix": "</w>"})
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match="no tokenizer"):
        HfDirectory(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\xff\xff")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.model"):
        HfDirectory(tmp_path)


def test_the_fingerprint_distinguishes_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, "Llama")
    first = HfDirectory(tmp_path).fingerprint
    assert HfDirectory(tmp_path).fingerprint == first
    change_config(tmp_path, rms_norm_eps=2e-5)
    assert HfDirectory(tmp_path).fingerprint != first
