"""Model files that say of themselves what can't be: each is a typed error that names the place."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.engine import Engine
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.rotary import inverse_frequencies
from ramet.runtime.tokenizer import ChatTemplate, TokenKind, read_tokenizer

TOKENIZER = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<bos>", *(f"<0x{byte:02X}>" for byte in range(256)), "a", "b", "ab"],
    "tokenizer.ggml.token_type": np.array(
        [TokenKind.CONTROL, *[TokenKind.BYTE] * 256, *[TokenKind.NORMAL] * 3], np.int32
    ),
    "tokenizer.ggml.scores": np.array([0.0] * 257 + [-2.0, -3.0, -1.0], np.float32),
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.add_space_prefix": False,
    "tokenizer.chat_template": "{{ messages[0].content }}",
    "ramet.end_token_ids": [0],
}
BYTE_LEVEL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.pre": "gpt-2",
}
OF_MODEL = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
    *("attention.layer_norm_rms_epsilon", "attention.sliding_window", "rope.dimension_count"),
    *("attention.sliding_window_pattern", "rope.freq_base", "rope.freq_base_swa"),
    *("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "expert_count"),
    *("attention.scale", "attn_logit_softcapping"),
)
KEYS = ("general.architecture", "general.name", *(f"gemma3.{key}" for key in OF_MODEL), *TOKENIZER)

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 3, 2**31, 2**62, 2**64 - 1]),
    st.sampled_from([0.0, -1.0, 1.5, math.nan, math.inf, 1e300]),
    st.sampled_from(["", "x", "1", "linear", "llama"]),
    st.sampled_from([["a", "b"], [], [[1], [2, 3]], [1.5, math.nan], [-1]]),
    st.sampled_from([np.array([1, 2]), np.array([math.nan]), np.array([], np.int32)]),
)


@pytest.fixture(scope="module")
def sound(model_factory: Any) -> ModelFile:
    file: ModelFile = model_factory(architecture="gemma3", window=8)
    file.metadata |= TOKENIZER
    return file


def changed(file: ModelFile, **changes: object) -> ModelFile:
    """The same file with other metadata; ``None`` takes a key away."""
    other = copy.copy(file)
    merged = {**file.metadata, **changes}
    other.metadata = {key: value for key, value in merged.items() if value is not None}
    return other


def read(file: ModelFile) -> None:
    config = ModelConfig.from_gguf(file)
    for kind in config.rope_kinds:
        assert np.isfinite(inverse_frequencies(config.rope, file, kind)).all()
    tokenizer = read_tokenizer(file)
    plain = tokenizer.encode("ab")
    # A vocabulary without a token for the space mark spells a space prefix as that mark's bytes.
    assert tokenizer.decode(plain).removeprefix("▁") == "ab"
    # A file may name any token as its first; an ordinary one has a text.
    assert tokenizer.encode("ab", add_bos=tokenizer.adds_bos)[-len(plain) :] == plain
    if tokenizer.chat_template is not None:
        ChatTemplate.of(tokenizer)


def test_the_sound_file_is_read(sound: ModelFile) -> None:
    read(sound)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(key=st.sampled_from(KEYS), value=anything)
def test_any_value_is_taken_or_is_a_typed_error(sound: ModelFile, key: str, value: Any) -> None:
    with contextlib.suppress(ModelLoadError, UnsupportedModelError):
        read(changed(sound, **{key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gemma3.rope.freq_base", "x"),
        ("gemma3.rope.freq_base", math.nan),
        ("gemma3.rope.freq_base_swa", 0.0),
        ("gemma3.attention.layer_norm_rms_epsilon", -1.0),
        ("gemma3.attention.layer_norm_rms_epsilon", True),
        ("gemma3.block_count", 2**62),
        ("gemma3.block_count", 0),
        ("gemma3.attention.sliding_window_pattern", [[1], [2, 3]]),
        ("gemma3.rope.scaling.factor", math.inf),
        ("general.architecture", 3),
        ("tokenizer.ggml.tokens", 3),
        ("tokenizer.ggml.tokens", np.array([1, 2])),
        ("tokenizer.ggml.token_type", "x"),
        ("tokenizer.ggml.scores", ["a", "b"]),
        ("tokenizer.ggml.scores", np.full(260, np.nan, np.float32)),
        ("tokenizer.ggml.bos_token_id", 260),
        ("tokenizer.ggml.bos_token_id", -1),
        ("tokenizer.ggml.eos_token_id", "x"),
        ("tokenizer.ggml.add_bos_token", np.array([1, 2])),
        ("tokenizer.chat_template", 3),
        ("ramet.end_token_ids", 3),
    ],
)
def test_what_is_wrong_is_named(sound: ModelFile, key: str, value: Any) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read(changed(sound, **{key: value}))
    assert key in str(caught.value) or "layers" in str(caught.value)


def test_layers_that_differ_are_refused_by_name(sound: ModelFile) -> None:
    for key in ("gemma3.attention.head_count_kv", "gemma3.expert_count"):
        with pytest.raises(UnsupportedModelError):
            read(changed(sound, **{key: np.array([2, 1])}))


def test_no_token_is_beyond_the_head(model_factory: Any) -> None:
    file = model_factory(vocab_size=259)
    file.metadata |= TOKENIZER
    runner = CpuRunner(file, num_pages=4, kv_bytes=0, num_threads=1)
    try:
        with pytest.raises(ModelLoadError, match="260 tokens"):
            Engine(runner, read_tokenizer(file))
    finally:
        runner.close()


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(key=st.sampled_from(tuple(BYTE_LEVEL)), value=anything)
def test_so_is_any_value_of_a_byte_level_tokenizer(sound: ModelFile, key: str, value: Any) -> None:
    bare = dict.fromkeys(TOKENIZER)
    read_tokenizer(changed(sound, **{**bare, **BYTE_LEVEL}))
    with contextlib.suppress(ModelLoadError, UnsupportedModelError):
        read_tokenizer(changed(sound, **{**bare, **BYTE_LEVEL, key: value}))
