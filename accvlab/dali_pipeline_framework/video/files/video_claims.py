# SPDX-License-Identifier: Apache-2.0
"""What a video claims in a few bytes: FFmpeg makes a table of all frames when it opens an MP4 or MOV file.

::

    moov ─ trak ─ mdia ─ hdlr                  kind of the track
                         minf ─ stbl ─ stts    durations of the frames
                                       stsz    number of frames, and their size where all have one
    moof ─ traf ─ trun                         number of frames of a fragment
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO, Final

import attrs

from ...limits.file_limits import VIDEO_FRAMES
from .container import mp4_boxes
from .video_file import opened

_MOST_BOXES: Final = 1 << 21
_CONTAINERS: Final = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf")


def excessive_claim(source: Any) -> str:
    """Say what a video claims that cannot be, as part of a sentence; empty where it may be opened.

    It is a path, bytes, or an open binary file, whose position is restored.
    """
    try:
        with opened(source) as file:
            return _claim(file)
    except (OSError, ValueError, struct.error, AttributeError):  # to open it tells why
        return ""


@attrs.define
class _Track:
    is_video: bool = False
    is_pcm: bool = False
    frame_bytes: int = 0
    num_frames: int = 0

    def claim(self, file_bytes: int) -> str:
        # Sound that is not compressed has a "frame" for each moment, of which FFmpeg makes no table.
        excess = "" if self.is_pcm else _excess(self.num_frames)
        if excess or self.frame_bytes * self.num_frames <= file_bytes:
            return excess
        each = f"{self.num_frames} frames of {self.frame_bytes} bytes each"
        return f"it claims {each}, but the file has {file_bytes} bytes"


def _excess(num_frames: int) -> str:
    return VIDEO_FRAMES.excess(num_frames, "it claims {} frames")


def _claim(file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    track, num_in_fragments = _Track(), 0
    for number, (name, content, _) in enumerate(mp4_boxes(file, size, _CONTAINERS, _MOST_BOXES), start=1):
        if name == b"trak":
            if claim := track.claim(size):
                return claim
            track = _Track()
        elif name == b"hdlr" and content[4:8] != b"dhlr":  # else how MOV stores the data
            track.is_video = content[8:12] == b"vide"
        elif name == b"stts":
            count, _, duration = struct.unpack_from(">III", content, 4)
            track.is_pcm = not track.is_video and count == 1 and duration == 1
        elif name == b"stsz":
            track.frame_bytes, track.num_frames = struct.unpack_from(">II", content, 4)
        elif name == b"stz2":
            (track.num_frames,) = struct.unpack_from(">I", content, 8)
        elif name == b"trun":
            num_in_fragments += struct.unpack_from(">I", content, 4)[0]
            if claim := _excess(num_in_fragments):
                return claim
        if number == _MOST_BOXES:
            return f"it has more than {_MOST_BOXES} boxes"
    return track.claim(size)
