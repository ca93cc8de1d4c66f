"""The sampling parameters that a model's makers recommend."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SAMPLING_PARAMS

logger = logging.getLogger("ramet.engine")

_PREFIX = "general.sampling."
_NAMES = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
"""GGUF's names, under which ``generation_config.json`` is read too, and ours."""

SamplingDefaults = Mapping[str, float]


def sampling_defaults(metadata: Mapping[str, Any], generation_config: str) -> SamplingDefaults:
    """The parameters that a model's file recommends, by our names; none for ``none``.

    What is out of range is left out, with a warning in the log.
    """
    found: dict[str, float] = {}
    if generation_config == "none":
        return found
    for theirs, ours in _NAMES.items():
        value = metadata.get(_PREFIX + theirs)
        if value is None:
            continue
        if isinstance(value, float) and SAMPLING_PARAMS[ours].kind == "integer":
            value = int(value)
        try:
            found[ours] = SAMPLING_PARAMS[ours].check(ours, value)
        except InvalidParameterError as error:
            logger.warning("the model's generation config is ignored in part: %s", error.message)
    return found
