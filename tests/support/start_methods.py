"""Ways to start workers, for parametrised tests."""

from __future__ import annotations

import pytest

# A spawned worker imports all packages, which takes seconds; those of the fork server need not. Both get the input
# pickled.
START_METHODS = ("fork", "forkserver", pytest.param("spawn", marks=pytest.mark.wide))
