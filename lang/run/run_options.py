"""The settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import flag, number, text, whole


@dataclass(frozen=True)
class RunOptions:
    """Settings of a whole run.

    Attributes:
        sampling: defaults of its calls' sampling parameters.
        seed: calls without a seed draw theirs from this and their place in the graph.
        cache_salt: prefixes are shared only with runs of the same salt.
        priority: larger runs earlier.
        hints: whether calls carry what the program knows of the future.
        prefill_ahead: whether the beginning of a prompt is computed while its call still waits
            for a value.
        chat_template_kwargs: variables of the model's chat template, such as ``enable_thinking``.
        timeout_s: seconds after which the run is aborted; None: no limit.
        max_text_len: most characters that values may put into prompts, joins and choices, all of
            them together; None: as many as there is memory for.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cache_salt: str = ""
    priority: int = 0
    hints: bool = True
    prefill_ahead: bool = True
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    max_text_len: int | None = None

    def __post_init__(self) -> None:
        for name, check in (
            ("seed", whole),
            ("cache_salt", text),
            ("priority", whole),
            ("hints", flag),
            ("prefill_ahead", flag),
        ):
            check(name, getattr(self, name))
        variables = self.chat_template_kwargs
        if not isinstance(variables, Mapping) or not all(isinstance(k, str) for k in variables):
            raise InvalidParameterError(
                f"chat_template_kwargs are values by name, not {variables!r}",
                param="chat_template_kwargs",
            )
        if self.timeout_s is not None and not number("timeout_s", self.timeout_s) > 0:
            raise InvalidParameterError("timeout_s must be above 0", param="timeout_s")
