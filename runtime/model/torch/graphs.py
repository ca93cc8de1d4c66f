"""Small steps as captured CUDA graphs: one launch a step in place of hundreds.

A graph reads and writes fixed addresses, so each size of step (a power of two of tokens, or a
multiple of 32) has buffers that are filled before a replay (``FixedInputs``). Sizes are captured
when they first come up. Decode steps are what this is for; what the rows of a step are makes no
difference to a graph, so steps that verify drafts or end a prompt with a few tokens take one too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ramet.kernels.attention.costs import AttentionCosts, AttentionShape
from ramet.kernels.attention.plan import AttentionPlan
from ramet.kernels.triton_support.dispatch import next_power_of_2
from ramet.runtime.api.batch import Batch
from ramet.runtime.model.torch.decoder import TorchDecoder
from ramet.runtime.model.torch.step import Capacity, FixedInputs, StepInputs

Capture = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]
"""Records a function: what replays it, and the tensor that each replay fills."""


class CudaCapture:
    """``Capture`` with CUDA graphs that share one memory pool."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(
        self, function: Callable[[], torch.Tensor]
    ) -> tuple[Callable[[], None], torch.Tensor]:
        # Kernels compile and libraries set themselves up on a first run, outside the capture.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = function()
        return graph.replay, result


class StepGraphs:
    """The captured graphs of a decoder, by size.

    Args:
        max_tokens: larger steps are not captured.
        table_width: pages of the longest page table.
        capture: how a function is recorded; None: as a CUDA graph.
    """

    def __init__(
        self,
        decoder: TorchDecoder,
        shape: AttentionShape,
        costs: AttentionCosts,
        max_tokens: int,
        table_width: int,
        *,
        capture: Capture | None = None,
    ) -> None:
        self._decoder = decoder
        self._shape = shape
        self._costs = costs
        self._max_tokens = max_tokens
        self._table_width = table_width
        self._capture = capture or CudaCapture()
        self._graphs: dict[int, tuple[FixedInputs, Callable[[], None], torch.Tensor]] = {}
        self._workspace: tuple[torch.Tensor, torch.Tensor] | None = None

    def run(self, batch: Batch, plan: AttentionPlan) -> torch.Tensor | None:
        """The step's logits, valid until the next step; None: no graph fits it."""
        if not 0 < batch.num_tokens <= self._max_tokens:
            return None
        size = self._size(batch.num_tokens)
        if not self._capacity(size).fits(batch, plan):
            return None
        if size not in self._graphs:
            self._graphs[size] = self._record(size)
        fixed, replay, logits = self._graphs[size]
        fixed.load(batch, plan, self._decoder.pages.shape[4])
        replay()
        if len(batch.logit_tokens) == batch.num_tokens:
            return logits[: batch.num_tokens]
        return logits[torch.from_numpy(batch.logit_tokens).to(logits.device)]

    def _size(self, num_tokens: int) -> int:
        size = next_power_of_2(num_tokens) if num_tokens <= 32 else -(-num_tokens // 32) * 32
        return min(size, self._max_tokens)

    def _capacity(self, num_tokens: int) -> Capacity:
        """Room for the items of any tree of rows, and for the splits that fill the device."""
        shape = self._shape
        splits = -(-self._costs.num_programs // shape.num_kv_heads)
        num_narrow = 2 * num_tokens + splits
        num_wide = num_tokens // shape.narrow_tokens + splits
        return Capacity(
            num_tokens=num_tokens,
            table_width=self._table_width,
            num_narrow=num_narrow,
            num_wide=num_wide,
            # Up to eight levels of the tree a token, and every split's whole tile.
            num_slots=8 * num_tokens + splits * shape.wide_tokens,
        )

    def _record(self, num_tokens: int) -> tuple[FixedInputs, Callable[[], None], torch.Tensor]:
        fixed = FixedInputs(self._capacity(num_tokens), self._decoder.pages.device)
        workspace = self._shared_workspace()
        inputs: StepInputs = fixed.inputs
        replay, logits = self._capture(lambda: self._decoder.forward(inputs, workspace))
        return fixed, replay, logits

    def _shared_workspace(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for the partial results of the largest graph; replays follow one another."""
        if self._workspace is None:
            heads = self._shape.num_kv_heads * self._shape.group_size
            size = (self._capacity(self._max_tokens).num_slots, heads)
            device = self._decoder.pages.device
            self._workspace = (
                torch.empty(*size, self._shape.head_dim, dtype=torch.float32, device=device),
                torch.empty(*size, dtype=torch.float32, device=device),
            )
        return self._workspace
