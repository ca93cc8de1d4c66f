"""``POST /v1/embeddings``: OpenAI's body, with Ramet's extensions."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ramet.runtime.api.request import Pooling
from ramet.runtime.server.protocol.shared_fields import AnyPrompt, EngineFields


class EmbeddingsRequest(EngineFields):
    """The body. ``pooling``, an extension, selects the hidden states that are pooled."""

    model: str | None = None
    input: AnyPrompt
    encoding_format: Literal["float", "base64"] = "float"
    pooling: Pooling = "mean"
    add_special_tokens: bool = True
    request_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")

    NO_EFFECT: ClassVar = frozenset({"user"})
    UNSUPPORTED: ClassVar = {
        "dimensions": (),
        "truncate_prompt_tokens": (),
        "normalize": (True,),
        "embed_dtype": ("float32",),
        "endianness": ("native", "little"),
    }
