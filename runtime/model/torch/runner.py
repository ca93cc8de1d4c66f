"""The torch runner: Triton kernels and captured graphs on a GPU; on a CPU, in float32, the
reference that other runners are compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch

from ramet.kernels.attention.attention import attention_shape
from ramet.kernels.attention.costs import AttentionShape, attention_costs
from ramet.kernels.attention.plan import AttentionPlan, Grouping, build_plan
from ramet.kernels.linear.cpu_quantise import Quantise
from ramet.kernels.sampling.rows import SampleResult
from ramet.kernels.sampling.triton import sample_gpu
from ramet.kernels.triton_support.dispatch import architecture, uses_triton
from ramet.runtime.api.batch import (
    Batch,
    Float32Array,
    Overlap,
    SampledTokens,
    SamplingRows,
    StepResult,
)
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.load import open_model
from ramet.runtime.model.sampler import Sampler
from ramet.runtime.model.torch.decoder import TorchDecoder
from ramet.runtime.model.torch.device_arrays import upload
from ramet.runtime.model.torch.device_errors import (
    end_engine_on_lost_context,
    refuse_too_large_model,
)
from ramet.runtime.model.torch.graphs import StepGraphs
from ramet.runtime.model.torch.pages import copy_pages
from ramet.runtime.model.torch.step import step_inputs
from ramet.runtime.model.torch.weights import TorchWeights, load_torch_weights

DEFAULT_KV_BYTES = 512 * 2**20
FIXED_CHUNK_LEN = 512
"""Keys that a batch-invariant attention takes at a time, before rounding to whole pages."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """Options of the torch runner.

    Attributes:
        device: ``cuda``, ``cuda:1``, ``cpu``; None: a GPU if there is one.
        dtype: of activations, dense weights and pages; None: bfloat16 on a GPU that has it, else
            float16; float32 on a CPU.
        page_size: tokens of a page.
        num_pages: pages of keys and values; None: as many as fit ``kv_bytes``.
        packed_weights: keep weights in 4 and 8 bits as stored; None: on a GPU.
        quantise: what matrices stored as floats become.
        grouping: read pages that rows share once for all of them: where it pays, always or never.
        batch_invariant: a token's logits depend on its tokens alone, bit for bit, on one device;
            costs speed. Not on a CPU, whose products torch's library orders by their size.
        graph_tokens: steps of up to so many tokens replay captured graphs; 0: none. On a GPU only.
    """

    device: str | None = None
    dtype: torch.dtype | None = None
    page_size: int = 16
    num_pages: int | None = None
    kv_bytes: int = DEFAULT_KV_BYTES
    packed_weights: bool | None = None
    quantise: Quantise = "none"
    grouping: Grouping = "auto"
    batch_invariant: bool = False
    graph_tokens: int = 256


class TorchRunner:
    """Runs a decoder of the Llama family with torch (see ``ModelRunner``)."""

    def __init__(
        self, config: ModelConfig, weights: TorchWeights, options: TorchOptions | None = None
    ) -> None:
        options = options or TorchOptions()
        device = weights.final_norm.weight.device
        if (
            options.batch_invariant
            and device.type == "cpu"
            and not uses_triton(weights.final_norm.weight)
        ):
            raise ValueError("batch_invariant needs a GPU")
        self.config = config
        self._options = options
        self._device = device
        size = (config.num_kv_heads, options.page_size, config.head_dim)
        page_bytes = 2 * config.num_layers * int(np.prod(size)) * weights.dtype.itemsize
        self._num_pages = options.num_pages or max(1, options.kv_bytes // page_bytes)
        self._decoder = TorchDecoder(
            config,
            weights,
            torch.zeros(
                config.num_layers, 2, self._num_pages, *size, dtype=weights.dtype, device=device
            ),
            max_position=self.max_context_len,
            batch_invariant=options.batch_invariant,
        )
        self._shape = self._plan_shape(weights.dtype)
        self._costs = attention_costs(architecture(device))
        self._chunk_len = 0
        if options.batch_invariant:
            step = int(np.lcm(options.page_size, self._shape.block_keys))
            self._chunk_len = -(-FIXED_CHUNK_LEN // step) * step
        self._hidden = torch.empty(0, config.hidden_size)
        self._graphs: StepGraphs | None = None
        # Which experts a step uses is known only on the device, so it can't be captured.
        if device.type == "cuda" and options.graph_tokens and config.experts is None:
            table_width = -(-self.max_context_len // options.page_size)
            with self._current_device():
                self._graphs = StepGraphs(
                    self._decoder, self._shape, self._costs, options.graph_tokens, table_width
                )
        self._sampler = Sampler()
        self._synchronize: Callable[[], None] | None = None
        if device.type == "cuda":
            self._synchronize = lambda: torch.cuda.synchronize(device)

    @classmethod
    def load(
        cls, model: ModelFile | str | Path, options: TorchOptions | None = None
    ) -> TorchRunner:
        """A runner for a model, opened or by path.

        ModelLoadError: the file; a device that isn't there, or has too little memory.
        """
        options = options or TorchOptions()
        device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        on_gpu = device.type == "cuda"
        if on_gpu and (device.index or 0) >= torch.cuda.device_count():
            raise ModelLoadError(f"there is no device {device}: {_describe_gpus()}", param="device")
        dtype = options.dtype
        if dtype is None and on_gpu:
            dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        packed = on_gpu if options.packed_weights is None else options.packed_weights
        file = model if isinstance(model, ModelFile) else open_model(model)
        config = ModelConfig.from_gguf(file)
        with refuse_too_large_model(device, options.kv_bytes):
            weights = load_torch_weights(
                file,
                config,
                device=device,
                dtype=dtype or torch.float32,
                packed=packed,
                quantise=options.quantise,
            )
            return cls(config, weights, options)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_context_len(self) -> int:
        return min(self.config.max_context_len, self.num_pages * self.page_size)

    @property
    def page_size(self) -> int:
        return self._options.page_size

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def description(self) -> str:
        device = self._device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU, by torch"
        return f"{self.config.description} on {name}"

    @property
    def exact_in_any_batch(self) -> bool:
        return False

    @property
    def has_hidden_states(self) -> bool:
        return True

    @property
    def page_storage(self) -> None:
        return None

    def run(self, batch: Batch, overlap: Overlap | None = None) -> StepResult:
        """See ``ModelRunner.run``; tokens are sampled where the logits are.

        EngineDeadError: the GPU's context is lost.
        """
        with end_engine_on_lost_context(self._synchronize):
            return self._run(batch, overlap)

    def _run(self, batch: Batch, overlap: Overlap | None) -> StepResult:
        logits = self.run_on_device(batch)
        if overlap is not None:
            overlap()
        if logits.is_cuda:
            with self._current_device():
                sampled = sample_on_device(logits, batch.sampling)
        else:
            sampled = self._sampler.sample(logits.numpy(), batch.sampling)
        if not len(batch.hidden_tokens):
            return StepResult(sampled)
        return StepResult(sampled, self._hidden.float().cpu().numpy())

    def logits(self, batch: Batch) -> Float32Array:
        """A step without sampling. For tests of accuracy."""
        logits: Float32Array = self.run_on_device(batch).cpu().numpy()
        return logits

    def prepare_ahead(self) -> bool:
        return False

    @torch.inference_mode()
    def run_on_device(self, batch: Batch) -> torch.Tensor:
        """The logits on the device: float32 [L, vocab_size], valid until the next step.

        On a GPU the call returns before they are computed."""
        copy_pages(self._decoder.pages, batch.page_copies)
        if batch.num_tokens == 0:
            return torch.empty(0, self.vocab_size, device=self._device)
        plan = self.plan(batch)
        with self._current_device():
            wants_hidden = len(batch.hidden_tokens) > 0
            if self._graphs is not None and not wants_hidden:
                logits = self._graphs.run(batch, plan)
                if logits is not None:
                    return logits
            inputs = step_inputs(batch, plan, self.page_size, self._device)
            if not wants_hidden:
                return self._decoder.forward(inputs)
            x, residual = self._decoder.layers(inputs)
            wanted = torch.from_numpy(batch.hidden_tokens).to(self._device)
            self._hidden = self._decoder.final_norm(x, residual, wanted)
            return self._decoder.head(self._decoder.final_norm(x, residual, inputs.logit_tokens))

    def plan(self, batch: Batch) -> AttentionPlan:
        """The step's attention plan."""
        return build_plan(
            batch.page_tables,
            batch.context_lens,
            batch.row_starts,
            page_size=self.page_size,
            shape=self._shape,
            costs=self._costs,
            grouping=self._options.grouping,
            chunk_len=self._chunk_len,
        )

    def close(self) -> None:
        """Frees graphs and pages; a second call does nothing."""
        self._graphs = None
        self._decoder.pages = self._decoder.pages[:, :, :0].clone()

    def _current_device(self) -> AbstractContextManager[None]:
        """Makes the runner's GPU the calling thread's current one: Triton launches there."""
        if self._device.type == "cuda":
            return torch.cuda.device(self._device)
        return nullcontext()

    def _plan_shape(self, dtype: torch.dtype) -> AttentionShape:
        config = self.config
        shape = attention_shape(
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            dtype,
            architecture(self._device),
        )
        if not uses_triton(self._decoder.pages):
            # The reference's tiles can have any size, and larger ones are fewer calls.
            shape = dataclasses.replace(shape, narrow_tokens=1, wide_tokens=256)
        return shape


@torch.inference_mode()
def sample_on_device(logits: torch.Tensor, rows: SamplingRows) -> SampledTokens:
    """Chooses tokens from logits on a GPU, float32 [L, vocab_size]; spends the logits."""
    arrays = {field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)}
    num_top = max(0, int(rows.num_logprobs.max(initial=0)))
    chosen = sample_gpu(logits, upload(arrays, logits.device), num_top=num_top)
    # Token ids and log-probabilities share one copy back, as 32-bit words.
    words = torch.cat([tensor.view(torch.int32).reshape(-1) for tensor in chosen]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in chosen])
    token_ids, logprobs, top_token_ids, top_logprobs = np.split(words, ends[:-1])
    shape = (rows.num_rows, num_top)
    return SampleResult(
        token_ids,
        logprobs.view(np.float32),
        top_token_ids.reshape(shape),
        top_logprobs.view(np.float32).reshape(shape),
    )


def _describe_gpus() -> str:
    """Describes the GPUs that torch can use, or why there are none."""
    count = torch.cuda.device_count()
    if count:
        return f"there are {', '.join(f'cuda:{index}' for index in range(count))}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is a build for CPUs"
    return f"torch {torch.__version__} finds no GPU, or no driver for one"
