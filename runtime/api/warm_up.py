"""What a first start compiles: an installation's machine code, once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ramet.jit import compile_beside, is_compiled, load
from ramet.runtime.api.errors import EngineDeadError

logger = logging.getLogger("ramet.engine")

_STEPS = (
    "ramet.kernels.sampling.cpu",
    "ramet.kernels.cpu.ops.attention",
    "ramet.kernels.cpu.program",
    "ramet.kernels.cpu.batch",
)
"""What every step on a CPU needs, beside the operations of its model's program."""

_CONSTRAINTS = (
    "ramet.grammars.masks.walk",
    "ramet.grammars.pushdown.transitions",
    "ramet.grammars.regular",
    "ramet.kernels.sampling.cpu_mask",
    "ramet.grammars",
)
"""What requests with a constraint need; what takes longest comes first, so that processes which
share the compiling end together."""

_LOOK_S = 0.05


def is_first_start() -> bool:
    """Whether anything is to be compiled that doesn't depend on the model."""
    return not is_compiled(*_STEPS, *_CONSTRAINTS)


def begin_compiling() -> None:
    """Has another process compile what isn't on disk, if anything isn't, and tells so.

    It begins with what steps need, so an engine that compiles its model's own operations meanwhile
    is ready when both have got through that; it ends with what constraints need.
    """
    if not is_first_start():
        return
    logger.warning("compiling kernels, once an installation: later starts take a few seconds")
    process = compile_beside(*_STEPS, *_CONSTRAINTS)
    if process is not None:
        threading.Thread(target=process.wait, name="ramet-compiling", daemon=True).start()


def load_steps() -> None:
    """Loads what every step needs, beside its model's own operations."""
    load(*_STEPS)


def are_constraints_ready() -> bool:
    """Whether constraints wait for no compiler."""
    return is_compiled(*_CONSTRAINTS)


def load_constraints(is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Loads all that compiles constraints and makes masks, so that no step ever waits for it.

    What isn't on disk is compiled in another process, since this one has steps to make; it is
    ended, with an EngineDeadError, once that is not wanted any more.
    """
    if not are_constraints_ready():
        process = compile_beside(*_CONSTRAINTS)
        while process is not None and process.poll() is None:
            if not is_wanted():
                process.terminate()
                process.wait()
                raise EngineDeadError("the engine has been closed")
            time.sleep(_LOOK_S)
    load(*_CONSTRAINTS)
