"""Settings of an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.names import unknown_argument
from ramet.runtime.api.settings import Group, setting
from ramet.runtime.scheduler.queue.config import SchedulerConfig

_MAX_THREADS = 1024
"""Far more than any machine has; more threads would slow it down."""

_MIN_CONTEXT_LEN = 16
"""Tokens of the shortest useful request; the engine's own warm-up request is no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(SchedulerConfig):
    """Settings of a scheduler and of the engine around it."""

    device: str = setting(
        "auto", Group.BASIC, "Device: auto, cpu, cuda or cuda:1.", metavar="DEVICE"
    )
    chat_template: str | None = setting(
        None, Group.CHAT, "File of a Jinja template, in place of the model's.", metavar="FILE"
    )
    page_size: int = setting(16, Group.ENGINE, "Tokens of a KV cache page.", least=1)
    num_pages: int | None = setting(
        None, None, "Pages of the KV cache; None: the number that cache_bytes hold.", least=1
    )
    # See ``memory_plan.plan_memory``.
    memory_gib: float | None = setting(
        None,
        Group.CAPACITY,
        "Memory of the whole server; default: the machine's.",
        metavar="GIB",
        above=0,
    )
    # The memory is taken when it is first used or, up to 128 MiB, while a CPU's engine is idle.
    cache_bytes: int | None = setting(
        None,
        Group.CAPACITY,
        "Memory of the KV cache, in MiB; default: 384 or more.",
        option="cache_mib",
        unit=1 << 20,
        least=1,
    )
    max_context_len: int | None = setting(
        None, Group.CAPACITY, "Most tokens of a request; default: the model's.", least=1
    )
    num_threads: int | None = setting(
        None,
        Group.BASIC,
        "Compute threads; default: one per core.",
        option="threads",
        least=1,
        most=_MAX_THREADS,
    )
    cpu_path: str = setting(
        "auto",
        Group.ENGINE,
        "Integer dot product on a CPU; `ramet info` lists them.",
        metavar="NAME",
    )
    quantize: str = setting(
        "auto",
        Group.ENGINE,
        "Weights stored as floats: int8, int4, or none: as stored; auto: int8 on a CPU.",
        metavar="BITS",
        choices=("auto", "int8", "int4", "none"),
    )
    kv_dtype: str = setting(
        "auto",
        Group.ENGINE,
        "Keys and values: bf16, int8 or fp8; auto: bf16.",
        metavar="TYPE",
        choices=("auto", "bf16", "int8", "fp8"),
    )
    # Of several threads, one is reserved for large constraints. With one alone, a constraint that
    # takes seconds keeps all others waiting.
    grammar_threads: int = setting(2, Group.ENGINE, "Threads that compile constraints.", least=1)
    grammar_bytes: int | None = setting(
        None,
        Group.ENGINE,
        "Memory for compiled constraints, in MiB; default: 256.",
        option="grammar_mib",
        unit=1 << 20,
        least=1,
    )
    regular_backend: str = setting(
        "native",
        Group.ENGINE,
        "Token masks of regexes and choices: native, or outlines-core (an extra package).",
        metavar="NAME",
        choices=("native", "outlines-core"),
    )
    grammar_cache: str | None = setting(
        None,
        Group.ENGINE,
        "Folder that keeps compiled automata across restarts.",
        metavar="FOLDER",
    )
    generation_config: str = setting(
        "auto",
        Group.ENGINE,
        "Sampling defaults of calls: auto, as the model recommends, or none.",
        metavar="WHICH",
        choices=("auto", "none"),
    )
    prefix_store: str | None = setting(
        None,
        Group.CAPACITY,
        "Folder that keeps hot prefixes across restarts.",
        metavar="FOLDER",
    )
    prefix_store_bytes: int = setting(
        128 << 20,
        Group.ENGINE,
        "Most disk space of the prefix store, in MiB.",
        option="prefix_store_mib",
        unit=1 << 20,
        least=0,
    )
    # An engine in a process of its own is killed and started again; loading a model and compiling
    # kernels don't count. Half of this time is enough for a step's stacks to be logged.
    engine_timeout_s: float = setting(
        30.0,
        Group.ENGINE,
        "Longest time of a step; then the engine is restarted.",
        option="engine_timeout",
        metavar="SECONDS",
        above=0,
    )
    record_trace: str | None = setting(
        None,
        Group.ENGINE,
        "Record prefix accesses for cache replay; contains no text.",
        metavar="FILE",
    )
    seed: int | None = setting(None, Group.ENGINE, "Seed of requests that have none of their own.")

    def __post_init__(self) -> None:
        SchedulerConfig.__post_init__(self)  # super() does not know a class with slots
        if self.regular_backend == "outlines-core" and find_spec("outlines_core") is None:
            raise InvalidParameterError(
                "regular_backend outlines-core needs the package outlines-core, which isn't"
                " installed: pip install 'ramet[outlines]'",
                param="regular_backend",
            )
        capacity = None if self.num_pages is None else self.num_pages * self.page_size
        for name, size in (("max_context_len", self.max_context_len), ("num_pages", capacity)):
            if size is not None and size < _MIN_CONTEXT_LEN:
                raise InvalidParameterError(
                    f"{name} must be enough for {_MIN_CONTEXT_LEN} tokens, not {size}", param=name
                )


def changed(config: EngineConfig, function: str, settings: Mapping[str, Any]) -> EngineConfig:
    """The configuration with the arguments that a function takes as settings.

    Raises:
        UnknownArgumentError: no such setting.
    """
    known = [field.name for field in dataclasses.fields(config)]
    for name in settings:
        if name not in known:
            raise unknown_argument(function, name, ["model", "config", *known])
    return dataclasses.replace(config, **settings)
