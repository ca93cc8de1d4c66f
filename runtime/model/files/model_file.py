"""A model on disk, of any format: metadata and tensors under the names of GGUF."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.tensor import GgufTensor

MetadataValue = Any
"""bool, int, float, str, list[str], a numpy array of numbers, or a list of such arrays."""


class ModelFile:
    """Metadata and tensors of one model.

    The methods that read a metadata value of one kind take what to give where the file has none; a
    value of another kind is a ``ModelLoadError``, and so is none at all without a default.

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
        """32 hex digits that identify this model."""
        raise NotImplementedError

    def drop_cached(self) -> None:
        """Releases the tensors' memory; they are read from disk again when needed."""

    def require(self, key: str) -> MetadataValue:
        """The metadata value of ``key``; ``ModelLoadError`` if the model has none."""
        try:
            return self.metadata[key]
        except KeyError:
            raise ModelLoadError(f"{self.path}: the metadata key {key!r} is missing") from None

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(key, default)
        return value if isinstance(value, str) else self._refuse(key, "a text")

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        value = self._value(key, None)
        if isinstance(value, list) and set(map(type, value)) <= {str}:
            return value
        return self._refuse(key, "a list of texts")

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(key, default)
        return value if isinstance(value, bool) else self._refuse(key, "true or false")

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number that is not negative."""
        value = self._value(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return self._refuse(key, "a whole number")

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self._value(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            with contextlib.suppress(OverflowError):
                if math.isfinite(value):
                    return float(value)
        return self._refuse(key, "a finite number above zero")

    def numbers(self, key: str) -> npt.NDArray[Any]:
        """A list of finite numbers, with the type that they have in the file."""
        value = self._value(key, None)
        if _is_flat(value):
            values = np.asarray(value)
            if not values.size or (values.dtype.kind in "iuf" and np.isfinite(values).all()):
                return values
        return self._refuse(key, "a list of finite numbers")

    def _value(self, key: str, default: MetadataValue) -> MetadataValue:
        return self.require(key) if default is None else self.metadata.get(key, default)

    def _refuse(self, key: str, wanted: str) -> NoReturn:
        value = repr(self.metadata[key])
        value = value if len(value) <= 40 else f"{value[:40]}..."
        raise ModelLoadError(f"{self.path}: {key} is {value}, not {wanted}")

    def tensor(self, name: str) -> GgufTensor:
        """The tensor called ``name``; ``ModelLoadError`` if the model has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelLoadError(f"{self.path}: the tensor {name!r} is missing") from None


def _is_flat(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, list) and all(type(each) in (int, float) for each in value)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; ``ModelLoadError`` if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return value
