"""``python -m ramet.jit PARENT MODULE...``: see ``ahead.py``."""

import signal
import sys

from ramet.jit.ahead import compile_all, end_with, step_back

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
end_with(int(sys.argv[1]))
step_back()
compile_all(sys.argv[2:])
