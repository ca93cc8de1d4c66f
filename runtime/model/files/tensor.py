"""``Tensor``: one tensor of a model file, in its stored format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """One tensor of a model file.

    Attributes:
        name: such as ``blk.0.attn_q.weight``.
        type: the name of its storage, a value of ``gguf.TENSOR_TYPES``, such as ``Q4_1``.
        shape: outermost dimension first, so a linear layer is ``(out_features, in_features)``.
        data: the stored bytes, read-only uint8[rows, bytes a row]; a view of the mapped file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def to_float32(self) -> npt.NDArray[np.float32]:
        """The tensor's values, float32[shape]; always a copy."""
        if self.type == "F32":
            values = self.data.view("<f4").astype(np.float32, copy=True)
        elif self.type == "F16":
            values = self.data.view("<f2").astype(np.float32)
        elif self.type == "BF16":
            values = (self.data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            from gguf.constants import GGMLQuantizationType
            from gguf.quants import dequantize

            values = dequantize(self.data, GGMLQuantizationType[self.type])
        return values.reshape(self.shape)
