"""What the runs of a program have in common: instructions and examples, before the run's own text.

A run says when it is done with a prefix, and knows nothing of the runs after it. To drop all of the
prefix at its word would have the next run compute the program's instructions again.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.sequence.shared_len import shared_len

_MAX_TOKENS = 1 << 20
"""Tokens that are remembered of all prompts together, 4 bytes each."""

_MAX_PROMPT_LEN = 1 << 14

_Key = tuple[str, str, str]
"""(cache salt, program's name, node)"""


class SharedPrefixes:
    """Remembers the last prompt of each node of each program, and compares the next with it."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[_Key, npt.NDArray[np.int32]] = OrderedDict()
        self._num_tokens = 0

    def measure(self, sequence: Sequence) -> int:
        """How many of the prompt's leading tokens another run may begin with.

        All of them, where the program is seen for the first time; none, where it has no name.
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
