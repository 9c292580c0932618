"""How many examples a law is tested with."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, wide: int) -> int:
    """Number of examples: ``few``, or ``wide`` in a run with ``--wide``."""
    is_wide = settings.default.max_examples == settings.get_profile("wide").max_examples
    return wide if is_wide else few
