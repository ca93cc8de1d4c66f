"""``python -m ramet.compiled PARENT MODULE...``: see ``ahead.py``."""

import signal
import sys

from ramet.compiled.ahead import compile_all, step_back

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
step_back()
compile_all(int(sys.argv[1]), sys.argv[2:])
