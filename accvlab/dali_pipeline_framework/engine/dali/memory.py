# SPDX-License-Identifier: Apache-2.0
"""The memory that DALI takes on the host."""

from __future__ import annotations

import os

_VARIABLE = "DALI_MALLOC_POOL_THRESHOLD"
_THRESHOLD = "1M"


def reuse_host_memory() -> None:
    """Have DALI keep large blocks of host memory for the next batch, unless the environment says otherwise.

    By default it keeps those of 32 MB and more, and asks the C library for smaller ones. That one gives them back
    to the system with each batch, and memory that comes from there anew is cleared page by page, which can cost as
    much as all else that the process does for a batch.

    DALI looks at this when it takes memory for the first time in a process.
    """
    os.environ.setdefault(_VARIABLE, _THRESHOLD)
