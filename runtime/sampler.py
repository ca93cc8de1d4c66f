"""Turns a step's logits into tokens."""

from __future__ import annotations

import dataclasses

from ramet.kernels import sampling_cpu
from ramet.runtime.batch import Float32Array, SamplingRows, StepResult

_FIELDS = tuple(field.name for field in dataclasses.fields(SamplingRows))


class Sampler:
    """Chooses a token for each row of logits, as ``kernels.sampling`` defines.

    Keeps scratch between steps, so one sampler serves one engine's steps, one at a time.
    """

    def __init__(self) -> None:
        self._work: Float32Array | None = None

    def sample(self, logits: Float32Array, rows: SamplingRows) -> StepResult:
        """Picks from ``logits`` [L, vocab_size], which stay as they are; ``rows`` has L rows."""
        if rows.num_rows != len(logits):
            raise ValueError(f"{len(logits)} rows of logits and {rows.num_rows} of parameters")
        if self._work is None or self._work.shape[1] < logits.shape[1]:
            self._work = sampling_cpu.work_space(logits.shape[1])
        arrays = {name: getattr(rows, name) for name in _FIELDS}
        return StepResult(*sampling_cpu.sample(logits, **arrays, work=self._work))
