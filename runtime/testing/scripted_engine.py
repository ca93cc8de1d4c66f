"""An engine on the scripted model, for fast tests of programs and clients."""

from __future__ import annotations

from collections.abc import Iterable

from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


def scripted_engine(
    scripts: Iterable[Script] = (), config: EngineConfig | None = None, *, model_name: str = "m"
) -> Engine:
    """An engine whose model outputs what ``scripts`` force, else readable noise."""
    tokenizer = scripted_tokenizer()
    return Engine(ScriptedModel(tokenizer, scripts), tokenizer, config, model_name=model_name)
