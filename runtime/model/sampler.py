"""Samples a step's tokens from its logits, on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ramet.kernels.cpu_support.features import usable_cores
from ramet.kernels.sampling.cpu import SampleTask, work_space
from ramet.kernels.sampling.rows import Float32Array, SampledTokens, SamplingRows

_MIN_SHARED_ROWS = 8
_GREEDY_COST = 1 / 8  # of a row that is drawn from


class Sampler:
    """Chooses a token for each row of logits, as ``kernels.sampling`` defines.

    Keeps scratch between steps, so one sampler serves one engine's steps, one at a time. A few
    rows are done on the calling thread; where there are many, and the more so where they are drawn
    from or want log-probabilities, other threads help if they are awake in time. That changes no
    result.

    Args:
        num_threads: threads of a step, the caller included; None: one a usable core.
    """

    def __init__(self, *, num_threads: int | None = None) -> None:
        self._num_helpers = (num_threads or usable_cores()) - 1
        self._helpers: ThreadPoolExecutor | None = None
        self._work: list[Float32Array] = []

    def sample(self, logits: Float32Array, rows: SamplingRows) -> SampledTokens:
        """Picks from ``logits`` [L, vocab_size], which stay as they are; ``rows`` has L rows."""
        if rows.num_rows != len(logits):
            raise ValueError(f"{len(logits)} rows of logits and {rows.num_rows} of parameters")
        task = SampleTask(logits, rows)
        num_helpers = self._num_helpers if self._is_costly(rows) else 0
        work = self._work_spaces(1 + num_helpers, logits.shape[1])
        if num_helpers and self._helpers is None:
            self._helpers = ThreadPoolExecutor(self._num_helpers, "ramet-sampler")
        calls = []
        if self._helpers is not None:
            calls = [self._helpers.submit(task.run, space) for space in work[1:]]
        task.run(work[0])
        for call in calls:
            if not call.cancel():  # it has begun, and may still be at a row
                call.result()
        return task.result

    def close(self) -> None:
        """Ends the helping threads."""
        if self._helpers is not None:
            self._helpers.shutdown()
            self._helpers = None

    def _is_costly(self, rows: SamplingRows) -> bool:
        """Whether there is enough to do for several threads."""
        if rows.num_rows < _MIN_SHARED_ROWS:
            return False
        costly = int(((rows.temperature > 0) | (rows.num_logprobs >= 0)).sum())
        return costly + _GREEDY_COST * (rows.num_rows - costly) >= _MIN_SHARED_ROWS

    def _work_spaces(self, count: int, vocab_size: int) -> list[Float32Array]:
        if self._work and self._work[0].shape[1] < vocab_size:
            self._work = []
        self._work += [work_space(vocab_size) for _ in range(count - len(self._work))]
        return self._work[:count]
