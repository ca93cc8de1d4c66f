"""An engine in a process of its own, so that no other Python work ever slows a step."""

from ramet.runtime.process.client import EngineProcess

__all__ = ["EngineProcess"]
