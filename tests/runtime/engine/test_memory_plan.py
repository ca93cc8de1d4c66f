"""A server's memory is divided into parts that fit together, or the start is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.api.errors import ConfigurationError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.engine.memory_plan import DEFAULT_CACHE_BYTES, plan_memory
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.load import open_model
from ramet.runtime.model.memory_needs import ModelNeeds, memory_needs

MIB = 1 << 20
NEEDS = ModelNeeds(weight_bytes=100 * MIB, page_bytes=MIB, context_len=1024)


@given(
    st.floats(0.01, 64),
    st.none() | st.integers(1, 1 << 36),
    st.none() | st.integers(1, 1 << 34),
    st.integers(0, 1 << 36),
    st.integers(1, 1 << 26),
)
def test_parts_fit_into_the_whole_or_are_refused(
    gib: float, cache: int | None, grammars: int | None, weights: int, page: int
) -> None:
    config = EngineConfig(memory_gib=gib, cache_bytes=cache, grammar_bytes=grammars)
    needs = ModelNeeds(weight_bytes=weights, page_bytes=page, context_len=1024)
    try:
        plan = plan_memory(config, needs)
    except ConfigurationError:
        return
    assert sum(plan.parts().values()) <= plan.total == int(gib * (1 << 30))
    assert plan.kv == cache or (cache is None and plan.kv >= page)
    assert plan.grammars == (grammars or plan.grammars)


def test_the_cache_has_a_default_size_or_what_is_left_of_a_set_one() -> None:
    assert plan_memory(EngineConfig(), NEEDS).kv == DEFAULT_CACHE_BYTES
    plan = plan_memory(EngineConfig(memory_gib=4), NEEDS)
    assert plan.kv == plan.total - sum(size for name, size in plan.parts().items() if name != "kv")
    assert plan_memory(EngineConfig(memory_gib=4, cache_bytes=64 * MIB), NEEDS).kv == 64 * MIB
    assert plan_memory(EngineConfig(memory_gib=4, num_pages=7), NEEDS).kv == 7 * MIB


def test_too_little_memory_is_refused_with_numbers_and_what_to_change() -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan_memory(EngineConfig(memory_gib=0.5), NEEDS)
    for part in ("512 MiB", "--memory-gib", "weights 100 MiB", "processes 384 MiB", "needs 16 MiB"):
        assert part in refused.value.message
    with pytest.raises(ConfigurationError, match="--cache-mib"):
        plan_memory(EngineConfig(memory_gib=2, cache_bytes=4096 * MIB), NEEDS)


@pytest.mark.parametrize(
    ("config", "warning"),
    [
        (EngineConfig(), ""),
        (EngineConfig(cache_bytes=MIB), "holds 16 tokens, so .* instead of 1024; --cache-mib 64 "),
        (EngineConfig(max_context_len=999_999), "999999 is more than the model's 1024 tokens"),
        (EngineConfig(max_context_len=512, cache_bytes=32 * MIB), ""),
    ],
)
def test_a_clipped_context_is_a_warning(config: EngineConfig, warning: str) -> None:
    warnings = plan_memory(config, NEEDS).warnings
    assert len(warnings) == bool(warning)
    if warning:
        assert re.search(warning, warnings[0])


@pytest.mark.model
def test_the_weights_of_the_bundled_model_are_as_large_as_planned() -> None:
    from ramet.kernels.linear.cpu_weights import PackedWeight
    from ramet.runtime.model.config import ModelConfig
    from ramet.runtime.model.cpu.load_weights import load_cpu_weights
    from ramet.runtime.model.cpu.weights import CpuAttention, CpuFeedForward

    file = open_model(locate_model("smollm2"))
    needs = memory_needs(file, page_size=16, on_gpu=False)
    weights = load_cpu_weights(file, ModelConfig.from_gguf(file), exact=False, middles=True)
    packed: list[PackedWeight] = [weights.embedding]
    for layer in weights.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        assert isinstance(attention, CpuAttention)
        assert isinstance(feed_forward, CpuFeedForward)
        linear = (attention.query, attention.key, attention.value, attention.output)
        linear += (feed_forward.gate, feed_forward.up, feed_forward.down)
        packed += [each.weight for each in linear]
    stored = sum(each.data.nbytes for each in packed)
    assert stored <= needs.weight_bytes < 1.01 * stored


@pytest.mark.model
def test_a_model_without_enough_memory_is_not_loaded() -> None:
    with pytest.raises(ConfigurationError, match="not enough memory: of 256 MiB"):
        Engine.from_model("smollm2", EngineConfig(memory_gib=0.25))
