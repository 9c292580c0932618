# SPDX-License-Identifier: Apache-2.0
"""Index of a video: its frames, when they are shown, where decoding can start, what seems missing; its cache."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..draws.keyed_draws import Int64Array
from ..errors import FileError, VideoError
from ..providers.files.columns import Columns, load_or_make
from ..providers.files.remote_file import KnownFile, RemoteFile
from ..user_warnings import warn_user
from .files.byte_map import ByteMap
from .files.h264 import FieldPictureSearch, begins_refresh
from .files.stored_videos import RemoteVideo, StoredVideo, located
from .files.video_file import FileState
from .frame_converter import Colors, matrix_name
from .video_decoding import VideoSource, VideoStreamDecoder, source_name

_NUM_NEIGHBOURS = 4  # intervals on each side of a gap
# How many times as long as its neighbours a gap is at least. Cameras leave out a frame now and then: of time, more
# than one must be missing; of the encoder's counters, one.
OF_TIME, OF_COUNTERS = 2.5, 1.5
_MOST_GAPS = 0.05  # of all intervals: where there are more, the rate varies
_MOST_LISTED = 3


ADVICE = {
    "rotation": "Turn them with `upright=True`, or say with `upright=False` that they are meant as stored",
    "streams": "Name the one that is meant with `stream`",
}
_logger = logging.getLogger(__name__)


def quarter_turns(video: Any) -> int:
    """How many times frames of a video, an index or an open decoder, are to be turned clockwise by 90 degrees.

    Raises:
        VideoError: It is to be turned by another angle.
    """
    if video.rotation_deg % 90:
        rule = "frames can only be turned by multiples of 90 degrees"
        raise VideoError(f"With `upright`, {rule}, and the video states {video.rotation_deg}. Set it to False.")
    return int(video.rotation_deg // 90)


def describe_gaps(pts: Int64Array, time_base: Fraction, end_pts: int, rate: Fraction | None) -> list[str]:
    """Describe at which times frames are missing.

    Args:
        pts: ``(N,)`` times of the frames, strictly increasing.
        time_base: Seconds per unit of the times.
        end_pts: Where the last frame ends as the container states it; 0 where it does not.
        rate: Frames per second as the container states it, or None.
    """
    intervals = np.diff(pts)
    gaps = find_gaps(intervals)
    texts = [
        f"{_seconds(intervals[place], time_base)} between the frames {place} and {place + 1}, at "
        f"{_seconds(pts[place], time_base)}, where the neighbours are {_seconds(usual, time_base)} apart: about "
        f"{round(intervals[place] / usual) - 1} frame(s) are missing"
        for place, usual in gaps[:_MOST_LISTED]
    ]
    texts += [f"{len(gaps) - _MOST_LISTED} more such gaps"] * (len(gaps) > _MOST_LISTED)
    last = intervals[-2 * _NUM_NEIGHBOURS :]
    if rate and not len(last):
        last = np.array([round(1 / (rate * time_base))])
    left = end_pts - int(pts[-1])
    if len(last) and left > OF_COUNTERS * last.max() and last.max() <= OF_TIME * last.min():
        num_missing = round(left / float(np.median(last))) - 1
        texts.append(
            f"the last frame is at {_seconds(pts[-1], time_base)}, and ends at {_seconds(end_pts, time_base)} as "
            f"the container states it: about {num_missing} frame(s) are missing"
        )
    return texts


def _seconds(duration: float, time_base: Fraction) -> str:
    return f"{float(duration * time_base):.3f} s"


def find_gaps(intervals: Int64Array, factor: float = OF_TIME) -> list[tuple[int, float]]:
    """Find the intervals that are much longer than their neighbours, which are alike.

    So a rate that changes has no gaps, nor one that varies.

    Args:
        intervals: ``(N,)`` times between frames.
        factor: How many times as long as its neighbours a gap is at least.

    Returns:
        The place of each gap, and the usual interval around it.
    """
    if len(intervals) <= _NUM_NEIGHBOURS:
        return []
    is_longer = np.zeros(len(intervals), np.bool_)
    is_longer[1:] = intervals[1:] > factor * intervals[:-1]
    is_longer[:-1] |= intervals[:-1] > factor * intervals[1:]
    candidates = np.flatnonzero(is_longer)
    if len(candidates) > max(2, _MOST_GAPS * len(intervals)):
        return []
    found = []
    for place in candidates.tolist():
        start = max(place - _NUM_NEIGHBOURS, 0)
        neighbours = np.sort(np.delete(intervals[start : place + _NUM_NEIGHBOURS + 1], place - start))
        low, high = neighbours[0], neighbours[-2]  # the longest may be a gap, too
        if high <= factor * low and intervals[place] > factor * high:
            found.append((place, float(np.median(neighbours))))
    return found


BoolArray: TypeAlias = npt.NDArray[np.bool_]

# Containers that keep the time of presentation of each frame. Others (AVI, raw streams) have only an order of
# decoding: there the two are the same only for codecs without B-frames.
_TIMED_CONTAINERS = frozenset(("mov", "mp4", "matroska", "webm", "mpegts", "flv", "nut", "ogg"))
# Most packets have no time there: FFmpeg counts on from the last one that has, with other results after a seek.
_GUESSED_CONTAINERS = frozenset(("mpeg",))
_SEARCHED_CONTAINERS = frozenset(("mpegts", "mpeg"))
_CODECS_WITHOUT_B_FRAMES = frozenset(
    ("mjpeg", "vp8", "vp9", "ffv1", "huffyuv", "ffvhuff", "prores", "dnxhd", "png", "rawvideo", "utvideo")
)

INDEX_KIND = "index of a video's frames"
RATIOS = ("time_base", "average_rate")
# Of MP4, what tables say of these codecs is what packets say; VP8 and VP9 can have frames that are not shown.
_TOLD_BY_TABLES = frozenset(("h264", "hevc", "av1"))
_NUM_LOOKED_AT = 16  # packets
_MOST_OF_HEAD = 4096  # bytes, of a packet
_NOWHERE = np.zeros(0, np.int64)
_ARRAY: Any = attrs.cmp_using(np.array_equal)


@attrs.frozen(hash=False)
class VideoIndex:
    """The frames of one video stream in the order of presentation.

    Attributes:
        pts: ``(N,)`` int64, time of each frame in units of ``time_base``, strictly increasing.
        key_pts: ``(K,)`` int64, times of the key frames, increasing. One at or before a frame is where decoding
            can start to get it. Also those that are decoded and not shown, before the start of an edit list.
        seek_points: ``(K,)`` int64, the time to ask the container for, to get to each key frame.
        time_base: Seconds per unit of ``pts``.
        width: Width of the decoded frames in pixels, whatever the container states.
        height: Height of the decoded frames in pixels.
        codec_name: FFmpeg's name for the codec.
        average_rate: Frames per second as the container states it, or None.
        num_reordered: How many frames later than it is shown a frame is decoded at most; 0 without B-frames.
        is_seekable: Whether frames can be found by their times. Otherwise decoding starts with the first frame,
            and where no times are known, ``pts`` are the numbers of the frames.
        saved: Folder that the index was read from, and the checksum there; or None. Such an index is pickled as
            these.
        file_state: Size and time of change, or version, of the video file that was indexed; None where it was no
            file.
        doubts: Signs that frames are missing, such as gaps in time.
        pixel_format: FFmpeg's name for the format of the pixels, e.g. ``"yuv420p"``; empty where it is not known.
        has_packet_per_frame: Whether each frame is known to be one packet, and all have the same settings of the
            codec, so that frames can be cut out.
        color_matrix: Number of the color matrix that the first frame states (ISO/IEC 23091-2); 2 for none.
        hides_packets: Whether some packets show no frame, and are only referred to.
        rotation_deg: By how many degrees players turn the frames clockwise, in [0, 360). They are delivered as
            stored.
        is_mirrored: Whether players mirror them left to right before.
        other_streams: Which video streams the file has and which one is read; empty where it has one, or the
            stream was named.
        num_candidates: Between how many streams the choice was, cover pictures aside.
        own_bytes: Where a remote file has what is read of it, where the index was not read from a folder.
    """

    pts: Int64Array = attrs.field(eq=_ARRAY)
    key_pts: Int64Array = attrs.field(eq=_ARRAY)
    seek_points: Int64Array = attrs.field(eq=_ARRAY)
    time_base: Fraction
    width: int
    height: int
    codec_name: str
    average_rate: Fraction | None
    num_reordered: int
    is_seekable: bool
    saved: tuple[str, str] | None = attrs.field(default=None, eq=False)
    file_state: FileState | None = attrs.field(default=None, eq=False)
    doubts: tuple[str, ...] = ()
    pixel_format: str = ""
    has_packet_per_frame: bool = False
    color_matrix: int = 2
    hides_packets: bool = False
    rotation_deg: int = 0
    is_mirrored: bool = False
    other_streams: str = ""
    num_candidates: int = 1
    own_bytes: ByteMap | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def byte_map(self) -> ByteMap | None:
        """Where a remote file has what is read of it; None of other files, or where that is not known."""
        return self.own_bytes if self.saved is None else _loaded_bytes(*self.saved)

    @property
    def kind(self) -> str:
        """What decides where the video can be decoded, see `ImageContent.codecs`.

        Codec and format of pixels; the color matrix if it is not BT.601; ``hidden`` if packets show no frame.
        """
        return self.kind_by("stream")

    def kind_by(self, colors: Colors) -> str:
        """Get `kind` for a conversion of colors, see `FrameConverter`.

        With ``"bt601"``, the matrix is ``bt601`` where the stream has none and ``"stream"`` would assume another.
        """
        matrix = matrix_name(self.color_matrix, self.pixel_format, self.width, self.height, colors)
        words = self.codec_name, self.pixel_format, matrix, "hidden" * self.hides_packets
        return " ".join(filter(None, words))

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.pts)

    @property
    def is_key_frame(self) -> BoolArray:
        """``(N,)`` bool, whether each frame is a key frame."""
        return np.isin(self.pts, self.key_pts)

    @property
    def times_s(self) -> npt.NDArray[np.float64]:
        """``(N,)`` float64, time of each frame in seconds since the first one."""
        times_s: npt.NDArray[np.float64] = (self.pts - self.pts[0]) * float(self.time_base)
        return times_s

    @property
    def duration_s(self) -> float:
        """Time from the first frame to the end of the last one, which is taken to last as long as the others."""
        span_s = float(self.times_s[-1])
        if self.num_frames > 1:
            return span_s * self.num_frames / (self.num_frames - 1)
        return float(1 / self.average_rate) if self.average_rate else 0.0

    def key_before(self, frame: int) -> int | None:
        """Time of the last key frame at or before a frame; None where there is none."""
        position = int(self.key_pts.searchsorted(self.pts[frame], side="right")) - 1
        return int(self.key_pts[position]) if position >= 0 else None

    def warn_of_doubts(self, name: str, advice_on: Mapping[str, str] = ADVICE) -> None:
        """Warn that frames seem to be missing, are to be turned, or that there are other streams.

        Args:
            name: What the messages call the video.
            advice_on: What to do about ``"rotation"`` and ``"streams"``; no warning where it is not there.
        """
        if self.num_candidates > 1 and "streams" in advice_on:
            warn_user(
                f"The video {name} has several video streams ({self.other_streams}: the largest, of equal ones "
                f"the default or first one). {advice_on['streams']}."
            )
        elif self.other_streams:
            _logger.info("The video %s has several video streams: %s.", name, self.other_streams)
        if (self.rotation_deg or self.is_mirrored) and "rotation" in advice_on:
            mirror = "mirror them, and " * self.is_mirrored
            warn_user(
                f"Frames of the video {name} are delivered as they are stored, but players {mirror}turn them by "
                f"{self.rotation_deg} degrees clockwise. {advice_on['rotation']}."
            )
        if self.doubts:
            warn_user(
                f"Frames of the video {name} seem to be missing: {'; '.join(self.doubts)}. Either the file is "
                f"damaged (compare it with its original), or the camera left frames out."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder in the cache, else the arrays; regular times as three numbers."""
        if self.saved is not None:
            return load_index, self.saved
        values = [getattr(self, field.name) for field in attrs.fields(VideoIndex)][:-1]  # the bytes are many
        steps = np.unique(np.diff(self.pts))
        if len(steps) == 1:
            values[0] = range(int(self.pts[0]), int(self.pts[-1]) + 1, int(steps[0]))
        return _unpickled, tuple(values)


