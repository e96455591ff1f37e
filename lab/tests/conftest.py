from __future__ import annotations

import os
import signal

# As in tests/conftest.py: one thread a worker, and children that hear Ctrl-C.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
signal.signal(signal.SIGINT, signal.default_int_handler)
