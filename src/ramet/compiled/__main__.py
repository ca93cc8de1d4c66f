"""``python -m ramet.compiled PARENT MODULE...``: see ``ahead.py``."""

import sys

from ramet.compiled.ahead import compile_all, step_back

step_back()
compile_all(int(sys.argv[1]), sys.argv[2:])
