"""Opens a model of any format by its short name or path."""

from __future__ import annotations

from pathlib import Path

from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.huggingface import HfDirectory
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.files.model_file import ModelFile


def open_model(model: str | Path) -> ModelFile:
    """The model: a GGUF file, or a Hugging Face folder.

    Raises ``ModelLoadError`` or ``UnsupportedModelError`` that says what is wrong or missing.
    """
    path = locate_model(model)
    return HfDirectory(path) if path.is_dir() else GgufFile(path)
