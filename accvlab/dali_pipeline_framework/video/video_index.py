# SPDX-License-Identifier: Apache-2.0
"""Index of a video: the times of its frames, and where decoding can start; its cache."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Mapping
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
from .files.packets import begins_refresh, pictures_in
from .files.stored_videos import FileState, StoredVideo, located
from .frame_converter import Colors, matrix_name
from .video_decoding import VideoSource, VideoStreamDecoder, source_name

ADVICE = {
    "rotation": "Turn them with `upright=True`, or say with `upright=False` that they are meant as stored",
    "streams": "Name the one that is meant with `stream`",
}
_logger = logging.getLogger(__name__)


def advice_for(upright: bool | None) -> dict[str, str]:
    """Get the remedies for `VideoIndex.warn_of_choices`; with a setting for it, none for ``"rotation"``."""
    return {what: text for what, text in ADVICE.items() if upright is None or what != "rotation"}


def quarter_turns(video: VideoIndex) -> int:
    """How many times frames of a video are to be turned clockwise by 90 degrees.

    Raises:
        VideoError: It is to be turned by another angle.
    """
    if video.rotation_deg % 90:
        rule = "frames can only be turned by multiples of 90 degrees"
        raise VideoError(f"With `upright`, {rule}, and the video states {video.rotation_deg}. Set it to False.")
    return int(video.rotation_deg // 90)


# What each packet of a stream states: when it is shown, decoded, and no longer shown; whether decoding can start
# there, it gives a frame, and the container cut it short; for the last, see `VideoIndex`.
_Packets: TypeAlias = "np.recarray[Any, Any]"
_OF_PACKET = ["pts", "dts", "end_pts", "is_key", "is_shown", "is_corrupt", "hides_frames"]
_PACKET = np.dtype({"names": _OF_PACKET, "formats": [np.int64] * 3 + [np.bool_] * 4})

# Times of a constant rate: how many show one, how much they vary, and how much longer a gap is.
_FEWEST_INTERVALS, _JITTER, _GAP = 8, 0.2, 1.5

# Containers that keep the time of presentation of each frame. Others (AVI, raw streams, MPEG-PS) have at most an
# order of decoding: there the two are the same only for codecs without B-frames.
_TIMED_CONTAINERS = frozenset(("mov", "mp4", "matroska", "webm", "mpegts", "flv", "nut", "ogg", "ivf"))
_CODECS_WITHOUT_B_FRAMES = frozenset(
    ("mjpeg", "vp8", "vp9", "ffv1", "huffyuv", "ffvhuff", "prores", "dnxhd", "png", "rawvideo", "utvideo")
)

INDEX_KIND = "index of a video's frames"
RATIOS = ("time_base", "average_rate")
# Of a remote MP4, the tables and the content of so many packets, and of some key frames, are read.
_TOLD_BY_TABLES = frozenset(("h264", "hevc", "av1"))
_NUM_LOOKED_AT = 16
_MOST_OF_HEAD = 4096  # bytes, of a packet
_ARRAY: Any = attrs.cmp_using(np.array_equal)


@attrs.frozen(hash=False)
class VideoIndex:
    """The frames of one video stream in the order of presentation.

    Attributes:
        pts: ``(N,)`` int64, time of each frame in units of ``time_base``, strictly increasing.
        key_pts: ``(K,)`` int64, times of the key frames, increasing, also of key frames before the start of an
            edit list, which are decoded but not shown. Decoding of a frame starts at a key frame at or before it.
        seek_points: ``(K,)`` int64, for each key frame the time to which the container must seek.
        time_base: Seconds per unit of ``pts``.
        width: Width of the decoded frames in pixels, whatever the container states.
        height: Height of the decoded frames in pixels.
        codec_name: FFmpeg's name for the codec.
        average_rate: Frames per second as the container states it, or None.
        num_reordered: Largest number of places by which a frame is later in the order of decoding than in the
            order of presentation; 0 without B-frames.
        saved: Folder that the index was read from, and its checksum; or None. If they are given, the index is
            pickled as folder and checksum only.
        file_state: Size and time of change, or version, of the video file that was indexed; None if no
            file was indexed, but e.g. bytes.
        pixel_format: FFmpeg's name for the format of the pixels, e.g. ``"yuv420p"``; empty if it is not known.
        color_matrix: Number of the color matrix that the first frame states (ISO/IEC 23091-2); 2 for none.
        hides_frames: Whether DALI numbers the frames differently on a GPU. It does if frames are interlaced, or if
            some pictures have no packet of their own that shows them. In VP8, VP9 and AV1, a picture may serve as
            a reference only, or be shown by a later packet.
        rotation_deg: By how many degrees players turn the frames clockwise, in [0, 360). Frames are delivered as
            stored.
        is_mirrored: Whether players mirror the frames left to right before they turn them.
        other_streams: Which video streams the file has and which one is read; empty if it has one, or the
            stream was named.
        num_candidates: Number of video streams that could have been chosen, without cover pictures; 1 if the
            stream was named.
        num_left_out: Number of frames left out, since they refer to frames before the first key frame.
        own_file: Size, version and first blocks of a remote file, where the index was not read from a folder.
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
    saved: tuple[str, str] | None = attrs.field(default=None, eq=False)
    file_state: FileState | None = attrs.field(default=None, eq=False)
    pixel_format: str = ""
    color_matrix: int = 2
    hides_frames: bool = False
    rotation_deg: int = 0
    is_mirrored: bool = False
    other_streams: str = ""
    num_candidates: int = 1
    num_left_out: int = 0
    own_file: KnownFile | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def known_file(self) -> KnownFile | None:
        """Size and version of a remote file when it was indexed; None for local files."""
        if self.saved is None:
            return self.own_file
        with contextlib.suppress(FileError):
            columns = Columns.open(self.saved[0], INDEX_KIND, is_mapped=False)
            notes = columns.notes
            if columns.checksum == self.saved[1] and "start" in notes:
                head = io.BytesIO(columns.arrays["head"].tobytes())
                blocks = {number: head.read(size) for number, size in notes["blocks"]}
                return KnownFile(tuple(notes["state"]), notes["start"], blocks)
        return None

    @property
    def kind(self) -> str:
        """Properties that decide where the video can be decoded, see `ImageContent.codecs`.

        Codec and format of pixels; the color matrix if it is not BT.601; ``hidden`` if it `hides_frames`.
        """
        return self.kind_by("stream")

    def kind_by(self, colors: Colors) -> str:
        """Get `kind` for a conversion of colors, see `FrameConverter`.

        The result differs from `kind` for one case only: a large stream that states no matrix, which counts as
        BT.709 unless ``colors="bt601"``. With this setting its kind contains ``bt601`` in place of ``bt709``.
        """
        matrix = matrix_name(self.color_matrix, self.pixel_format, self.width, self.height, colors)
        words = self.codec_name, self.pixel_format, matrix, "hidden" * self.hides_frames
        return " ".join(filter(None, words))

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.pts)

    @property
    def times_s(self) -> npt.NDArray[np.float64]:
        """``(N,)`` float64, time of each frame in seconds since the first one."""
        times_s: npt.NDArray[np.float64] = (self.pts - self.pts[0]) * float(self.time_base)
        return times_s

    def key_before(self, frame: int) -> int | None:
        """Time of the last key frame at or before a frame; None if there is none."""
        position = int(self.key_pts.searchsorted(self.pts[frame], side="right")) - 1
        return int(self.key_pts[position]) if position >= 0 else None

    def warn_of_choices(self, name: str, advice_on: Mapping[str, str] = ADVICE) -> None:
        """Warn of frames that players would turn, of other streams, and of frames that seem to be missing.

        Args:
            name: Name of the video in messages.
            advice_on: Remedies for ``"rotation"`` and ``"streams"``; without a remedy for one of them, there is no
                warning of it.
        """
        if self.num_candidates > 1 and "streams" in advice_on:
            warn_user(
                f"The video {name} has several video streams ({self.other_streams}: the largest, of equal ones "
                f"the default or first one). {advice_on['streams']}."
            )
        elif self.other_streams:
            _logger.info("The video %s has several video streams: %s.", name, self.other_streams)
        gap = self._gap()
        if gap:
            warn_user(f"Frames of the video {name} seem to be missing: {gap}. Or its camera has left some out.")
        if (self.rotation_deg or self.is_mirrored) and "rotation" in advice_on:
            mirror, advice = "mirror them, and " * self.is_mirrored, advice_on["rotation"]
            if self.rotation_deg % 90 and advice == ADVICE["rotation"]:
                advice = "`upright=False` says that they are meant as stored"
            warn_user(
                f"Frames of the video {name} are delivered as they are stored, but players {mirror}turn them by "
                f"{self.rotation_deg} degrees clockwise. {advice}."
            )

    def _gap(self) -> str:
        """Describe where one or two times are missing in a video of a constant rate; empty elsewhere."""
        intervals = np.diff(self.pts)
        if len(intervals) < _FEWEST_INTERVALS:
            return ""
        usual = float(np.median(intervals))
        gaps = np.flatnonzero(intervals > _GAP * usual)
        if not 1 <= len(gaps) <= 2 or np.ptp(np.delete(intervals, gaps)) > _JITTER * usual:
            return ""
        frame, unit_s = int(gaps[0]), float(self.time_base)
        return (
            f"{intervals[frame] * unit_s:.3f} s between the frames {frame} and {frame + 1}, at "
            f"{self.pts[frame] * unit_s:.3f} s, where others are {usual * unit_s:.3f} s apart"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder in the cache, else the arrays; regular times as three numbers."""
        if self.saved is not None:
            return load_index, self.saved
        values = [getattr(self, field.name) for field in attrs.fields(VideoIndex)][:-1]
        steps = np.unique(np.diff(self.pts))
        if len(steps) == 1:
            values[0] = range(int(self.pts[0]), int(self.pts[-1]) + 1, int(steps[0]))
        return _unpickled, tuple(values)


_ARRAYS_AND_FILES = "pts", "key_pts", "seek_points", "saved", "file_state", "own_file"
_VALUES = [field.name for field in attrs.fields(VideoIndex) if field.name not in _ARRAYS_AND_FILES]


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
    values = dict(notes["values"])
    for name in RATIOS:
        values[name] = values[name] and Fraction(values[name])
    times, (num_frames, end) = columns.arrays["times"], notes["edges"]
    parts = times[:num_frames], times[num_frames:end], times[end:]
    return VideoIndex(*parts, **values, saved=(folder, columns.checksum), file_state=FileState(*notes["state"]))


def index_video(
    source: VideoSource,
    stream: int | None = None,
    *,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VideoIndex:
    """Find the frames of a video stream, by reading the container; only the first frame is decoded, for its size.

    From a remote MP4 of H.264, HEVC or AV1 without fragments, the tables and few packets are read: 1 to 2 MB.
    Other remote videos are read once, fragmented MP4 twice.

    The index has the frames that decoding from the first key frame on gives, without frames that an edit list cuts
    off or that the codec never shows. Files in which FFmpeg cannot find frames by their times are refused, with
    the command that repairs them: AVI of H.264 and MPEG-4, raw streams, MPEG-PS, interlaced MPEG-TS, and packets
    without times or with equal times.

    Args:
        source: Path, URL, bytes, or an open binary file.
        stream: Number of the video stream among the video streams of the container. None for the one with the
            largest frames: of several, the default one of the container, else the first. Cover pictures do not
            count. Where there are several streams, a warning names them.
        name: Name of the video in messages; None for its path.
        storage_options: Arguments of a remote file system, see `FileDataProvider`.

    Raises:
        SettingError: PyAV is missing, or there is no such video stream.
        FileError: The file cannot be opened or read.
        VideoError: It is not a video, has no frames, is incomplete, or its frames cannot be found by their times.
    """
    source = located(source, storage_options)
    index = make_index(source, stream, name)
    index.warn_of_choices(name or source_name(source))
    return index


def make_index(
    source: VideoSource, stream: int | None = None, name: str | None = None, *, is_read_whole: bool = False
) -> VideoIndex:
    """Do what `index_video` does, without the warning; if ``is_read_whole``, not by the tables of a file alone."""
    state = None
    if isinstance(source, (str, os.PathLike)):
        state = FileState.of_video(source, name)
    elif isinstance(source, StoredVideo):
        state = source.indexed or source.state()
        source = source.as_indexed(state)
    with VideoStreamDecoder(source, stream=stream, name=name) as decoder:
        names, codec = decoder.container_name.split(","), decoder.codec_name
        if _TIMED_CONTAINERS.isdisjoint(names) and codec not in _CODECS_WITHOUT_B_FRAMES:
            raise _refusal(decoder, f"the container ({names[0]}) does not keep the times of frames of {codec}")
        file, num_frames = decoder.stored_file, decoder.stream.frames
        known = None if file is None else file.known()
        is_told = codec in _TOLD_BY_TABLES and num_frames == decoder.stated_num_packets > 0  # not in fragments
        has_tables = is_told and "mp4" in names and not is_read_whole
        packets = _packets(decoder, file if has_tables else None)
        if packets is not None:
            return attrs.evolve(_index(decoder, packets, state), own_file=known)
    return make_index(source, stream, name, is_read_whole=True)


def _packets(decoder: VideoStreamDecoder, file: RemoteFile | None) -> _Packets | None:
    """Read the packets.

    Args:
        decoder: The open video.
        file: Its remote file, if the tables in that and the first packets will do.

    Returns:
        What they state; None if the tables do not do.
    """
    rows: list[tuple[int, int, int, bool, bool, bool, bool]] = []
    is_h264, extradata = decoder.codec_name == "h264", decoder.stream.codec_context.extradata
    entries = () if file is None else decoder.stream.index_entries
    listed_keys, later_keys = {each.pos for each in entries if each.is_keyframe}, []
    for packet in decoder.packets():
        decoder.take_size_of(packet)
        if not packet.size:
            continue
        if packet.pts is None:
            raise _refusal(decoder, f"its packet {len(rows)} has no time of presentation")
        if packet.has_sidedata("new_extradata") and bytes(packet.get_sidedata("new_extradata")) != extradata:
            raise _refusal(decoder, f"the settings of the codec change at its packet {len(rows)}")
        is_skipped = file is not None and file.skips_content
        if file is not None and len(rows) >= _NUM_LOOKED_AT and decoder.is_size_known:
            file.skips_content = True  # of what FFmpeg has not read yet
        num_pictures, is_shown, is_key = 1, True, packet.is_keyframe
        if is_skipped:  # FFmpeg reads in the content whether a packet is a key frame, where it has it
            is_key = packet.pos in listed_keys
            later_keys += [packet.pos or 0] * is_key
        else:
            num_pictures, is_shown = pictures_in(memoryview(packet), decoder.codec_name)
            is_key = is_key and not (is_h264 and begins_refresh(bytes(packet)))
        dts = packet.pts if packet.dts is None else packet.dts
        is_shown, hides_frames = is_shown and not packet.is_discard, num_pictures != 1 or not is_shown
        end_pts = packet.pts + (packet.duration or 0)
        rows.append((packet.pts, dts, end_pts, is_key, is_shown, packet.is_corrupt, hides_frames))
    if file is not None:
        file.skips_content = False
        for start in {*later_keys[:2], *later_keys[-1:]} if is_h264 else ():
            file.seek(start)
            if begins_refresh(file.read(_MOST_OF_HEAD)):
                return None
    return np.array(rows, _PACKET).view(np.recarray)


def _index(decoder: VideoStreamDecoder, packets: _Packets, state: FileState | None) -> VideoIndex:
    _check_complete(decoder, packets)
    if not packets.is_key.any():
        raise VideoError(f"There are no frames in the video {decoder.name}: no packet of it is a key frame.")
    first = int(packets.is_key.argmax())
    # What is decoded before the first key frame, or shown before it, refers to frames that are not there.
    is_shown = packets.is_shown & (np.arange(len(packets.pts)) >= first) & (packets.pts >= packets.pts[first])
    shown = packets.pts[is_shown]
    order = np.argsort(shown, kind="stable")
    pts = np.ascontiguousarray(shown[order])
    if not len(pts):
        raise VideoError(f"There are no frames in the video {decoder.name}.")
    if not np.diff(pts).all():
        same_s = float(pts[np.flatnonzero(np.diff(pts) == 0)[0]] * decoder.time_base)
        raise _refusal(decoder, f"two of its packets have the same time, {same_s:.3f} s")
    key_pts, places = np.unique(packets.pts[packets.is_key], return_index=True)
    # A container without such a table is searched for the last packet up to that time of decoding.
    is_by_dts = decoder.container_name in ("mpegts", "flv")
    seek_points = packets.dts[packets.is_key][places] if is_by_dts else key_pts
    if decoder.is_interlaced and "mpegts" in decoder.container_name:
        raise _refusal(decoder, "it is interlaced, so that a packet may be half of a frame")
    frames = decoder.time_base, decoder.width, decoder.height, decoder.codec_name, decoder.stream.average_rate
    num_reordered = int((order - np.arange(len(order))).max(initial=0))
    names = "pixel_format", "color_matrix", "rotation_deg", "is_mirrored", "other_streams", "num_candidates"
    seen: dict[str, Any] = {name: getattr(decoder, name) for name in names}
    seen["hides_frames"] = bool(packets.hides_frames.any()) or decoder.is_interlaced
    seen["num_left_out"] = int(np.count_nonzero(packets.is_shown & ~is_shown))
    return VideoIndex(pts, key_pts, seek_points, *frames, num_reordered, file_state=state, **seen)


def _refusal(decoder: VideoStreamDecoder, why: str) -> VideoError:
    # Of other containers, FFmpeg finds no times without decoding.
    how = (
        "-fflags +genpts -i IN -c copy"
        if "mpeg" in decoder.container_name.split(",")
        else "-i IN -c:v libx264 -crf 17"
    )
    return VideoError(
        f"Frames of the video {decoder.name} cannot be found by their times: {why}. Write it anew: "
        f"ffmpeg {how} OUT.mkv"
    )


def _check_complete(decoder: VideoStreamDecoder, packets: _Packets) -> None:
    num_frames = int(np.count_nonzero(~packets.is_corrupt))
    stated, duration_s = decoder.stated_num_packets, decoder.stated_duration_s
    end_s = int(packets.end_pts.max(initial=0)) * float(decoder.time_base)
    is_shorter = (duration_s or 0) > end_s + end_s / max(num_frames, 1) / 2
    is_fewer = num_frames < decoder.stream.frames
    lacks_frames = num_frames < stated or ((is_shorter or is_fewer) and decoder.is_cut_short)
    if not lacks_frames and not packets.is_corrupt[-1:].any():
        return
    most = stated or decoder.stream.frames
    of_all = f" of {most}" if most else ""
    up_to = f", up to {packets.pts[:num_frames].max() * float(decoder.time_base):.3f} s" if num_frames else ""
    raise VideoError(
        f"The video {decoder.name} is incomplete: it breaks off after {num_frames}{of_all} frames{up_to}."
    )


def cached_video_index(
    cache: str | os.PathLike[str], path: str | os.PathLike[str] | StoredVideo, stream: int | None = None
) -> VideoIndex:
    """Get the index of a video from a cache; its arrays are read-only.

    It is valid if the video still has the same size and time of change, or in a remote store the same size and
    version. Otherwise, or if it is damaged, one of several processes builds it again.

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
        values |= {name: values[name] and str(values[name]) for name in RATIOS}
        times = np.concatenate([index.pts, index.key_pts, index.seek_points])  # one file for all is read faster
        edges = np.cumsum([index.num_frames, len(index.key_pts)]).tolist()
        notes: dict[str, Any] = {"video": shown, "state": state, "edges": edges, "values": values}
        arrays: dict[str, npt.NDArray[Any]] = {"times": times}
        if index.own_file is not None:
            blocks = index.own_file.blocks
            notes["start"] = index.own_file.start
            notes["blocks"] = [[number, len(content)] for number, content in blocks.items()]
            arrays["head"] = np.frombuffer(b"".join(blocks.values()), np.uint8)
        return Columns(INDEX_KIND, arrays, notes)

    key = ["times and key frames of a video", os.fsdecode(place), stream]
    return load_or_make(cache, key, load_index, make, is_current=lambda index: index.file_state == state)
