"""Loads the parts of an engine: the model's runner, its tokenizer and its chat template."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ramet.runtime.api.batch import ModelRunner
from ramet.runtime.engine.chat_templates import configured_template
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.memory_plan import DEFAULT_CACHE_BYTES, MemoryPlan, plan_memory
from ramet.runtime.engine.sampling_defaults import SamplingDefaults, sampling_defaults
from ramet.runtime.model.load import open_model
from ramet.runtime.model.memory_needs import memory_needs
from ramet.runtime.model.runners import chosen_device, load_runner
from ramet.runtime.model.storage import choose_storage
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

if TYPE_CHECKING:
    from ramet.runtime.tokenizer import ChatTemplate

_DRAFT_LEN = 16
"""Most draft tokens a sequence; a step's cost usually sets a lower limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to run, and the configuration with what it decides.

    Attributes:
        fingerprint: identifies the model's file.
        memory: how the machine's memory is divided.
        sampling_defaults: what the model's makers recommend.
    """

    runner: ModelRunner
    tokenizer: Tokenizer
    config: EngineConfig
    name: str
    chat_template: ChatTemplate | None
    fingerprint: str
    memory: MemoryPlan
    sampling_defaults: SamplingDefaults


def load_model(model: str | Path, config: EngineConfig) -> LoadedModel:
    """Loads a model's short name, GGUF file or folder, on ``config.device``.

    Raises:
        ModelLoadError: what is wrong with the model, or which names there are.
    """
    file = open_model(model)
    device = chosen_device(config.device)
    on_gpu = device != "cpu"
    storage = choose_storage(
        file, on_gpu=on_gpu, quantize=config.quantize, kv_dtype=config.kv_dtype
    )
    needs = memory_needs(file, page_size=config.page_size, on_gpu=on_gpu, storage=storage)
    memory = plan_memory(config, needs)
    runner = load_runner(
        file,
        device=device,
        num_pages=config.num_pages,
        page_size=config.page_size,
        kv_bytes=memory.kv or config.cache_bytes or DEFAULT_CACHE_BYTES,
        num_threads=config.num_threads,
        cpu_path=config.cpu_path,
        storage=storage,
    )
    if config.max_draft_len is None and runner.exact_in_any_batch:
        config = dataclasses.replace(config, max_draft_len=_DRAFT_LEN)
    try:
        tokenizer = read_tokenizer(file)
        chat_template = configured_template(config, tokenizer)
    except BaseException:
        runner.close()
        raise
    return LoadedModel(
        runner=runner,
        tokenizer=tokenizer,
        config=config,
        name=Path(model).stem,
        chat_template=chat_template,
        fingerprint=file.fingerprint,
        memory=memory,
        sampling_defaults=sampling_defaults(file.metadata, config.generation_config),
    )
