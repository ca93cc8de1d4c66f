"""Rotary position embeddings (Su et al. 2021): angles a position, and how they are scaled for
contexts beyond those of the first training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import ModelFile

RopeKind = Literal["full", "local", "none"]
"""Which angles a layer uses: the model's, those of layers with a window of their own base, or none
at all (NoPE, Kazemnejad et al. 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Scaling by parts of the spectrum (Peng et al. 2023).

    Attributes:
        factor: how much longer the context is than ``original_len``, in tokens.
        beta_fast, beta_slow: pairs that turn more often than the first in ``original_len`` are
            left as they are, those below the second are divided by ``factor``.
        truncates: the bounds of the parts are rounded to whole pairs.
    """

    factor: float
    original_len: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncates: bool = True

    def apply(
        self, frequencies: npt.NDArray[np.float64], theta: float, rope_dim: int
    ) -> npt.NDArray[np.float64]:
        """The scaled angles of angles that are not scaled."""

        def pair_of(turns: float) -> float:
            return (
                rope_dim
                * math.log(self.original_len / (turns * 2 * math.pi))
                / (2 * math.log(theta))
            )

        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncates:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rope_dim - 1)
        width = high - low if high != low else 0.001
        scaled = np.clip((np.arange(len(frequencies)) - low) / width, 0.0, 1.0)
        return np.asarray(frequencies / self.factor * scaled + frequencies * (1.0 - scaled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """A model's rotary embeddings.

    Attributes:
        theta: base of the angles.
        dim: rotated values a head.
        scale: positions are divided by it (linear scaling, Chen et al. 2023); 1 is none.
        yarn: scaling by YaRN, or None.
        magnitude: sines and cosines are multiplied by it.
        local_theta: base in layers of kind ``local``, whose angles are not scaled.
        max_len: the longest context that the scaling serves, or None.
    """

    theta: float
    dim: int
    scale: float = 1.0
    yarn: Yarn | None = None
    magnitude: float = 1.0
    local_theta: float = 0.0
    max_len: int | None = None


def read_rope(file: ModelFile, prefix: str, dim: int, *, truncates: bool = True) -> Rope:
    """The rotary scaling in a model's metadata under ``prefix``.

    ``truncates``: whether YaRN does, where they don't say.

    Raises ``UnsupportedModelError`` for a scaling that Ramet doesn't have.
    """

    def number(key: str, default: float | None = None) -> float:
        return file.number(f"{prefix}rope.{key}", default)

    theta = number("freq_base", 10_000.0)
    kind = file.text(f"{prefix}rope.scaling.type", "none")
    magnitude = number("scaling.attn_factor", 1.0) * number("scaling.yarn_attn_factor", 1.0)
    original = f"{prefix}rope.scaling.original_context_length"
    if "rope_factors_short.weight" in file.tensors:
        # LongRoPE (Ding et al. 2024): one set of divisors up to the original context, another
        # beyond. Keys that were cached under the first can't go on under the second.
        return Rope(theta=theta, dim=dim, magnitude=magnitude, max_len=file.integer(original))
    if kind == "none":
        return Rope(theta=theta, dim=dim, scale=number("scale_linear", 1.0))
    factor = number("scaling.factor")
    if kind == "linear":
        return Rope(theta=theta, dim=dim, scale=factor)
    if kind != "yarn":
        raise UnsupportedModelError(f"{file.path}: rope scaling {kind!r} is not supported")
    yarn = Yarn(
        factor=factor,
        original_len=max(1, file.integer(original)),
        beta_fast=number("scaling.yarn_beta_fast", 32.0),
        beta_slow=number("scaling.yarn_beta_slow", 1.0),
        truncates=file.flag(f"{prefix}rope.scaling.truncate", truncates),
    )
    betas = (yarn.beta_fast, yarn.beta_slow)
    if theta < 1.001 or not 1 <= factor <= 1e6 or not all(1e-3 <= beta <= 1e6 for beta in betas):
        raise ModelLoadError(f"{file.path}: the metadata of rope scaling 'yarn' are inconsistent")
    magnitude *= number("scaling.magnitude", 1.0 + 0.1 * math.log(factor))
    return Rope(theta=theta, dim=dim, yarn=yarn, magnitude=magnitude)


def inverse_frequencies(
    rope: Rope, file: ModelFile | None, kind: RopeKind = "full"
) -> npt.NDArray[np.float64]:
    """Rotary angles a position, float64[dim / 2]: position p turns pair i by ``p * f[i]``.

    Includes the scaling and the file's own divisors (Llama 3's long-context scaling is stored as
    ``rope_freqs.weight``). Angles of kind ``local`` have neither.
    """
    exponents = np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim
    if kind == "none":
        return np.zeros(len(exponents))
    if kind == "local":
        return np.asarray(rope.local_theta**-exponents)
    frequencies = rope.theta**-exponents / rope.scale
    if rope.yarn is not None:
        frequencies = rope.yarn.apply(frequencies, rope.theta, rope.dim)
    for name in ("rope_freqs.weight", "rope_factors_short.weight"):
        divisors = None if file is None else file.tensors.get(name)
        if file is not None and divisors is not None:
            values = divisors.to_float32().astype(np.float64).ravel()
            if values.shape != frequencies.shape or not np.all((values > 0) & (values < np.inf)):
                raise ModelLoadError(f"{file.path}: {name} doesn't fit the head size")
            frequencies = frequencies / values
    return frequencies


def magnitude(rope: Rope, kind: RopeKind) -> float:
    """The factor of a layer's sines and cosines."""
    return rope.magnitude if kind == "full" else 1.0
