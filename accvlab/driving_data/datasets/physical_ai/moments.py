# SPDX-License-Identifier: Apache-2.0
"""At which times of the clips of PhysicalAI-AV there are samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from attrs.validators import optional

from accvlab.dali_pipeline_framework.checks import choice, number, number_list, valid

from ..driving.array_types import Int64

_CHOICES = ("first event", "events", "default keyframe")
_DEFAULT_KEYFRAME_US = 5_100_000


@attrs.frozen(kw_only=True)
class Moments:
    """At which times t0 there are samples in each clip.

    The defaults are the choice of Alpamayo's training: one sample per clip, at the first of its events
    (``event_t0s`` of the list of clips) that has enough before and after it. Times are seconds of the clip.

    Attributes:
        at: ``"first event"``; ``"events"``, all that have enough before and after; ``"default keyframe"``, the
            time 5.1 s, in clips that have at least one event with enough before and after; or times, the same for
            all clips or by the name of the clip. A sample at a time for which the clip has no data fails when it
            is loaded.
        every_s: In place of ``at``: all multiples of so many seconds that have data from ``history_s`` before to
            ``future_s`` after.
        history_s: Least time from the start of a clip to an event, seconds.
        future_s: Least time from an event to the end of its clip (``end_timestamp``), seconds.
    """

    at: str | Sequence[float] | Mapping[str, Sequence[float]] = "first event"
    every_s: float | None = attrs.field(default=None, validator=optional(valid(number, at_least=1e-3)))
    history_s: float = attrs.field(default=1.6, validator=valid(number, at_least=0))
    future_s: float = attrs.field(default=6.4, validator=valid(number, at_least=0))

    def __attrs_post_init__(self) -> None:
        """Refuse what are no times."""
        rule = f"{', '.join(map(repr, _CHOICES))}, or times in seconds, for all clips or by the name of each"
        if isinstance(self.at, str):
            choice(self.at, "at", _CHOICES)
        else:
            for times in self.at.values() if isinstance(self.at, Mapping) else [self.at]:
                number_list(times, "at", rule)

    @property
    def needs_events(self) -> bool:
        """Whether the list of clips must have events."""
        return self.every_s is None and isinstance(self.at, str)

    def of_list(self, clip: str, events: Int64, end: int) -> Int64 | None:
        """Times of the samples of a clip, ``(n,)`` microseconds, ascending; None where its data decide.

        Args:
            clip: Its name.
            events: Its events, microseconds.
            end: When it ends.
        """
        if self.every_s is not None:
            return None
        if isinstance(self.at, str):
            is_kept = (events >= round(self.history_s * 1e6)) & (events + round(self.future_s * 1e6) <= end)
            if self.at == "default keyframe":
                return np.full(min(int(is_kept.sum()), 1), _DEFAULT_KEYFRAME_US)
            return events[is_kept][:1] if self.at == "first event" else np.unique(events[is_kept])
        times = self.at.get(clip, ()) if isinstance(self.at, Mapping) else self.at
        return np.unique(np.rint(np.multiply(times, 1e6)).astype(np.int64))

    def of_data(self, start: int, end: int) -> Int64:
        """Times of the samples of a clip that has data from one time to another, for `every_s`."""
        step = round((self.every_s or 1) * 1e6)
        first = -(-(start + round(self.history_s * 1e6)) // step)
        return np.arange(first, (end - round(self.future_s * 1e6)) // step + 1, dtype=np.int64) * step
