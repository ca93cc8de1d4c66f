"""``python -m ramet.jit PARENT MODULE...``: see ``ahead.py``."""

import signal
import sys

from ramet.jit.ahead import compile_all, exit_with_parent, lower_priority

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
exit_with_parent(int(sys.argv[1]))
lower_priority()
compile_all(sys.argv[2:])
