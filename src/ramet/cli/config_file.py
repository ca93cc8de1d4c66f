"""Reads the configuration file: a YAML mapping of option names to values."""

from __future__ import annotations

import difflib
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from ramet.runtime.api.errors import ConfigurationError


def read_config_file(path: Path, known: AbstractSet[str]) -> dict[str, Any]:
    """Reads a file's settings, by their names in Python; null is the same as a missing one.

    Names may be written with ``-`` for ``_``, as on the command line.

    Raises:
        ConfigurationError: no such file, not a YAML mapping, an unknown or a duplicate key.
    """
    import yaml  # imported here: most starts have no such file

    try:
        text = path.read_text(encoding="utf-8")
        root, document = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"the configuration {path} can't be read: {reason}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the configuration {path} is not YAML: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"the configuration {path} is not a mapping of options to values")
    seen: set[str] = set()
    for key, _ in root.value:
        name = _name(key.value)
        if name not in known:
            raise ConfigurationError(
                f"the configuration {path}: unknown option {key.value!r}{_hint(name, known)}"
            )
        if name in seen:
            raise ConfigurationError(f"the configuration {path}: duplicate option {key.value!r}")
        seen.add(name)
    return {_name(key): value for key, value in document.items() if value is not None}


def _name(key: object) -> str:
    return str(key).replace("-", "_")


def _hint(name: str, known: AbstractSet[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