def _unpickled(pts: Int64Array | range, *rest: Any) -> VideoIndex:
    return VideoIndex(np.asarray(pts, np.int64), *rest)


def load_index(folder: str, checksum: str | None = None) -> VideoIndex:
    """Load an index from its folder in a cache; with a checksum, the one that another process has loaded.

    Raises:
        FileError: There is none, it is damaged, or it is another one.
    """
    # Not mapped: each mapping keeps a file open, and there may be thousands of videos.
    columns = Columns.open(folder, INDEX_KIND, is_mapped=False)
    notes = columns.notes
    if checksum is not None:
        columns.require(checksum, f"index of the video {notes['video']!r}")
    values = dict(notes["values"], doubts=tuple(notes["values"]["doubts"]))
    for name in RATIOS:
        values[name] = values[name] and Fraction(*values[name])
    times, (num_frames, end) = columns.arrays["times"], notes["edges"]
    parts = times[:num_frames], times[num_frames:end], times[end:]
    return VideoIndex(*parts, **values, saved=(folder, columns.checksum), file_state=FileState(*notes["state"]))


def _loaded_bytes(folder: str, checksum: str) -> ByteMap | None:
    """Load where a file has what is read of it, which only open videos need; None where that is not there."""
    try:
        columns = Columns.open(folder, INDEX_KIND, is_mapped=False)
    except FileError:
        return None
    if columns.checksum != checksum or "file" not in columns.notes:
        return None
    start, size, stored_size, marks, starts = columns.notes["file"]
    ends = np.cumsum([length for _, length in starts]).tolist()
    content = columns.arrays["head"].tobytes()
    head = [(begin, content[end - length : end]) for (begin, length), end in zip(starts, ends, strict=True)]
    file = KnownFile(start, size, stored_size, marks, head)
    return ByteMap(file, columns.arrays["spans"], columns.arrays["places"])


