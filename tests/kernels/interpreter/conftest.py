"""These tests run Triton's kernels in its interpreter, which has to be chosen before Triton is
imported: ``test_triton_interpreter.py`` runs them in a process of their own."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["*.py"]
