# SPDX-License-Identifier: Apache-2.0
"""Whether an input can supply what the random draws of the steps are keyed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvidia.dali import types

from ...draws.keyed_draws import NEEDS_SEQUENCES, SEQUENCE_KEYS
from ...draws.random_draws import FieldKey, PlannedDraw
from ...errors import SettingError
from ...sample_data import FieldPath
from ...sources.callable_base import CallableBase


def require_keys(draws: Sequence[PlannedDraw], data_input: Any, field_paths: Sequence[FieldPath]) -> None:
    """Refuse draws whose keys an input cannot supply, as far as that is known before it is asked for samples.

    Args:
        draws: The draws.
        data_input: The input; with native readers beside it, only what workers load.
        field_paths: Paths of the fields of its samples.

    Raises:
        SettingError: Lists all of them.
    """
    name = type(data_input).__name__
    problems: list[str] = []
    needs_sequences = any(planned.draw.key in SEQUENCE_KEYS for planned in draws)
    tells_sequences = needs_sequences and _tells_sequences(data_input)
    for planned in draws:
        key = planned.draw.key
        if isinstance(key, FieldKey) and not callable(data_input):
            problems.append(
                f"  - the {planned} is keyed by {key}, which only callable inputs support (see CallableBase); "
                f"{name} is none"
            )
        elif isinstance(key, FieldKey) and key.path not in field_paths:
            problems.append(
                f"  - the {planned} is keyed by {key}, which a native reader delivers; only fields of "
                f"{name} can be keys"
            )
        elif key in SEQUENCE_KEYS and not tells_sequences:
            problems.append(f"  - the {planned} {NEEDS_SEQUENCES.format(name)}")
    if problems:
        raise SettingError(
            "The input cannot supply the keys of all random draws:\n" + "\n".join(dict.fromkeys(problems))
        )


def _tells_sequences(data_input: Any) -> bool:
    """Whether an input seems to know sequences, judging by its first sample."""
    get_place = getattr(type(data_input), "get_place", None)
    if not callable(data_input) or get_place is None or get_place is CallableBase.get_place:
        return False
    try:
        place = data_input.get_place(types.SampleInfo(0, 0, 0, 0))
    except Exception:  # it is reported when the first batch is due
        return True
    return place is None or place.sequence >= 0
