"""Mixtures of experts: how many there are, and how tokens are sent to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import ModelFile

Score = Literal["softmax", "sigmoid"]
_SCORES: dict[int, Score] = {1: "softmax", 2: "sigmoid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The feed-forward layers of which each token uses some (Shazeer et al. 2017).

    Attributes:
        num, num_used: of a layer; of a token.
        ffn_size: of each.
        score: what makes scores of the router's logits.
        normalised: the weights of a token's experts are divided by their sum.
        scale: weights are multiplied by it.
        num_groups, num_groups_used: experts are chosen from the best of so many groups of
            neighbours (DeepSeek V2, 2024); 1: from all.
        group_top: a group's score is the sum of so many of its best.
        biases: experts' layers and the router have biases.
        selection_bias: experts are chosen by scores plus a bias, which their weights don't have
            (DeepSeek V3, 2024).
        shared_size: the size of what every token uses in addition; 0: there is none.
        shared_gate: its result is multiplied by the sigmoid of a product with the input.
        first_dense: so many layers have one plain feed-forward layer instead.
    """

    num: int
    num_used: int
    ffn_size: int
    score: Score = "softmax"
    normalised: bool = True
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    group_top: int = 1
    biases: bool = False
    selection_bias: bool = False
    shared_size: int = 0
    shared_gate: bool = False
    first_dense: int = 0

    def tensor_shapes(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """The shapes of a layer's tensors, by their names behind ``blk.<layer>.``."""
        num, size = self.num, self.ffn_size
        shapes: dict[str, tuple[int, ...]] = {
            "ffn_gate_inp.weight": (num, hidden),
            "ffn_gate_exps.weight": (num, size, hidden),
            "ffn_up_exps.weight": (num, size, hidden),
            "ffn_down_exps.weight": (num, hidden, size),
        }
        if self.biases:
            shapes |= {
                "ffn_gate_inp.bias": (num,),
                "ffn_gate_exps.bias": (num, size),
                "ffn_up_exps.bias": (num, size),
                "ffn_down_exps.bias": (num, hidden),
            }
        if self.selection_bias:
            shapes["exp_probs_b.bias"] = (num,)
        if self.shared_size:
            shapes |= {
                "ffn_gate_shexp.weight": (self.shared_size, hidden),
                "ffn_up_shexp.weight": (self.shared_size, hidden),
                "ffn_down_shexp.weight": (hidden, self.shared_size),
            }
        if self.shared_gate:
            shapes["ffn_gate_inp_shexp.weight"] = (hidden,)
        return shapes


def read_experts(file: ModelFile, prefix: str, *, normalised: bool | None) -> Experts | None:
    """The mixture of experts in a model's metadata under ``prefix``; None if it has none.

    Args:
        normalised: of an architecture whose files don't say it; None: it has no experts.

    Raises ``UnsupportedModelError`` for experts where the architecture has none,
    ``ModelLoadError`` for numbers that don't fit together.
    """
    if isinstance(file.metadata.get(prefix + "expert_count"), np.ndarray):
        raise UnsupportedModelError(f"{file.path}: {prefix}expert_count differs between layers")
    num = file.integer(prefix + "expert_count", 0)
    if not num:
        return None
    if normalised is None:
        raise UnsupportedModelError(
            f"{file.path}: a mixture of experts is not supported in {prefix.rstrip('.')!r}"
        )
    size_key = prefix + "expert_feed_forward_length"
    if size_key not in file.metadata:
        size_key = prefix + "feed_forward_length"
    size = file.integer(size_key)
    shared = file.integer(prefix + "expert_shared_feed_forward_length", 0)
    shared = shared or size * file.integer(prefix + "expert_shared_count", 0)
    selection_bias = any(name.endswith(".exp_probs_b.bias") for name in file.tensors)
    kind = file.integer(prefix + "expert_gating_func", 0) or (2 if selection_bias else 1)
    if kind not in _SCORES:
        raise UnsupportedModelError(f"{file.path}: expert_gating_func {kind} is not supported")
    experts = Experts(
        num=num,
        num_used=file.integer(prefix + "expert_used_count"),
        ffn_size=size,
        score=_SCORES[kind],
        normalised=file.flag(prefix + "expert_weights_norm", normalised),
        scale=file.number(prefix + "expert_weights_scale", 1.0),
        num_groups=file.integer(prefix + "expert_group_count", 1) or 1,
        num_groups_used=file.integer(prefix + "expert_group_used_count", 1) or 1,
        group_top=2 if _SCORES[kind] == "sigmoid" else 1,
        biases=any(name.endswith(".ffn_gate_exps.bias") for name in file.tensors),
        selection_bias=selection_bias,
        shared_size=shared,
        shared_gate=any(name.endswith(".ffn_gate_inp_shexp.weight") for name in file.tensors),
        first_dense=file.integer(prefix + "leading_dense_block_count", 0),
    )
    group_size, rest = divmod(num, experts.num_groups)
    if (
        rest
        or not 1 <= experts.num_groups_used <= experts.num_groups
        or group_size < (experts.group_top if experts.num_groups > 1 else 1)
        or not 1 <= experts.num_used <= group_size * experts.num_groups_used
        or size < 1
    ):
        raise ModelLoadError(f"{file.path}: the numbers of experts don't fit together: {experts}")
    return experts
