# SPDX-License-Identifier: Apache-2.0
"""What inputs, data sets, samplers and steps are, in one line each."""

from __future__ import annotations

from typing import Any

from .data_provider import DataProvider

_LONGEST = 400


def summary(value: Any) -> str:
    """Say what an object is, in one line of at most 400 characters: its ``repr`` where it has one of its own.

    Otherwise its class is named, and for a data set the number of samples told.
    """
    if any("__repr__" in cls.__dict__ for cls in type(value).__mro__ if cls is not object):
        text = " ".join(repr(value).split())
    elif isinstance(value, DataProvider):
        text = f"{type(value).__name__}({value.get_number_of_samples()} samples)"
    else:
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
