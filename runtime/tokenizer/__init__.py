"""Text to tokens and back, and the chat template of a model file."""

from ramet.runtime.tokenizer.chat_template import ChatTemplate
from ramet.runtime.tokenizer.kinds import TokenKind
from ramet.runtime.tokenizer.tokenizer import PromptPiece, Tokenizer
from ramet.runtime.tokenizer.tool_prompts import fold_tools

__all__ = ["ChatTemplate", "PromptPiece", "TokenKind", "Tokenizer", "fold_tools"]
