"""The integer products of AArch64's ``sdot``, compiled ahead and run by an emulator."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest
import unicorn
import unicorn.arm64_const as arm64
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.linear.cpu_dot import group_dot

CODE, DATA, END = 0x10000, 0x100000, 0x20000
WEIGHTS, X, START, OUT, STACK = (DATA + 0x1000 * page for page in (0, 1, 2, 3, 8))


def module_of(bits, num_words):
    """A function of four addresses that stores ``start`` plus the products of a group, or half."""
    module = ir.Module()
    module.triple = "aarch64-unknown-linux-gnu"
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4)
    function = ir.Function(module, kind, "products")
    b = ir.IRBuilder(function.append_basic_block())
    weights, x, start, out = function.args
    words = [vec.load(b, weights, vec.VI32, 64 * t) for t in range(num_words)]
    first = vec.load(b, start, vec.VI32)
    vec.store(b, group_dot(b, "neon-dot", bits, words, x, first, 1), out)
    b.ret_void()
    return llvm.parse_assembly(str(module))


@pytest.fixture(scope="module")
def target(aarch64):
    return aarch64.create_target_machine(cpu="generic", features="+dotprod", opt=3, reloc="static")


@pytest.fixture(scope="module")
def products(target):
    """``products(bits, weights [words, 16, 4], x, start)``, as an AArch64 processor has them."""
    machines = {}
    for bits in (4, 8):
        for num_words in (4, 8):
            module = module_of(bits, num_words)
            assert not re.search(r"^\tadrp\t", target.emit_assembly(module), re.MULTILINE)
            sections = llvm.ObjectFileRef.from_data(target.emit_object(module)).sections()
            code = next(section.data() for section in sections if section.name() == b".text")
            machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
            machine.ctl_set_cpu_model(arm64.UC_CPU_ARM64_MAX)
            machine.mem_map(CODE, 0x20000)
            machine.mem_map(DATA, 0x10000)
            machine.mem_write(CODE, code)
            machines[bits, num_words] = machine

    def run(bits, weights, x, start):
        machine = machines[bits, len(weights)]
        for address, array in ((WEIGHTS, weights), (X, x), (START, start)):
            machine.mem_write(address, array.tobytes())
        for number, address in enumerate((WEIGHTS, X, START, OUT)):
            machine.reg_write(getattr(arm64, f"UC_ARM64_REG_X{number}"), address)
        machine.reg_write(arm64.UC_ARM64_REG_SP, STACK)
        machine.reg_write(arm64.UC_ARM64_REG_LR, END)
        machine.emu_start(CODE, END)
        return np.frombuffer(machine.mem_read(OUT, 64), np.int32)

    return run


@given(st.sampled_from([4, 8]), st.sampled_from([4, 8]), st.sampled_from(["any", "extreme"]),
       st.integers(0, 2**32))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_products_are_exact(products, bits, num_words, values, seed):
    rng = np.random.default_rng(seed)
    largest = 2**bits - 1
    if values == "any":
        weights = rng.integers(0, largest + 1, (num_words, 16, 4)).astype(np.uint8)
        x = rng.integers(-127, 128, (num_words, 4)).astype(np.int8)
    else:
        weights = rng.choice([0, largest], (num_words, 16, 4)).astype(np.uint8)
        x = rng.choice([-127, 127], (num_words, 4)).astype(np.int8)
    start = rng.integers(-(2**20), 2**20, 16).astype(np.int32)
    expected = start + np.einsum("trk,tk->r", weights.astype(np.int64), x.astype(np.int64))
    np.testing.assert_array_equal(products(bits, weights, x, start), expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_group_takes_one_instruction_for_four_rows_of_four_bytes(target, bits):
    code = target.emit_assembly(module_of(bits, 8))
    sums_of_x = 2 if bits == 8 else 0
    assert len(re.findall(r"^\tsdot\t", code, re.MULTILINE)) == 8 * 4 + sums_of_x
