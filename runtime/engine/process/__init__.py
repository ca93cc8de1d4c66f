"""An engine in a process of its own, so that no other Python work slows a step."""

from ramet.runtime.engine.process.client import EngineProcess

__all__ = ["EngineProcess"]
