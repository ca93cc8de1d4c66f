"""Measured costs of attention by kind of device, and the shapes that they depend on."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.kernels.triton_support.dispatch import data, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCosts:
    """The cost of an item on one kind of device, in seconds of the whole device.

    For each key/value head, a tile of t tokens sees n keys in ``n * max(key_bytes * per_byte,
    4 * head_dim * queries * per_flop)``, where ``queries`` is t times the query heads per
    key/value head, rounded up to the matrix unit's 16; an item more costs ``per_item``; a partial
    result more is written and read once, in float32.

    Attributes:
        per_byte: the reciprocal of the memory bandwidth that attention reaches.
        per_flop: the reciprocal of the matrix throughput that attention reaches.
        per_item: scheduling an item, divided by how many run at once.
        num_programs: how many items fill the device; long items are split until so many exist.
    """

    per_byte: float
    per_flop: float
    per_item: float
    num_programs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The shapes of the model and of the kernel's tiles that a plan depends on.

    Attributes:
        num_kv_heads, head_dim: of the pages; ``group_size`` query heads share a key/value head.
        element_bytes: of one stored key or value component.
        narrow_tokens, wide_tokens: most tokens of an item in the kernel's two tile sizes.
        block_keys: keys that the kernel takes at a time; splits fall on its multiples.
    """

    num_kv_heads: int
    group_size: int
    head_dim: int
    element_bytes: int = 2
    narrow_tokens: int
    wide_tokens: int
    block_keys: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.narrow_tokens <= self.wide_tokens:
            raise ValueError("tiles must hold at least one token, the wide no less than the narrow")


def attention_costs(arch: str) -> AttentionCosts:
    """The cost coefficients of an architecture, from ``data/attention_costs.json``."""
    return AttentionCosts(**nearest(data("attention_costs.json"), arch)["costs"])
