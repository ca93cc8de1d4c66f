"""A model's needs of host memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.storage import Storage, tensor_quantise


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeeds:
    """A model's needs of host memory; sizes are 0 where a GPU holds it.

    Attributes:
        weight_bytes: its weights, as they are kept.
        page_bytes: one page of the KV cache.
        context_len: the most tokens of a sequence that the model was made for.
    """

    weight_bytes: int = 0
    page_bytes: int = 0
    context_len: int = 0


def memory_needs(
    file: ModelFile, *, page_size: int, on_gpu: bool, storage: Storage | None = None
) -> ModelNeeds:
    """The needs of a model that the compiled runner serves, or one on a GPU.

    Raises:
        UnsupportedModelError, ModelLoadError: as when the model is loaded.
    """
    from ramet.runtime.model.config import ModelConfig

    config = ModelConfig.from_gguf(file)
    if on_gpu:
        return ModelNeeds(context_len=config.max_context_len)
    from ramet.kernels.linear.cpu_weights import packed_bytes
    from ramet.runtime.model.cpu.pages import KvPages

    storage = storage or Storage()
    weight_bytes = sum(
        packed_bytes(
            tensor.type,
            (tensor.num_rows, tensor.shape[-1]),
            tensor_quantise(name, storage.quantise),
        )
        if len(tensor.shape) >= 2
        else 4 * math.prod(tensor.shape)
        for name, tensor in file.tensors.items()
    )
    return ModelNeeds(
        weight_bytes=weight_bytes,
        page_bytes=KvPages.page_bytes(config, page_size, storage.kv_dtype),
        context_len=config.max_context_len,
    )
