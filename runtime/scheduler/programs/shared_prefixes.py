"""Prefixes shared by a program's runs: instructions and examples before a run's own text.

A run's hints say when its prefix is no longer needed, but not what later runs need. Evicting the
whole prefix then would make the next run compute the program's instructions again.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.sequence.shared_len import shared_len

_MAX_TOKENS = 1 << 20
"""Most tokens remembered of all prompts together, 4 bytes each."""

_MAX_PROMPT_LEN = 1 << 14

_Key = tuple[str, str, str]
"""(cache salt, program's name, node)"""


class SharedPrefixes:
    """Compares each prompt with the last one of the same node of the same program."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[_Key, npt.NDArray[np.int32]] = OrderedDict()
        self._num_tokens = 0

    def measure(self, sequence: Sequence) -> int:
        """How many leading tokens of the prompt other runs may share.

        All, for a program's first run; none, for a program without a name.
        """
        hint = sequence.request.hint
        if hint is None or not hint.program:
            return 0
        key = sequence.request.cache_salt, hint.program, hint.node_id
        prompt = sequence.token_ids[: min(sequence.num_prompt, _MAX_PROMPT_LEN)].copy()
        last = self._prompts.pop(key, None)
        self._prompts[key] = prompt
        self._num_tokens += len(prompt) - (0 if last is None else len(last))
        while self._num_tokens > _MAX_TOKENS:
            self._num_tokens -= len(self._prompts.popitem(last=False)[1])
        return len(prompt) if last is None else shared_len(prompt, last)
