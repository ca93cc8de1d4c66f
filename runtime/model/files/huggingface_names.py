"""The names that GGUF files have for a folder's tensors."""

from __future__ import annotations

import re

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{
        f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp"
        for shared in ("shared_expert", "shared_experts")
        for part in ("gate", "up", "down")
    },
}
_WITH_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WHOLE = {
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.transposed",
    "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.pairs",
    "mlp.experts.gate_up_proj_blocks": "ffn_gate_up_exps.blocks",
    "mlp.experts.gate_up_proj_scales": "ffn_gate_up_exps.scales",
    "mlp.experts.down_proj": "ffn_down_exps.transposed",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "mlp.experts.down_proj_blocks": "ffn_down_exps.blocks",
    "mlp.experts.down_proj_scales": "ffn_down_exps.scales",
}
"""Names without a kind. What isn't a tensor of GGUF becomes some in ``fused``."""
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight")
_EXPERT_PARTS = {
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
}
_HEAD_NORM = re.compile(r"self_attn\.([qk])_layernorm\.norms\.(\d+)\.weight")
_OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}
_COMPUTED = ("self_attn.rotary_emb.inv_freq",)


class UnknownName(Exception):
    """A tensor that no model that Ramet runs has."""


def gguf_name(name: str, *, num_layers: int, post_norms: bool) -> tuple[str, int | None] | None:
    """A tensor's name in GGUF, and which part of that it is, where folders store several.

    Returns None for what the forward pass computes itself, and for layers behind the last, which
    only drafts use. Raises ``UnknownName``.
    """
    if name in _OUTSIDE:
        return _OUTSIDE[name], None
    number, _, rest = name.removeprefix("model.layers.").partition(".")
    if not name.startswith("model.layers.") or not number.isdecimal():
        raise UnknownName(name)
    if rest in _COMPUTED or int(number) >= num_layers:
        return None
    block = f"blk.{number}."
    if rest in _WHOLE:
        return block + _WHOLE[rest], None
    if (match := _EXPERT.fullmatch(rest)) and match[2] in _EXPERT_PARTS:
        return f"{block}ffn_{_EXPERT_PARTS[match[2]]}_exps.weight", int(match[1])
    if match := _HEAD_NORM.fullmatch(rest):
        return f"{block}attn_{match[1]}_norm.weight", int(match[2])
    part, _, kind = rest.rpartition(".")
    known = _LAYER | (_WITH_POST_NORMS if post_norms else {})
    if part not in known or kind not in ("weight", "bias"):
        raise UnknownName(name)
    return f"{block}{known[part]}.{kind}", None
