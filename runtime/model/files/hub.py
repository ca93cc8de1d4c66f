"""Downloads models from a Hugging Face hub, into the cache that ``huggingface_hub`` keeps."""

from __future__ import annotations

import re
from pathlib import Path

from ramet.runtime.api.errors import ModelLoadError

_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?"
    r"(?::(?P<file>[\w./-]+\.gguf))?"
)
_FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.jinja")
"""What is read of a folder; nothing else is downloaded, no pickle and no code."""
_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")


def download_model(model: str) -> Path:
    """Downloads what isn't in the cache yet; gives the folder, or the GGUF file.

    Args:
        model: ``owner/name``, ``owner/name@revision`` or ``owner/name:file.gguf``. What exists as a
            path is not downloaded.

    Raises:
        ModelLoadError: no such name, no ``huggingface_hub``, or a download that failed.
    """
    match = _NAME.fullmatch(model)
    if match is None or Path(model).exists():
        return Path(model)
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
    except ImportError:
        raise ModelLoadError(
            "downloading a model needs the extra 'hub': pip install 'ramet[hub]'", param="model"
        ) from None
    repository, revision, file = match["repository"], match["revision"], match["file"]
    try:
        if file is None:
            found = snapshot_download(repository, revision=revision, allow_patterns=list(_FILES))
            return Path(found)
        names = [file]
        if (parts := _PART.search(file)) is not None:
            count = int(parts[1])
            names = [
                _PART.sub(f"-{number:05}-of-{parts[1]}.gguf", file)
                for number in range(1, count + 1)
            ]
        paths = [hf_hub_download(repository, name, revision=revision) for name in names]
        return Path(paths[0])
    except Exception as error:  # of several libraries below
        reason = " ".join(str(error).split())[:300]
        raise ModelLoadError(
            f"{model} can't be downloaded: {type(error).__name__}: {reason}", param="model"
        ) from error
