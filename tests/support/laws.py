"""How many examples a law is tested with."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, wide: int) -> int:
    """Number of examples: ``few``, or ``wide`` in a run with ``--wide``."""
    return wide if settings.get_current_profile_name() == "wide" else few
