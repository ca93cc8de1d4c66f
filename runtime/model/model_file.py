"""A model on disk, whatever its format: metadata and tensors under the names of GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.runtime.errors import ModelLoadError

if TYPE_CHECKING:
    from ramet.runtime.model.gguf_file import GgufTensor

MetadataValue = Any
"""bool, int, float, str, list[str], a numpy array of numbers, or a list of such arrays."""


class ModelFile:
    """Metadata and tensors of one model.

    Attributes:
        path: the file or folder.
        metadata: by GGUF's keys, such as ``llama.block_count``.
        tensors: by GGUF's names, such as ``blk.0.attn_q.weight``, in GGUF's order of rows.
    """

    path: Path
    metadata: dict[str, MetadataValue]
    tensors: dict[str, GgufTensor]

    @property
    def fingerprint(self) -> str:
        """32 hex digits that tell this model from others."""
        raise NotImplementedError

    def drop_cached(self) -> None:
        """Lets go of what of the tensors is in memory; it is read again when it is used again."""

    def require(self, key: str) -> MetadataValue:
        """The metadata value of ``key``; ``ModelLoadError`` if the model has none."""
        try:
            return self.metadata[key]
        except KeyError:
            raise ModelLoadError(f"{self.path}: the metadata key {key!r} is missing") from None

    def tensor(self, name: str) -> GgufTensor:
        """The tensor called ``name``; ``ModelLoadError`` if the model has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelLoadError(f"{self.path}: the tensor {name!r} is missing") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; ``ModelLoadError`` if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: no valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return value
