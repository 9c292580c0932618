# SPDX-License-Identifier: Apache-2.0
"""Where in a remote file a video has what is read of it, so that a clip takes one request."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...draws.keyed_draws import Int64Array
from ...providers.files.remote_file import KnownFile

_BEFORE = 1 << 16  # bytes that containers read before a key frame: the start of a cluster, sound of that time
_LEAST_GAP = 1 << 20  # bytes between two clips, for which a further request pays


@attrs.frozen(eq=False)
class ByteMap:
    """The bytes of a video.

    Attributes:
        file: The file, in the version that was indexed, with the bytes that are read to open the video.
        spans: ``(P, 2)`` int64, where each packet begins and ends, in the order of decoding.
        places: ``(N,)`` int64, the packet of each frame, in the order of presentation.
    """

    file: KnownFile
    spans: Int64Array
    places: Int64Array

    def ranges(self, frames: Sequence[int], keys: Sequence[int], num_delayed: int) -> list[tuple[int, int]]:
        """Find the bytes that are needed to decode frames, one range for all that are close to each other.

        Args:
            frames: Numbers of the frames, ascending.
            keys: Number of the key frame from which each is decoded.
            num_delayed: How many more packets a decoder takes before it gives a frame.
        """
        found: list[tuple[int, int]] = []
        for key, frame in zip(keys, frames, strict=True):
            first = int(self.places[key])
            spans = self.spans[first : max(int(self.places[frame]), first) + num_delayed + 1]
            start, end = max(int(spans[:, 0].min()) - _BEFORE, 0), int(spans[:, 1].max())
            if found and start - found[-1][1] < _LEAST_GAP:
                found[-1] = min(found[-1][0], start), max(found[-1][1], end)
            else:
                found.append((start, end))
        return found
