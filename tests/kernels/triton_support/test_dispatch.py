"""Tuned constants and costs are found for any GPU, and fall back to what is sure to fit."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels.attention.costs import attention_costs
from ramet.kernels.triton_support.dispatch import (
    architecture,
    data,
    kernel_config,
    nearest,
    next_power_of_2,
)


@pytest.mark.parametrize(
    ("arch", "chosen"),
    [
        ("sm_80", "sm_80"),
        ("sm_90", "sm_90"),
        ("sm_100", "sm_90"),  # newer than all that are listed: like the newest
        ("sm_86", "default"),  # between two, with less shared memory than either
        ("sm_75", "default"),
        ("gfx942", "gfx942"),
        ("gfx1100", "default"),
        ("cpu", "default"),
    ],
)
def test_the_nearest_entry(arch, chosen):
    table = {name: name for name in ("default", "sm_80", "sm_90", "gfx942")}
    assert nearest(table, arch) == chosen


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "gfx942", "gfx1100", "cpu"])
def test_every_variant_has_constants_and_costs(arch):
    for kernel, variants in data("tuning.json").items():
        for variant in variants:
            assert all(
                value == next_power_of_2(value) or name == "num_stages"
                for name, value in kernel_config(kernel, variant, arch).items()
            )
    assert attention_costs(arch).per_byte > 0


def test_constants_are_the_callers_own_copy():
    kernel_config("linear", "q4_small", "sm_90")["BLOCK_N"] = 1
    assert kernel_config("linear", "q4_small", "sm_90")["BLOCK_N"] > 1


def test_a_cpu_has_an_architecture():
    assert architecture(torch.device("cpu")) == "cpu"


def test_powers_of_two():
    assert [next_power_of_2(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]
