"""Errors of a GPU: those that end its context, and too little memory for a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ramet.runtime.api.errors import EngineDeadError, ModelLoadError

_OUT_OF_MEMORY_CODE = 2
"""``cudaErrorMemoryAllocation``, ``hipErrorOutOfMemory``: of pinned memory, and of libraries."""


@contextmanager
def end_engine_on_lost_context(synchronize: Callable[[], None] | None) -> Iterator[None]:
    """Turns an error after which the device's context is unusable into EngineDeadError.

    An illegal access, a failed launch or an assertion in a kernel makes every later call of the
    process fail (CUDA Runtime API, "Error Handling": sticky errors), so running rows again can't
    help. Synchronising is such a call: it fails after these errors, and after no other.

    Args:
        synchronize: waits for the device; None: there is no device, and errors pass unchanged.
    """
    try:
        yield
    except EngineDeadError:
        raise
    except Exception as error:
        if synchronize is not None:
            try:
                synchronize()
            except Exception as lost:
                raise EngineDeadError(f"the GPU's context is lost: {_first_line(lost)}") from error
        raise


@contextmanager
def refuse_too_large_model(device: torch.device, kv_bytes: int) -> Iterator[None]:
    """Turns a lack of memory on a device into ModelLoadError; the memory is free afterwards."""
    try:
        yield
        return
    except (torch.OutOfMemoryError, torch.AcceleratorError) as error:
        code = getattr(error, "error_code", None)
        if not isinstance(error, torch.OutOfMemoryError) and code != _OUT_OF_MEMORY_CODE:
            raise
        # The traceback's frames hold the tensors that were made.
        error.__traceback__ = None
    available = ""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        available = f": {free >> 20} of {total >> 20} MiB are free"
    raise ModelLoadError(
        f"{device} has not enough memory for the weights and a cache of {kv_bytes >> 20} MiB"
        f"{available}; ask for a smaller cache, or for weights of fewer bits",
        param="cache_bytes",
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
