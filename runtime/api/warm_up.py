"""Warm-up: JIT compilation at an installation's first start, and loading at later ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ramet.jit import compile_in_background, compiled_of, is_compiled, load
from ramet.runtime.api.errors import EngineDeadError, RametError

logger = logging.getLogger("ramet.engine")

_STEPS = (
    "ramet.kernels.sampling.cpu",
    "ramet.kernels.attention.cpu",
    "ramet.kernels.cpu.program",
    "ramet.kernels.cpu.batch",
)
"""Modules that every step on a CPU needs, in addition to its model's operations."""

_CONSTRAINTS = (
    "ramet.grammars.masks.fill",
    "ramet.grammars.pushdown.transitions",
    "ramet.grammars.regular",
    "ramet.kernels.sampling.cpu_mask",
    "ramet.grammars",
)
"""Modules that constraints need; the slowest come first, so that processes which share the
compilation finish together."""

_LOOK_S = 0.05

_REPORT_S = 0.25


def is_first_start() -> bool:
    """Whether code that doesn't depend on the model is yet to be compiled."""
    return not is_compiled(*_STEPS, *_CONSTRAINTS)


def begin_compiling() -> None:
    """Compiles in another process what isn't on disk, and logs a warning that it does.

    Code for steps comes first, while the engine compiles its model's own operations; code for
    constraints comes last.
    """
    if not is_first_start():
        return
    logger.warning("compiling kernels for this installation, once: later starts take seconds")
    process = compile_in_background(*_STEPS, *_CONSTRAINTS)
    if process is not None:
        threading.Thread(target=process.wait, name="ramet-compiling", daemon=True).start()


def compile_ahead(report: Callable[[int, int], None], *, num_processes: int = 2) -> None:
    """Compiles all code that doesn't depend on the model, in processes that share the work.

    ``report`` is called with how much is done, and of how much, until all is.

    Raises:
        RametError: no folder takes the files, or a process failed.
    """
    names = (*_STEPS, *_CONSTRAINTS)
    code = list(compiled_of(*names))
    left = [each for each in code if not each.is_compiled]
    started = [compile_in_background(*names) for _ in range(num_processes if left else 0)]
    processes = [process for process in started if process is not None]
    try:
        while any(process.poll() is None for process in processes):
            report(len(code) - len(left), len(code))
            time.sleep(_REPORT_S)
            left = [each for each in left if not each.is_compiled]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    left = [each for each in left if not each.is_compiled]
    report(len(code) - len(left), len(code))
    if left:
        raise RametError(
            f"{len(left)} of {len(code)} functions can't be compiled ahead: is the folder for "
            "compiled code writable? `ramet info` names it"
        )


def load_steps() -> None:
    """Loads what every step needs, except its model's own operations."""
    load(*_STEPS)


def are_constraints_ready() -> bool:
    """Whether all code for constraints is compiled."""
    return is_compiled(*_CONSTRAINTS)


def load_constraints(is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Loads the code that compiles constraints and fills masks, so that no step waits for it.

    What isn't on disk is compiled in another process, as this one runs steps; EngineDeadError, and
    that process is ended, once ``is_wanted`` is false.
    """
    if not are_constraints_ready():
        process = compile_in_background(*_CONSTRAINTS)
        while process is not None and process.poll() is None:
            if not is_wanted():
                process.terminate()
                process.wait()
                raise EngineDeadError("the engine has been closed")
            time.sleep(_LOOK_S)
    load(*_CONSTRAINTS)
