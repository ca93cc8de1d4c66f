"""The chat template of an engine: the configured one, or the tokenizer's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.runtime.tokenizer import ChatTemplate


def configured_template(config: EngineConfig, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The chat template of ``config.chat_template``; None: the tokenizer's own is to be used."""
    if config.chat_template is None:
        return None
    from ramet.runtime.tokenizer import ChatTemplate

    return ChatTemplate.read(config.chat_template, tokenizer)


def own_template(tokenizer: Tokenizer) -> ChatTemplate | None:
    """The tokenizer's chat template; None if it has none.

    Raises:
        ModelLoadError: it isn't valid Jinja.
    """
    if tokenizer.chat_template is None:
        return None
    from ramet.runtime.tokenizer import ChatTemplate

    return ChatTemplate.of(tokenizer)
