"""Serialisation of compiled functions.

numba's own deserialisation parses a function's bitcode and visits every symbol in it, in case other
code is linked with the function. Running a function needs none of that: its machine code goes to
the execution engine as it is. Its bitcode is parsed only if newly compiled code calls it.
"""

from __future__ import annotations

import pickle
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import compile_result
from numba.core.runtime import rtsys
from numba.core.serialize import dumps


def to_bytes(result: Any) -> bytes:
    """Serialises numba's compilation result."""
    (name, _, code), described, environment, signature, *_, reload_init, others = result._reduce()
    wrappers = (described.llvm_cpython_wrapper_name, described.llvm_cfunc_wrapper_name)
    symbols = [each for each in wrappers if result.library.get_pointer_to_function(each)]
    library = (name, *code, symbols)
    data: bytes = dumps((library, described, environment, signature, reload_init, others))
    return data


def from_bytes(data: bytes, target_context: Any) -> Any:
    """The compilation result that ``to_bytes`` serialised, ready to be called."""
    library_data, described, environment, signature, reload_init, others = pickle.loads(data)
    rtsys.initialize(target_context)  # compiled code calls it
    for function in reload_init:
        function()
    library = _LoadedLibrary(target_context.codegen(), *library_data)
    result = compile_result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=target_context.get_executable(library, described, environment),
        fndesc=described,
        signature=signature,
        objectmode=False,
        lifted=(),
        reload_init=reload_init,
        referenced_envs=others,
    )
    for each in others:
        library.codegen.set_env(each.env_name, each)
    return result


class _LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A function's machine code in the execution engine.

    Args:
        symbols: the names of its functions that are looked up.
    """

    def __init__(
        self, codegen: Any, name: str, machine_code: bytes, bitcode: bytes, symbols: list[str]
    ) -> None:
        super(JITCodeLibrary.__base__, self).__init__(codegen, name)  # without an empty module
        self._bitcode = bitcode
        self._shared_module: Any = None
        self._finalized = True
        engine = codegen._engine
        engine._ee.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
        engine._defined_symbols.update(symbols)
        engine.finalize_object()

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return self._shared_module
