"""Bodies of Ollama's API: https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from ramet.runtime.chat.offered_tools import OfferedTool, offered_function
from ramet.runtime.server.protocol.base import ApiModel, Int
from ramet.runtime.server.protocol.shared_fields import WARNED, CallFields

_AT_START = "the server's settings decide that when it starts"


def _without_latest(name: str) -> str:
    return name.removesuffix(":latest")


ModelName = Annotated[str, AfterValidator(_without_latest)]
"""A served name; the tag ``:latest`` is left out."""


class Options(ApiModel):
    """``options``: how tokens are drawn."""

    temperature: float | None = None
    top_k: Int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Int | None = None
    num_predict: Int | None = Field(default=None, ge=-2)
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    UNSUPPORTED: ClassVar = {"mirostat": (0,), "tfs_z": (1, 1.0), "typical_p": (1, 1.0)}
    WARNED: ClassVar = {
        **dict.fromkeys(
            (
                "low_vram", "main_gpu", "num_batch", "num_ctx", "num_gpu", "num_thread", "numa",
                "use_mlock", "use_mmap", "vocab_only",
            ),
            _AT_START,
        ),
        "mirostat_eta": "there is no mirostat",
        "mirostat_tau": "there is no mirostat",
        "num_keep": "prompts that are too long are refused, not shortened",
        "penalize_newline": "penalties treat all tokens alike",
        "repeat_last_n": "penalties look at the whole text",
    }  # fmt: skip
    PATH: ClassVar = "options"

    def sampling_values(self) -> dict[str, Any]:
        """The parameters that are given, by our names."""
        named = {
            **{name: getattr(self, name) for name in _SAME_NAME},
            "repetition_penalty": self.repeat_penalty,
            "stop": (self.stop,) if isinstance(self.stop, str) else self.stop and tuple(self.stop),
            # -1 is without a limit, -2 as much as fits: the same here
            "max_tokens": self.num_predict if (self.num_predict or 0) > 0 else None,
        }
        return {name: value for name, value in named.items() if value is not None}


_SAME_NAME = (
    "temperature", "top_k", "top_p", "min_p", "seed", "presence_penalty", "frequency_penalty",
)  # fmt: skip

Think = bool | Literal["low", "medium", "high"]


class OllamaCall(CallFields):
    """What ``/api/chat`` and ``/api/generate`` share."""

    model: ModelName
    stream: bool = True
    format: Literal["json", ""] | dict[str, Any] | None = None
    options: Options | None = None
    think: Think | None = None

    NO_EFFECT: ClassVar = frozenset({"keep_alive"})
    WARNED: ClassVar = WARNED
    FIELD_OF: ClassVar = {
        **{name: f"options.{name}" for name in _SAME_NAME},
        "max_tokens": "options.num_predict",
        "repetition_penalty": "options.repeat_penalty",
        "stop": "options.stop",
    }

    def sampling_values(self) -> dict[str, Any]:
        own = super().sampling_values()
        return own if self.options is None else own | self.options.sampling_values()


class CalledFunction(ApiModel):
    """The function that was called, with its arguments as an object."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    NO_EFFECT: ClassVar = frozenset({"index"})


class PastCall(ApiModel):
    """A call in an assistant's message."""

    function: CalledFunction
    id: str | None = None

    NO_EFFECT: ClassVar = frozenset({"type"})


class ChatMessage(ApiModel):
    """A message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    NO_EFFECT: ClassVar = frozenset({"name"})
    UNSUPPORTED: ClassVar = {"images": ([],)}


class Function(ApiModel):
    """A function that the model may call."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    NO_EFFECT: ClassVar = frozenset({"strict"})


class Tool(ApiModel):
    """A tool, in OpenAI's shape."""

    type: Literal["function"] = "function"
    function: Function

    def offered(self, index: int) -> OfferedTool:
        """The tool, which is the body's ``tools[index]``."""
        function = self.function.model_dump(exclude_none=True)
        return offered_function(function, f"tools[{index}].function.parameters")


class OllamaChatRequest(OllamaCall):
    """``POST /api/chat``."""

    messages: list[ChatMessage] = Field(default_factory=list)
    tools: list[Tool] | None = None


class OllamaGenerateRequest(OllamaCall):
    """``POST /api/generate``: an answer to one prompt, through the chat template."""

    prompt: str = ""
    system: str | None = None

    UNSUPPORTED: ClassVar = {
        "context": ([],),
        "images": ([],),
        "raw": (False,),
        "suffix": ("",),
        "template": ("",),
    }


class OllamaShowRequest(ApiModel):
    """``POST /api/show``."""

    model: ModelName
    verbose: bool = False

    NO_EFFECT: ClassVar = frozenset({"system", "template", "options"})
