"""Resolves a user's name for a backend, and the default backend."""

from __future__ import annotations

from typing import Any

from ramet.lang.backends.base import Backend
from ramet.lang.base.errors import UsageError

BackendLike = Any
"""A Backend, or a ``ramet.runtime`` Engine."""

_default: list[Backend] = []  # at most one


def as_backend(value: BackendLike) -> Backend:
    """A backend of a Backend or an Engine.

    Raises:
        UsageError: neither.
    """
    if isinstance(value, type):
        raise UsageError(f"not a backend but a class: {value.__name__}; make one of it")
    if isinstance(value, Backend):
        return value
    if hasattr(value, "submit") and hasattr(value, "tokenizer"):
        from ramet.lang.backends.engine import EngineBackend

        backend: Backend = EngineBackend(value)
        return backend
    if isinstance(value, str):
        raise UsageError(
            f"{value!r} is a text, not a backend: use connect({value!r}) for a server, or "
            f"Engine.from_model({value!r}) for a model"
        )
    raise UsageError(f"not a backend: {value!r}")


def set_default_backend(backend: BackendLike | None) -> None:
    """Sets the backend of this process's runs that name none; None: such runs are refused.

    It is a convenience for scripts and notebooks; libraries pass ``backend``.
    """
    _default[:] = [] if backend is None else [as_backend(backend)]


def default_backend() -> Backend:
    """The default backend.

    Raises:
        UsageError: there is none.
    """
    if not _default:
        raise UsageError(
            "no backend: pass backend=..., or call set_default_backend(...): an Engine, "
            "connect('http://...'), or a ScriptedBackend"
        )
    return _default[0]
