# SPDX-License-Identifier: Apache-2.0
"""Imported by a fork server: the kernel ends it, also while it is stopped, when the program ends.

That is when the thread ends that has started the server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h

if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() == 1:  # the program has ended before that
        os._exit(0)
