"""Multi-head latent attention (DeepSeek V2, 2024): keys and values made of a short vector."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Sizes of multi-head latent attention.

    A head's query and key have ``plain_dim`` values without rotation and then, in files,
    ``rope_dim`` rotated ones; those of keys are the same for all heads.

    Attributes:
        rank: of the vector that keys and values are made of.
        query_rank: of the one that queries are made of; 0: they are made of the input.
        plain_dim, rope_dim, value_dim: values a head.
    """

    rank: int
    query_rank: int
    plain_dim: int
    rope_dim: int
    value_dim: int

    @property
    def head_dim(self) -> int:
        """Values of a head's query and key."""
        return self.plain_dim + self.rope_dim

    def tensor_shapes(self, hidden: int, num_heads: int) -> dict[str, tuple[int, ...]]:
        """The shapes of a layer's tensors, by their names behind ``blk.<layer>.``."""
        q_size = num_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "attn_kv_a_mqa.weight": (self.rank + self.rope_dim, hidden),
            "attn_kv_a_norm.weight": (self.rank,),
            "attn_kv_b.weight": (num_heads * (self.plain_dim + self.value_dim), self.rank),
            "attn_output.weight": (hidden, num_heads * self.value_dim),
        }
        if not self.query_rank:
            return shapes | {"attn_q.weight": (q_size, hidden)}
        return shapes | {
            "attn_q_a.weight": (self.query_rank, hidden),
            "attn_q_a_norm.weight": (self.query_rank,),
            "attn_q_b.weight": (q_size, self.query_rank),
        }


def read_latent(file: ModelFile, prefix: str) -> Latent:
    """The sizes in a model's metadata under ``prefix``.

    Raises ``ModelLoadError`` for sizes that don't fit together.
    """

    def integer(key: str) -> int:
        own = f"{prefix}attention.{key}_mla"  # where ``key`` is the size of what is cached
        return file.integer(own if own in file.metadata else f"{prefix}attention.{key}")

    head_dim, rope_dim = integer("key_length"), file.integer(prefix + "rope.dimension_count")
    latent = Latent(
        rank=file.integer(prefix + "attention.kv_lora_rank"),
        query_rank=file.integer(prefix + "attention.q_lora_rank", 0),
        plain_dim=head_dim - rope_dim,
        rope_dim=rope_dim,
        value_dim=integer("value_length"),
    )
    if min(latent.rank, latent.plain_dim, latent.value_dim) < 1 or latent.value_dim > head_dim:
        raise ModelLoadError(f"{file.path}: the sizes of latent attention don't fit: {latent}")
    return latent
