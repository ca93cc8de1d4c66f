"""What other CPUs run compiles for AArch64, ahead and on any machine: as NEON's vectors, with no
instruction of x86 and no call of a library's function where a vector instruction should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import llvmlite.binding as llvm
import pytest

# In a process of its own: numba compiles for what it is told when it is imported.
MODULE_OF = """
import sys
from ramet.kernels.cpu_support import features
features.is_x86 = lambda: False
from numba.core.ccallback import CFunc
from ramet.kernels.attention import cpu as attention
from ramet.kernels.linear import cpu_dot as dot
from ramet.kernels.sampling import cpu_largest as largest
from ramet.kernels.linear import cpu_product
from ramet.kernels.cpu_support.compiled_op import _SIGNATURE
# This machine's code can't hold the instruction: a function has its place, and is never called.
import llvmlite.binding as llvm
llvm.add_symbol("sdot", 1)
sdot, dot.SDOT = dot.SDOT, "sdot"
op = eval(sys.argv[1])
pair = (_SIGNATURE.args, _SIGNATURE.return_type)
compiled = CFunc(op._function, pair, locals={}, options={"nopython": True, "boundscheck": False})
compiled.compile()
print(compiled._library.get_llvm_str().replace("@sdot(", f"@{sdot}("))
"""


@pytest.mark.parametrize(
    ("operation", "multiply_add"),
    [
        ("cpu_product.linear_op('u4_min', 'portable')", "mla"),
        ("cpu_product.linear_op('u4_min', 'neon-dot')", "sdot"),
        ("cpu_product.linear_op('u8_half', 'neon-dot')", "sdot"),
        ("cpu_product.linear_op('u8', None)", "fmla"),
        ("attention.attend_op('float32')", "fmla"),
        ("largest.largest_of_rows", "fcmgt"),
    ],
)
def test_operations_become_vector_instructions(aarch64, operation, multiply_add):
    # Neoverse N1 has ``sdot``, as have most since; what doesn't ask for it must not need it.
    cpu = "neoverse-n1" if "neon-dot" in operation else "cortex-a72"
    machine = aarch64.create_target_machine(cpu=cpu, opt=3)
    variables = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+avx,+f16c,+fma"}
    done = subprocess.run(
        [sys.executable, "-c", MODULE_OF, operation],
        env=variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "llvm.x86" not in done.stdout
    text = re.sub(r"(target triple = ).*", rf'\1"{aarch64.triple}"', done.stdout)
    text = re.sub(r"(target datalayout = ).*", rf'\1"{machine.target_data}"', text)
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    module = llvm.parse_assembly(text)
    module.verify()
    code = machine.emit_assembly(module)
    vectors = re.findall(r"^\t(\w+)\tv\d+\.", code, re.MULTILINE)
    assert vectors.count(multiply_add) >= 20
    called = set(re.findall(r"^\tbl\t(\w+)", code, re.MULTILINE))
    assert {
        name for name in called if not name.startswith(("_ZN5ramet", "numba_", "NRT_", "Py"))
    } == set()
