"""Text to tokens and back, and the chat template of a model file.

``ChatTemplate`` is imported when it is first asked for: an engine by itself prints no chats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ramet.runtime.tokenizer.encoders import PromptPiece
from ramet.runtime.tokenizer.kinds import TokenKind
from ramet.runtime.tokenizer.read import read_tokenizer
from ramet.runtime.tokenizer.tokenizer import Tokenizer
from ramet.runtime.tokenizer.tool_prompts import fold_tools

if TYPE_CHECKING:
    from ramet.runtime.tokenizer.chat_template import ChatTemplate

__all__ = ["ChatTemplate", "PromptPiece", "TokenKind", "Tokenizer", "fold_tools", "read_tokenizer"]


def __getattr__(name: str) -> Any:
    if name != "ChatTemplate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ramet.runtime.tokenizer.chat_template import ChatTemplate

    return ChatTemplate