def index_video(
    source: VideoSource,
    stream: int | None = None,
    *,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VideoIndex:
    """Find the frames of a video stream, by reading the container; only the first frame is decoded, for its size.

    Of a remote MP4 of H.264, HEVC or AV1 without fragments, the tables are read, and few packets: about 1 MB.
    (So it is not noticed that the stream's own counters skip.) Other remote videos are read once.

    Streams whose container does not record the times of their frames (AVI with B-frames, raw streams, damaged time
    stamps), and H.264 with field pictures, are decoded once. The frames are those that decoding gives: not those
    that an edit list cuts off, nor those that a codec keeps to itself.

    FFmpeg skips parts of a file that it cannot read. Where frames seem to be missing (a gap in time that no
    neighbouring interval has; fewer frames than the container lists), a warning names the places.

    Args:
        source: Path, URL, bytes, or an open binary file.
        stream: Number of the video stream among the video streams of the container. None for the one with the
            largest frames: of several, the default one of the container, else the first. Cover pictures do not
            count. Where there are several, a warning names them.
        name: What messages call the video; None for its path.
        storage_options: Arguments of a remote file system, see `FileDataProvider`.

    Raises:
        SettingError: PyAV is missing, or there is no such video stream.
        FileError: The file cannot be opened or read.
        VideoError: It is not a video, has no frames, or is incomplete.
    """
    source = located(source, storage_options)
    index = make_index(source, stream, name)
    index.warn_of_doubts(name or source_name(source))
    return index


def make_index(
    source: VideoSource, stream: int | None = None, name: str | None = None, num_decoded: int | None = None
) -> VideoIndex:
    """Do what `index_video` does, without the warning.

    With the number of frames that decoding gave, streams without times are not decoded again.
    """
    state = None
    if isinstance(source, (str, os.PathLike)):
        state = FileState.of_video(source, name)
    elif isinstance(source, StoredVideo):
        state = source.indexed or source.state()
        source = source.as_indexed(state)
    reads_tables = isinstance(source, RemoteVideo)
    with contextlib.ExitStack() as closing:
        decoder = closing.enter_context(VideoStreamDecoder(source, stream=stream, name=name))
        known = None if decoder.stored_file is None else decoder.stored_file.as_known()
        packets = _PacketTable(decoder, reads_tables=reads_tables)
        if packets.needs_content:
            closing.close()
            decoder = closing.enter_context(VideoStreamDecoder(source, stream=stream, name=name))
            packets = _PacketTable(decoder)
        _check_complete(decoder, packets)
        num_unread = decoder.count_unread(len(packets.pts), int(packets.dts.max(initial=-1)))
        duration_s = decoder.stated_duration_s
        has_packet_per_frame = packets.keeps_settings and packets.are_frames(decoder)
        index = None
        if packets.are_decisive(decoder):
            index = _index(decoder, *packets.frames(decoder), is_seekable=True)
        elif num_decoded and packets.lacks_times:
            index = _index_without_times(decoder, num_decoded)
    if index is None:
        with VideoStreamDecoder(source, stream=stream, name=name) as decoder:
            index = _index_by_decoding(decoder)
            if index.is_seekable:
                index = attrs.evolve(index, seek_points=packets.seek_points(index.key_pts, decoder))
    doubts = packets.doubts(index, num_unread, duration_s)
    has_packet_per_frame &= index.is_seekable
    own_bytes = packets.byte_map(known, index)
    more: dict[str, Any] = {"has_packet_per_frame": has_packet_per_frame, "own_bytes": own_bytes}
    more["hides_packets"] = packets.hides_any
    return attrs.evolve(index, file_state=state, doubts=doubts, **more)


def _index(
    decoder: VideoStreamDecoder,
    pts: Int64Array,
    key_pts: Int64Array = _NOWHERE,
    seek_points: Int64Array = _NOWHERE,
    num_reordered: int = 0,
    *,
    is_seekable: bool = False,
) -> VideoIndex:
    if not len(pts):
        raise VideoError(f"There are no frames in the video {decoder.name}.")
    frames = decoder.time_base, decoder.width, decoder.height, decoder.codec_name, decoder.average_rate
    order = num_reordered, is_seekable
    names = "pixel_format", "color_matrix", "rotation_deg", "is_mirrored", "other_streams", "num_candidates"
    seen: dict[str, Any] = {name: getattr(decoder, name) for name in names}
    return VideoIndex(pts, key_pts, seek_points, *frames, *order, **seen)


class _PacketTable:
    """What the packets of a stream say, in the order of decoding."""

    def __init__(self, decoder: VideoStreamDecoder, *, reads_tables: bool = False) -> None:
        """Read all packets.

        Args:
            decoder: The open video.
            reads_tables: Whether the tables of a remote MP4 will do. Then contents are looked at only of the first
                packets, and of a few key frames, which say whether all must be read (``needs_content``).
        """
        rows: list[tuple[int, int, bool, bool, bool]] = []
        spans: list[tuple[int, int]] = []
        self.lacks_times = False
        self.hides_any = False
        self.has_field_pictures = False
        self.end_pts = 0
        is_h264 = decoder.codec_name == "h264"
        fields = FieldPictureSearch(decoder.extradata) if is_h264 else None
        self.keeps_settings = True
        reads_tables &= decoder.codec_name in _TOLD_BY_TABLES and not (fields and fields.is_possible)
        file = decoder.stored_file if reads_tables and decoder.has_sample_tables() else None
        entries: Iterable[Any] = () if file is None else getattr(decoder.stream, "index_entries", ())
        listed_keys = {entry.pos for entry in entries if entry.is_keyframe}
        for packet in decoder.packets():
            if packet.has_sidedata("new_extradata"):
                self.keeps_settings &= bytes(packet.get_sidedata("new_extradata")) == decoder.extradata
            decoder.take_size_of(packet)
            if not packet.size:
                continue
            has_content = file is None or not file.skips_content
            if file is not None and len(spans) >= _NUM_LOOKED_AT and decoder.is_size_known:
                file.skips_content = True  # of what FFmpeg has not read yet
            start = -1 if packet.pos is None else packet.pos
            spans.append((start, start + packet.size))
            if fields is not None and file is None:
                fields.count_picture(bytes(packet), packet.is_keyframe)
            if packet.pts is None:
                self.lacks_times = True
                rows.append((0, packet.dts or 0, False, False, packet.is_corrupt))
                continue
            is_hidden = not is_shown(packet, decoder.codec_name)
            self.hides_any |= is_hidden
            is_visible = not (packet.is_discard or is_hidden)
            dts = packet.pts if packet.dts is None else packet.dts
            # FFmpeg reads in the content whether a packet is a key frame, where it has it.
            is_key = packet.is_keyframe if has_content else start in listed_keys
            is_key = is_key and not (is_h264 and has_content and begins_refresh(bytes(packet)))
            if (
                fields is not None
                and has_content
                and (packet.is_keyframe or fields.is_possible)
                and not self.has_field_pictures
            ):
                self.has_field_pictures = fields.is_found_in(bytes(packet))
            rows.append((packet.pts, dts, is_key, is_visible, packet.is_corrupt))
            self.end_pts = max(self.end_pts, packet.pts + (packet.duration or 0))
        self.lacks_pictures = fields is not None and (
            fields.has_skipped or any(find_gaps(np.diff(np.unique(group)), OF_COUNTERS) for group in fields.orders)
        )
        self.needs_content = False
        if file is not None:
            file.skips_content = False
            self.needs_content = is_h264 and self._has_refresh(file, rows, spans)
        columns = np.array(rows, np.int64).reshape(-1, 5)
        self.pts, self.dts = columns[:, :2].T
        self.spans = np.array(spans, np.int64).reshape(-1, 2)
        self.is_key, self.is_shown, self.is_corrupt = columns[:, 2:].astype(np.bool_).T

    @staticmethod
    def _has_refresh(file: RemoteFile, rows: Sequence[Sequence[int]], spans: Sequence[tuple[int, int]]) -> bool:
        """Whether a key frame, of some that are looked at, begins a gradual refresh: then all must be."""
        keys = [place for place, row in enumerate(rows) if row[2]]
        for place in {*keys[:2], *keys[-1:]}:
            start, end = spans[place]
            file.seek(start)
            if begins_refresh(file.read(min(end - start, _MOST_OF_HEAD))):
                return True
        return False

    def are_frames(self, decoder: VideoStreamDecoder) -> bool:
        """Whether each frame is one of the packets, of the same time."""
        tells_times = not _TIMED_CONTAINERS.isdisjoint(decoder.container_name.split(","))
        if self.lacks_times or not (tells_times or decoder.codec_name in _CODECS_WITHOUT_B_FRAMES):
            return False
        if self.has_field_pictures:  # two make a frame, whether they are two packets or one
            return False
        shown = self.pts[self.is_shown]
        return bool(len(shown)) and len(np.unique(shown)) == len(shown)

    def are_decisive(self, decoder: VideoStreamDecoder) -> bool:
        """Whether decoding will surely give the frames that are shown, in the order of their times."""
        if not self.are_frames(decoder):
            return False
        shown = self.pts[self.is_shown]
        # Frames before the first key frame, in either order, may be decoded or not: that is up to the decoder.
        return bool(self.is_key[0]) and int(shown.min()) >= int(self.pts[0])

    def frames(self, decoder: VideoStreamDecoder) -> tuple[Int64Array, Int64Array, Int64Array, int]:
        """Times of the shown frames and of key frames, where to seek, and how far frames are reordered."""
        shown = self.pts[self.is_shown]
        order = np.argsort(shown, kind="stable")
        num_reordered = int((order - np.arange(len(order))).max(initial=0))
        key_pts = np.unique(self.pts[self.is_key])
        return np.ascontiguousarray(shown[order]), key_pts, self.seek_points(key_pts, decoder), num_reordered

    def seek_points(self, key_pts: Int64Array, decoder: VideoStreamDecoder) -> Int64Array:
        """Times to ask the container for, to get to key frames."""
        # A container without a table is searched for the last packet up to that time of decoding.
        has_table = _SEARCHED_CONTAINERS.isdisjoint(decoder.container_name.split(","))
        if has_table or self.lacks_times or not np.isin(key_pts, self.pts).all():
            return key_pts
        pts, places = np.unique(self.pts, return_index=True)
        seek_points: Int64Array = self.dts[places[pts.searchsorted(key_pts)]]
        return seek_points

    def byte_map(self, known: KnownFile | None, index: VideoIndex) -> ByteMap | None:
        """Find where the file has each frame; None where that is not known."""
        if known is None or not index.is_seekable or not len(self.spans) or self.spans.min() < 0:
            return None
        shown = np.flatnonzero(self.is_shown)
        places = shown[np.argsort(self.pts[shown], kind="stable")]
        if not np.array_equal(self.pts[places], index.pts):
            return None
        return ByteMap(known, self.spans, places)

    def doubts(self, index: VideoIndex, num_unread: int, duration_s: float | None) -> tuple[str, ...]:
        """Describe the signs that frames are missing.

        Args:
            index: What was found.
            num_unread: How many more frames the container lists than could be read.
            duration_s: Duration of the stream as the container states it.
        """
        texts = []
        if num_unread:
            texts.append(f"its container lists {num_unread} frame(s) that cannot be found in it")
        if index.is_seekable:
            end_pts = round(Fraction(duration_s or 0) / index.time_base)
            is_later = end_pts > self.end_pts and not num_unread
            texts += describe_gaps(index.pts, index.time_base, end_pts if is_later else 0, index.average_rate)
        if self.is_corrupt.any():
            texts.append(f"{np.count_nonzero(self.is_corrupt)} packet(s) are damaged, as the container tells")
        num_not_decoded = self._count_not_decoded(index)
        if num_not_decoded:
            texts.append(f"{num_not_decoded} of {len(self.pts)} packets cannot be decoded to frames")
        if self.lacks_pictures and not texts:
            texts.append("the stream counts its pictures (H.264), and some numbers are not there")
        return tuple(texts)

    def _count_not_decoded(self, index: VideoIndex) -> int:
        if self.has_field_pictures:
            return 0
        if self.lacks_times or not index.is_seekable:
            return max(len(self.pts) - index.num_frames, 0)
        expected = np.unique(self.pts[self.is_shown])
        expected = expected[expected >= index.pts[0]]  # a recording can begin between two key frames
        return int(np.count_nonzero(~np.isin(expected, index.pts)))


def is_shown(packet: Any, codec_name: str) -> bool:
    """Whether a packet of a codec gives a frame that is shown."""
    if codec_name not in ("vp8", "vp9"):
        return True
    # VP8 and VP9 have frames that are only referred to. VP9 usually packs one into a "superframe" with the next
    # shown one, which ends with a marker.
    data = memoryview(packet)
    if codec_name == "vp8":
        return bool(data[0] & 0x10)
    if data[-1] & 0xE0 == 0xC0:
        return True
    # From the highest bit: marker (2 bits), profile (2, and 1 more with profile 3), show_existing_frame,
    # frame_type, show_frame.
    bits = data[0] << 1 if data[0] & 0x30 == 0x30 else data[0]
    return bool(bits & 0x08) or bool(bits & 0x02)


def _check_complete(decoder: VideoStreamDecoder, packets: _PacketTable) -> None:
    num_missing_bytes = decoder.count_missing_bytes()
    is_cut = bool(packets.is_corrupt[-1:].any())
    num_frames = int(np.count_nonzero(~packets.is_corrupt))
    stated, duration_s = decoder.stated_num_frames, decoder.stated_duration_s
    lacks_frames = num_frames < stated
    if not stated and duration_s is not None and num_frames:
        interval_s = packets.end_pts * float(decoder.time_base) / num_frames
        lacks_frames = packets.end_pts * float(decoder.time_base) < duration_s - interval_s / 2
    if not is_cut and not (num_missing_bytes and lacks_frames):
        return
    of_all = f" of {stated}" if stated else ""
    up_to = f", up to {packets.pts[:num_frames].max() * float(decoder.time_base):.3f} s" if num_frames else ""
    lacking = f" ({num_missing_bytes} bytes are missing at its end)" if num_missing_bytes else ""
    breaks = f"it breaks off after {num_frames}{of_all} frames{up_to}"
    raise VideoError(f"The video {decoder.name} is incomplete{lacking}: {breaks}.")


def _index_by_decoding(decoder: VideoStreamDecoder) -> VideoIndex:
    pts: list[int | None] = []
    is_key: list[bool] = []
    for frame in decoder:
        pts.append(frame.pts)
        is_key.append(bool(frame.key_frame))
    if None not in pts:
        times = np.array(pts, np.int64)
        if (np.diff(times) > 0).all():
            if not _GUESSED_CONTAINERS.isdisjoint(decoder.container_name.split(",")):
                return _index(decoder, times)
            # How many frames are in the codec is not known; too many only makes seeks rarer.
            key_pts = times[np.array(is_key, np.bool_)]
            return _index(decoder, times, key_pts, key_pts, 4, is_seekable=True)
    return _index_without_times(decoder, len(pts))


def _index_without_times(decoder: VideoStreamDecoder, num_frames: int) -> VideoIndex:
    index = _index(decoder, np.arange(num_frames))
    rate = index.average_rate
    return attrs.evolve(index, time_base=1 / rate if rate else Fraction(1, 25))


_VALUES = (
    *("time_base", "width", "height", "codec_name", "average_rate", "num_reordered", "is_seekable", "doubts"),
    *("pixel_format", "has_packet_per_frame", "color_matrix", "hides_packets"),
    *("rotation_deg", "is_mirrored", "other_streams", "num_candidates"),
)


def cached_video_index(
    cache: str | os.PathLike[str], path: str | os.PathLike[str] | StoredVideo, stream: int | None = None
) -> VideoIndex:
    """Get the index of a video from a cache; its arrays are read-only.

    It counts if the video still has the size and time of change that it was made for; if it is remote, the size,
    and what its store says of its version. Else, and if it is damaged, one of several processes builds it again.

    Args:
        cache: The folder; it is made if it is not there.
        path: The video.
        stream: Number of the video stream among the video streams of the container; None as for `index_video`.

    Raises:
        SettingError: PyAV is missing, there is no such stream, or the folder cannot be written to.
        FileError: The video cannot be opened.
        VideoError: It is not a video, or incomplete.
    """
    path = located(path)
    if isinstance(path, StoredVideo):
        place, shown, state = path.url, path.name, path.state()
        path = path.as_indexed(state)
    else:
        place = shown = os.path.abspath(path)
        state = FileState.of_video(path)

    def make() -> Columns:
        index = make_index(path, stream)
        values = {name: getattr(index, name) for name in _VALUES}
        for name in RATIOS:
            values[name] = values[name] and values[name].as_integer_ratio()
        times = np.concatenate([index.pts, index.key_pts, index.seek_points])  # one file for all is read faster
        edges = np.cumsum([index.num_frames, len(index.key_pts)]).tolist()
        notes: dict[str, Any] = {"video": shown, "state": state, "edges": edges, "values": values}
        arrays: dict[str, npt.NDArray[Any]] = {"times": times}
        if index.own_bytes is not None:
            file = index.own_bytes.file
            starts = [[start, len(content)] for start, content in file.head]
            notes["file"] = [file.start, file.size, file.stored_size, dict(file.marks), starts]
            arrays |= {"spans": index.own_bytes.spans, "places": index.own_bytes.places}
            arrays["head"] = np.frombuffer(b"".join(content for _, content in file.head), np.uint8)
        return Columns(INDEX_KIND, arrays, notes)

    key = ["video with colors of containers", os.fsdecode(place), stream]
    return load_or_make(cache, key, load_index, make, is_current=lambda index: index.file_state == state)
