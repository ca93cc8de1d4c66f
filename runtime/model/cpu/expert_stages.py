"""Stages of a mixture of experts."""

from __future__ import annotations

from ramet.kernels.cpu.program import float_operand
from ramet.kernels.cpu_support import step as words
from ramet.kernels.experts import cpu as experts
from ramet.kernels.experts import cpu_route as routing
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.runtime.model.cpu.buffers import AnyArray, ExpertBuffers, address, stride
from ramet.runtime.model.cpu.emitter import Emitter, Tokens
from ramet.runtime.model.cpu.weights import CpuExperts, CpuNorm, LinearWeight
from ramet.runtime.model.experts import Experts


def emit_experts(
    emitter: Emitter, tokens: Tokens, layer: CpuExperts, post_norm: CpuNorm | None
) -> None:
    """Adds what each token's experts give of its normed row, or the norm of it."""
    config, room = emitter.config.experts, emitter.buffers.experts
    assert config is not None
    assert room is not None
    assert tokens.normed is not None
    emitter.linear(tokens, layer.router, tokens.normed, tokens.normed_q, room.logits)
    pairs = {
        routing.NUM_USED: config.num_used,
        routing.PAIRS: address(room.pairs),
        linear.ROWS: words.NUM_TOKENS,
    }
    operands = pairs | _routing(config, layer, room)
    emitter.emit(tokens, routing.route_rows, operands)
    emitter.emit(tokens, routing.sort_rows, operands)
    _gather(emitter, tokens, room, pairs)
    _gated(emitter, tokens, layer, room)
    _down(emitter, tokens, layer.experts.down, room)
    shared, added = layer.shared, emitter.buffers.added
    if shared is not None:
        emitter.gated(tokens, shared)
        gated = emitter.buffers.gated, emitter.buffers.gated_q
        emitter.linear(tokens, shared.down, *gated, room.shared)
    target = tokens.hidden if post_norm is None or added is None else added
    operands = pairs | {
        routing.SHARES: address(room.shares),
        experts.ROWS_AT: address(room.rows),
        experts.ROWS_STRIDE: stride(room.rows),
        experts.WIDTH: emitter.config.hidden_size,
        experts.ADDED: address(target),
        experts.ADDED_STRIDE: stride(target),
        experts.REPLACES: target is not tokens.hidden,
    }
    if shared is not None:
        operands |= {
            experts.SHARED: address(room.shared),
            experts.SHARED_STRIDE: stride(room.shared),
        }
    if layer.shared_gate is not None:
        operands |= {
            experts.GATE: address(layer.shared_gate),
            experts.GATE_X: address(tokens.normed),
            experts.GATE_STRIDE: stride(tokens.normed),
        }
    emitter.emit(tokens, experts.mix_rows, operands)
    if post_norm is not None and added is not None:
        emitter.add_normed(tokens, added, post_norm)


def _routing(config: Experts, layer: CpuExperts, room: ExpertBuffers) -> dict[int, int]:
    bias = layer.selection_bias
    return {
        routing.LOGITS: address(room.logits),
        routing.LOGITS_STRIDE: stride(room.logits),
        routing.NUM_EXPERTS: config.num,
        routing.SELECTION_BIAS: 0 if bias is None else address(bias),
        routing.SIGMOID: config.score == "sigmoid",
        routing.NORMALISED: config.normalised,
        routing.SHARE_SCALE: float_operand(config.scale),
        routing.NUM_GROUPS: config.num_groups,
        routing.NUM_GROUPS_USED: config.num_groups_used,
        routing.GROUP_TOP: config.group_top,
        routing.CHOSEN: address(room.chosen),
        routing.SHARES: address(room.shares),
        routing.ITEMS: address(room.items),
    }


def _gather(emitter: Emitter, tokens: Tokens, room: ExpertBuffers, pairs: dict[int, int]) -> None:
    """Copies normed rows, as products read them, to where each expert's rows are."""
    copies: list[tuple[AnyArray, AnyArray]] = []
    if room.inputs is not None:
        assert tokens.normed is not None
        copies.append((tokens.normed, room.inputs))
    if emitter.dot_path is not None:
        copies += zip(tokens.normed_q.arrays(), room.inputs_q.arrays(), strict=True)
    operands = dict(pairs)
    for number, (source, target) in enumerate(copies):
        at = experts.COPIES + experts.COPY_WORDS * number
        operands |= {at: address(source), at + 1: address(target), at + 2: stride(source)}
    emitter.emit(tokens, experts.gather_rows, operands)


def _of_one(emitter: Emitter, layer: LinearWeight, operands: dict[int, int]) -> int:
    """Makes an operand of the blocks of all experts that of one's; gives it."""
    assert emitter.config.experts is not None
    operands[linear.NUM_BLOCKS] = layer.weight.num_blocks // emitter.config.experts.num
    return operands[linear.NUM_BLOCKS]


def _gated(emitter: Emitter, tokens: Tokens, layer: CpuExperts, room: ExpertBuffers) -> None:
    gate, up = layer.experts.gate, layer.experts.up
    path, operands = emitter.product(gate, room.inputs, room.inputs_q, words.NUM_TOKENS, other=up)
    num_blocks = _of_one(emitter, gate, operands)
    operands |= {
        linear_fused.UP_WEIGHT: address(up.weight.data),
        linear_fused.UP_BLOCK_BYTES: up.weight.data.shape[1],
        experts.UP_BIAS: 0 if up.bias is None else address(up.bias),
        experts.ALL_ITEMS: address(room.items),
        experts.TASK_BLOCKS: emitter.task_size(num_blocks // 2),
    }
    operands |= emitter.both_forms(room.gated, room.gated_q)
    operation = experts.expert_gated_op(
        emitter.config.gate, gate.weight.form.name, up.weight.form.name, path
    )
    emitter.emit(tokens, operation, operands)


def _down(emitter: Emitter, tokens: Tokens, layer: LinearWeight, room: ExpertBuffers) -> None:
    path, operands = emitter.product(layer, room.gated, room.gated_q, words.NUM_TOKENS)
    num_blocks = _of_one(emitter, layer, operands)
    operands |= {
        linear.Y: address(room.rows),
        linear.Y_STRIDE: stride(room.rows),
        experts.ALL_ITEMS: address(room.items),
        experts.TASK_BLOCKS: emitter.task_size(num_blocks),
    }
    operation = experts.expert_linear_op(layer.weight.form.name, path)
    emitter.emit(tokens, operation, operands)
