"""JIT compilation by numba, once an installation: machine code is kept on disk.

``jit`` marks a function that Python calls. It is compiled, or loaded from disk, when it is first
needed, never when its module is imported. ``load`` does so ahead of need for a whole package.
Functions that only compiled code calls are plain ``numba.njit``: they are part of their callers.
"""

from ramet.jit.ahead import compile_in_background, compiled_of, is_compiled, load
from ramet.jit.disk import cache_folders
from ramet.jit.functions import Function, is_compiling, jit, open_jit

__all__ = [
    "Function",
    "cache_folders",
    "compile_in_background",
    "compiled_of",
    "is_compiled",
    "is_compiling",
    "jit",
    "load",
    "open_jit",
]
