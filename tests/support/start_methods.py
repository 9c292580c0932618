"""Ways to start workers, for parametrised tests."""

from __future__ import annotations

import pytest

# A spawned worker imports all packages, which takes seconds; those of the fork server need not. Both get the input
# pickled.
START_METHODS = ("fork", "forkserver", pytest.param("spawn", marks=pytest.mark.wide))
# Where another test of the kind has the fork server, which costs ten times what a fork does.
FORKED = ("fork", *(pytest.param(method, marks=pytest.mark.wide) for method in ("forkserver", "spawn")))
