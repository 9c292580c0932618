# SPDX-License-Identifier: Apache-2.0
"""Windows in seconds: samples with the values of fields at several times around a moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import choice, did_you_mean, index_in, instance, listed, number, number_list, shown
from ..draws.keyed_draws import Int64Array
from ..errors import FieldValueError, SettingError
from ..sample_data import FieldPath, FieldValue, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.conversion import as_numpy
from ..sample_data.formats import ENCODED_NAME, ChildFormat, leaf_format, numbers_name
from ..sample_data.names import Path, format_path, format_paths, normalized_path
from ..sampling.arithmetic.last_batch import checked_lengths
from ..sampling.arithmetic.times import nearest
from .data_provider import (
    BlueprintProvider,
    DataProvider,
    FieldColumn,
    FieldColumns,
    Finding,
    blueprint_of,
    check_number_of_samples,
    summary,
)
from .sample_loading import SampleLoader, add_note, name_sample, named_index, set_named_index

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

FrameRule: TypeAlias = Literal["nearest", "last"]
EdgeRule: TypeAlias = Literal["repeat", "drop"]

_SAME_S = 1e-4  # frames are equally spaced, and a frame is at a time, within so much
_ROUNDING_S = 1e-6  # of differences of times that are compared with the tolerance
_MOST_WRITTEN = 8  # offsets
_MOST_PROBLEMS = 3


@attrs.frozen(eq=False)
class _Window:
    """Fields that are taken at the same times.

    Attributes:
        paths: The fields.
        offsets_s: ``(T,)``, relative to the moment.
        times_s: ``(N,)`` times of the frames of these fields; NaN where there is none.
        tolerance_s: How far a frame may be from its time.
        is_regular: Whether the frames are equally spaced, so that there are no gaps.
    """

    paths: tuple[FieldPath, ...]
    offsets_s: Float64Array
    times_s: Float64Array
    tolerance_s: float
    is_regular: bool

    @property
    def ends(self) -> _Window:
        """The window with those of its offsets alone that say whether it is full."""
        ends = np.array([self.offsets_s.min(), self.offsets_s.max()])
        return attrs.evolve(self, offsets_s=ends) if self.is_regular else self

    def __str__(self) -> str:
        offsets = [f"{offset:g}" for offset in self.offsets_s.tolist()]
        if len(offsets) > _MOST_WRITTEN:
            offsets = [offsets[0], offsets[1], "...", offsets[-1]]
        return f"{format_paths(self.paths)} at {', '.join(offsets)} s"


class _Frames(NamedTuple):
    """The frames of a window at ``n`` moments of a sequence.

    Attributes:
        rows: ``(n, T)`` int64, samples of the wrapped provider.
        is_pad: ``(n, T)`` bool, whether the time is before the first or after the last frame.
        is_missing: ``(n, T)`` bool, whether it is between them, and no frame is within the tolerance.
        wanted_s: ``(n, T)``, the times.
    """

    rows: Int64Array
    is_pad: BoolArray
    is_missing: BoolArray
    wanted_s: Float64Array


class TimeWindows(BlueprintProvider):
    """Sample ``i`` is the moment of sample ``i`` of another provider, with the frames around it.

    For each field that is named, the values at ``t0 + offset`` in the same sequence, ``t0`` being the time of the
    sample; other fields as at ``t0``. With ``{"image": [-0.2, -0.1, 0], "action": [0, 0.1]}`` and a frame each
    0.1 s, sample 3 of a sequence of five frames has::

        frame    |  0     1     2     3     4  |                        is_pad
        image    |       [0]   [1]   [2]       |                        no   no   no
        action   |                   [0]   [1] |                        no   no

        of the wrapped provider         here, with T offsets
          image: UINT8 (H, W, 3)          image: UINT8 (T, H, W, 3)       layout FHWC
          image: UINT8 (num_bytes,)       image.encoded[0..T-1]: UINT8    files; `ImageDecoder` makes (T, H, W, 3)
            of a video                    image: UINT8 (num_bytes,)       a file; `VideoDecoder` makes (T, H, W, 3)
          action: FLOAT (3,)              action: FLOAT (T, 3)
          task: STRING                    task[0..T-1]: STRING
                                          image_is_pad, action_is_pad, ...: BOOL (T,)

    **Frames.** ``take="nearest"`` takes the frame nearest to each time (of two the earlier), ``"last"`` the last
    one not after it; the frame must be within ``tolerance_s``. Fields with times of their own, such as cameras
    that are not synchronous, are searched by these (`DataProvider.frame_times_s`).

    **Edges.** A time before the first or after the last frame of the sequence gets the first or last frame, and is
    True in the mask. A time between them where no frame is within the tolerance is an error when the sample is
    loaded; ``testing.check_provider`` finds all of these. With ``edges="drop"``, moments that have one or the
    other are no samples, and there are no masks; sequences end where moments are left out.

    Only the frames that are needed are loaded, each only with the fields that need it, where the wrapped provider
    can do that (`DataProvider.load_fields`); samples of a batch share them. Since a moment is one sample, any
    sampler gives the order. (With `ClipDataProvider` a sample is a run of frames at equal distances, all fields of
    each.) Other public attributes are those of the wrapped provider.

    Attributes:
        data_provider: The wrapped provider.
        windows: The offsets of each field that has some, by its path.

    Example::

        provider = TimeWindows(frames, {"image": [-0.4, -0.2, 0], "cameras[0].image": [0], "state": [-0.1, 0]})
    """

    def __init__(
        self,
        data_provider: DataProvider,
        windows: Mapping[Path, Sequence[float]],
        *,
        tolerance_s: float | None = None,
        take: FrameRule = "nearest",
        edges: EdgeRule = "repeat",
        fps: float | None = None,
        times_s: npt.ArrayLike | None = None,
    ) -> None:
        """Wrap a provider.

        Args:
            data_provider: The provider of the frames; it has ``sequence_lengths``.
            windows: By the field its offsets in seconds, in the order wanted. A field is a name, which means
                all fields of that name; a path as messages write it, without indices for all elements of an array
                (``"cameras.image"``, ``"cameras[0].image"``); or a tuple of names. The more exact one counts.
            tolerance_s: How far a frame may be from its time, at least 0. None: 0.1 ms where frames are equally
                spaced; otherwise half the median interval, or with ``take="last"`` one and a half.
            take: Which frame is taken, ``"nearest"`` or ``"last"``.
            edges: What is done at the ends of a sequence, ``"repeat"`` or ``"drop"``.
            fps: Frames per second, of equally spaced frames without times.
            times_s: ``(N,)`` times of the frames in seconds, ascending in each sequence, in place of those of the
                provider.

        Raises:
            SettingError: An argument is out of its range, there is no such field, or there are no times; frames
                are equally spaced, and none is at an offset; or no moment has a full window.
            DuplicateFieldError: A mask has the name of a field that exists.
        """
        instance(data_provider, "data_provider", DataProvider)
        self._loader = SampleLoader(data_provider)
        self._take: FrameRule = choice(take, "take", ("nearest", "last"))
        self._edges: EdgeRule = choice(edges, "edges", ("repeat", "drop"))
        num_frames = check_number_of_samples(data_provider)
        self._bounds = _bounds(data_provider, num_frames)  # (S + 1,), first frame of each sequence
        self._moments_s = _moments(data_provider, self._bounds, fps, times_s)  # (N,)
        blueprint = blueprint_of(data_provider)
        self.windows = _offsets_by_path(windows, blueprint.format)
        own_times_s = {} if times_s is not None or fps is not None else self._own_times(self.windows)
        if tolerance_s is not None:
            tolerance_s = number(tolerance_s, "tolerance_s", at_least=0)
        self._windows = self._made(self.windows, own_times_s, tolerance_s)
        self._videos = _videos(self.windows, blueprint.format)
        taken = {*self.windows, *map(_numbers_path, self._videos)}
        self._others = [path for path in blueprint.format.flat_paths if path not in taken]
        self._span_s = self._span_of_large_fields(blueprint.format)
        self._require_clips()
        self._rows, self._sequence_of_run, self._lengths = self._samples()
        counts = {path: len(offsets) for path, offsets in self.windows.items()}
        self._slots: list[_Slot] = []
        format = _with_windows(blueprint.format, (), counts, self._videos, self._edges == "repeat", self._slots)
        self._blueprint = SampleDataGroup.from_format(format)

    def _require_clips(self) -> None:
        nothing = np.zeros((0, 1), np.int64)
        others = [path for path in self._videos if self._loader.load_clips(path, nothing) is None]
        if others:
            name, fields = type(self.data_provider).__name__, format_paths(others)
            advice = "Let the provider decode them (`images='decoded'`), or define `load_clips` in one of your own"
            raise SettingError(
                f"Windows of encoded videos are clips, and {name} cannot cut single frames of {fields} out as "
                f"clips. {advice}."
            )

    def _span_of_large_fields(self, format: GroupFormat) -> tuple[float, float]:
        """Get the first and last offset at which pictures are taken; of whole samples, at which any field is."""
        leaves = dict(zip(format.flat_paths, format.flat_leaves, strict=True))
        offsets_s = [0.0]
        for path, offsets in self.windows.items():
            if not (self._loader.has_own_fields and _is_small(leaves[path])):
                offsets_s += offsets
        return min(offsets_s), max(offsets_s)

    def _own_times(self, paths: Iterable[FieldPath]) -> dict[FieldPath, Float64Array]:
        """Get the times of fields that have others than the samples; equal ones as one array."""
        known, own_times_s = [self._moments_s], {}
        for path in paths:
            given = self.data_provider.frame_times_s(path)
            if given is None:
                continue
            times_s = _checked_times(given, self._bounds, f"The times of {format_path(path)}")
            same = [each for each in known if np.array_equal(each, times_s, equal_nan=True)]
            known += [times_s] * (not same)
            own_times_s[path] = same[0] if same else times_s
        return own_times_s

    def _made(
        self,
        offsets_s: Mapping[FieldPath, tuple[float, ...]],
        own_times_s: Mapping[FieldPath, Float64Array],
        tolerance_s: float | None,
    ) -> list[_Window]:
        """Make the windows; fields with the same offsets and times are in one."""
        alike: dict[tuple[tuple[float, ...], int], list[FieldPath]] = {}
        for path, offsets in offsets_s.items():
            alike.setdefault((offsets, id(own_times_s.get(path, self._moments_s))), []).append(path)
        made = []
        for (offsets, _), paths in alike.items():
            times_s = own_times_s.get(paths[0], self._moments_s)
            interval_s, is_regular = _interval(times_s, self._bounds)
            is_regular &= times_s is self._moments_s  # others have another phase
            within_s = tolerance_s
            if within_s is None:
                within_s = _SAME_S if is_regular else interval_s * (0.5 if self._take == "nearest" else 1.5)
            window = _Window(tuple(paths), np.array(offsets), times_s, within_s, is_regular)
            if is_regular:
                self._require_frames_at(window, interval_s)
            made.append(window)
        return made

    def _require_frames_at(self, window: _Window, period_s: float) -> None:
        """Refuse offsets that are between equally spaced frames."""
        steps = window.offsets_s / period_s
        found = np.round(steps) if self._take == "nearest" else np.floor(steps + _SAME_S / period_s)
        off_s = np.abs(steps - found) * period_s
        wrong = np.flatnonzero(off_s > window.tolerance_s + _ROUNDING_S)
        if len(wrong):
            offset, step = window.offsets_s[wrong[0]], np.floor(steps[wrong[0]])
            raise SettingError(
                f"The offsets of {format_paths(window.paths)} must be multiples of the {period_s:g} s from frame "
                f"to frame, got {offset:g} s: the frame is {off_s[wrong[0]]:g} s off, and `tolerance_s` is "
                f"{window.tolerance_s:g}. Use {step * period_s:g} or {(step + 1) * period_s:g}, or a larger "
                f"`tolerance_s`."
            )

    # --- which frames -------------------------------------------------------------------------------------

    def _frames(self, window: _Window, sequence: int, rows: Int64Array) -> _Frames:
        """Find the frames of a window at ``(n,)`` samples of one sequence of the wrapped provider."""
        start, end = self._bounds[sequence : sequence + 2]
        wanted = self._moments_s[rows][:, None] + window.offsets_s  # (n, T)
        times = window.times_s[start:end]
        places = np.flatnonzero(~np.isnan(times))
        times = times[places]
        if not len(times):
            return _Frames(np.full(wanted.shape, start), wanted != wanted, wanted == wanted, wanted)
        slack = window.tolerance_s + _ROUNDING_S
        if self._take == "nearest":
            # Of two that are equally near the earlier, rounding aside.
            found, first_s = nearest(times, wanted - _ROUNDING_S, np.inf), times[0] - slack
        else:
            found, first_s = times.searchsorted(wanted + _SAME_S, side="right") - 1, times[0] - _SAME_S
            found, slack = np.maximum(found, 0), max(slack, _SAME_S)
        is_pad = (wanted < first_s) | (wanted > times[-1] + slack)
        is_missing = ~is_pad & (np.abs(times[found] - wanted) > slack)
        return _Frames(start + places[found], is_pad, is_missing, wanted)

    def _samples(self) -> tuple[Int64Array | None, Int64Array, Int64Array]:
        """Find the moments that are samples (None: all), and for each run of them its sequence and its length."""
        lengths = np.diff(self._bounds)
        if self._edges == "repeat":
            return None, np.arange(len(lengths)), lengths
        is_full = np.ones(self._bounds[-1], np.bool_)
        has_gap = np.zeros(self._bounds[-1], np.bool_)
        for window, sequence, rows in self._by_sequence(np.arange(self._bounds[-1])):
            frames = self._frames(window.ends, sequence, rows)
            is_full[rows] &= ~(frames.is_pad | frames.is_missing).any(axis=1)
            has_gap[rows] |= frames.is_missing.any(axis=1)
        rows = np.flatnonzero(is_full)
        if not len(rows):
            spans_s = self._moments_s[self._bounds[1:] - 1] - self._moments_s[self._bounds[:-1]]
            raise SettingError(
                f"No moment has a full window, as edges='drop' needs. The longest of {len(lengths)} sequence(s) "
                f"lasts {spans_s.max():g} s; {np.count_nonzero(has_gap)} of {len(is_full)} moments have a time "
                f"without a frame within the tolerance. The windows: {'; '.join(map(str, self._windows))}. Use "
                f"shorter ones, a larger `tolerance_s`, or edges='repeat'."
            )
        sequences = self._bounds.searchsorted(rows, side="right") - 1
        firsts = np.flatnonzero(np.append(True, (np.diff(rows) != 1) | (np.diff(sequences) != 0)))
        return rows, sequences[firsts], np.diff(np.append(firsts, len(rows)))

    def _by_sequence(self, rows: Int64Array) -> Iterator[tuple[_Window, int, Int64Array]]:
        """Get each window with each sequence that has some of the given ascending rows, and these."""
        places = rows.searchsorted(self._bounds)
        for sequence in np.flatnonzero(np.diff(places)).tolist():
            for window in self._windows:
                yield window, sequence, rows[places[sequence] : places[sequence + 1]]

    def _problems(self, window: _Window, sequence: int, rows: Int64Array, frames: _Frames) -> Iterator[str]:
        """Say what is wrong at each time for which there is no frame."""
        start, end = self._bounds[sequence : sequence + 2]
        rule = "nearest" if self._take == "nearest" else "last one before"
        for moment, place in np.argwhere(frames.is_missing).tolist():
            wanted_s, row = frames.wanted_s[moment, place], int(frames.rows[moment, place])
            offset_s, since_s = window.offsets_s[place], wanted_s - self._moments_s[start]
            text = f"{format_paths(window.paths)}: at {since_s:g} s of sequence {sequence}, {offset_s:g} s "
            text += f"from its frame {rows[moment] - start}, there is no frame"
            if np.isnan(window.times_s[start:end]).all():
                yield f"{text}: the sequence has none with this field. Leave the sequence out."
                continue
            yield (
                f"{text}: the {rule}, {row - start}, is {abs(window.times_s[row] - wanted_s):g} s off, and "
                f"`tolerance_s` is {window.tolerance_s:g}. Use a larger one, or edges='drop' to leave out such "
                f"moments."
            )

    # --- samples ------------------------------------------------------------------------------------------

    @property
    def data_provider(self) -> DataProvider:
        """The wrapped provider."""
        return self._loader.provider

    @property
    def rows(self) -> Int64Array:
        """``(N,)`` int64, the sample of the wrapped provider at the moment of each sample."""
        return np.arange(self._bounds[-1]) if self._rows is None else self._rows

    def _rows_of(self, sample_indices: Sequence[int]) -> Int64Array:
        count = self.get_number_of_samples()
        indices = np.array([index_in(index, "sample_index", count) for index in sample_indices], np.int64)
        return indices if self._rows is None else self._rows[indices]

    def get_number_of_samples(self) -> int:
        """Get the number of moments."""
        return int(self._lengths.sum())

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load the windows of a moment.

        Raises:
            SettingError: Also an IndexError; there is no such sample.
            FieldValueError: There is no frame at a time, see the class, or the shape of a field is not the same in
                all frames of its window.
        """
        return next(self.load_batch([sample_index], [0]))

    def describe_sample(self, sample_index: int) -> str:
        """Describe the sample of the wrapped provider at the moment, as it does itself."""
        return self.data_provider.describe_sample(int(self._rows_of([sample_index])[0]))

    @property
    def loads_batches(self) -> bool:
        """Return True: windows of a batch share frames."""
        return True

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the moments of a batch, and together only those whose windows of pictures overlap."""
        rows = self._rows_of(sample_indices)
        sequences = self._bounds.searchsorted(rows, side="right") - 1
        groups = self._overlapping(rows, sequences)
        loaded: dict[int, list[FieldValue]] = {}
        for place, sequence in enumerate(sequences.tolist()):
            if place not in loaded:
                places = np.flatnonzero(groups == groups[place])
                alike = [sample_indices[each] for each in places.tolist()]
                loaded |= zip(places.tolist(), self._loaded(sequence, rows[places], alike), strict=True)
            sample = self.new_sample()
            sample.set_data(loaded.pop(place))
            yield sample

    def _overlapping(self, rows: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get the number of the group of each moment, ``(n,)``."""
        times_s, (first_s, last_s) = self._moments_s[rows], self._span_s
        order = np.lexsort((times_s, sequences))
        apart_s = np.diff(times_s[order])
        begins = np.append(True, (np.diff(sequences[order]) != 0) | (apart_s > last_s - first_s + _SAME_S))
        groups = np.empty(len(rows), np.int64)
        groups[order] = np.cumsum(begins)
        return groups

    def _loaded(self, sequence: int, rows: Int64Array, indices: Sequence[int]) -> Iterator[list[FieldValue]]:
        """Load samples of one sequence, whose moments are rows of it: their values in flat order."""
        found = [self._frames(window, sequence, rows) for window in self._windows]
        wanted = dict.fromkeys(self._others, rows.tolist())
        is_pad: dict[FieldPath, BoolArray] = {}
        rows_of_clips: dict[FieldPath, Int64Array] = {}
        for window, frames in zip(self._windows, found, strict=True):
            if frames.is_missing.any():
                error = FieldValueError(next(self._problems(window, sequence, rows, frames)))
                name_sample(error, indices[int(frames.is_missing.any(axis=1).argmax())])
                raise error
            whole = [path for path in window.paths if path not in self._videos]
            wanted |= dict.fromkeys(whole, frames.rows.ravel().tolist())
            rows_of_clips |= {path: frames.rows for path in window.paths if path in self._videos}
            is_pad |= dict.fromkeys(window.paths, frames.is_pad)
        try:
            columns = {**self._loader.load_fields(wanted)}
            for path, of_clips in rows_of_clips.items():
                clips = self._loader.load_clips(path, of_clips) or ()
                columns[path], columns[_numbers_path(path)] = [*zip(*clips, strict=True)]
        except BaseException as error:
            row = named_index(error)
            needed = np.concatenate([rows[:, None], *(frames.rows for frames in found)], axis=1)
            if row is not None and (needed == row).any():
                index = indices[int((needed == row).any(axis=1).argmax())]
                set_named_index(error, index)
                add_note(error, f"which is in the windows of sample {index} of the {type(self).__name__}")
            raise
        for moment in range(len(rows)):
            yield [value for slot in self._slots for value in slot.values(columns, is_pad, moment)]

    # --- what samplers and people ask for -----------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of samples of each sequence, ``(S,)`` int64; see the class for ``edges="drop"``."""
        return self._lengths

    def frame_times_s(self, path: FieldPath = ()) -> Float64Array | None:
        """Get the times of the samples, or of a field as it is at the moments."""
        if not path:
            return self._moments_s[self.rows]
        times_s = self.data_provider.frame_times_s(path)
        return None if times_s is None else times_s[self.rows]

    def __getattr__(self, name: str) -> Any:
        """Get a public attribute of the wrapped provider; times and names of scenes are those of the samples."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(self.data_provider, name)
        if name in ("timestamps", "timestamps_s") and value is not None:
            return value[self.rows]
        if name == "scene_names":
            return tuple(value[sequence] for sequence in self._sequence_of_run.tolist())
        return value

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check that there is a frame for each time of each window, and the rules of the wrapped provider."""
        problems: list[str] = []
        num_times, num_pad, num_missing, most_s = 0, 0, 0, 0.0
        for window, sequence, rows in self._by_sequence(self.rows):
            frames = self._frames(window, sequence, rows)
            is_there = ~(frames.is_pad | frames.is_missing)
            off_s = np.abs(window.times_s[frames.rows] - frames.wanted_s)[is_there]
            most_s = max(most_s, float(off_s.max(initial=0)))
            num_times += frames.rows.size
            num_pad += int(np.count_nonzero(frames.is_pad))
            num_missing += int(np.count_nonzero(frames.is_missing))
            if len(problems) < _MOST_PROBLEMS:
                problems += self._problems(window, sequence, rows, frames)
        figure = f"windows: {num_times} times, {num_pad} padded, {num_missing} without a frame"
        figure += f"; frames are at most {round(most_s, 6):g} s off"
        yield Finding("there must be a frame for each time of a window", figure, problems[:_MOST_PROBLEMS])
        rows_of = self._rows_of([*samples]).tolist()
        of_moments = {row: self.data_provider.get_data(row) for row in rows_of}
        yield from self.data_provider.contract_findings(of_moments, seed)

    def __repr__(self) -> str:
        """Summarise the windows."""
        num_moments = self.get_number_of_samples()
        left_out = len(self._moments_s) - num_moments
        settings = f"take={self._take!r}, edges={self._edges!r}"
        settings += f", {left_out} moments left out" * bool(left_out)
        windows = "; ".join(f"{window} (within {window.tolerance_s:g} s)" for window in self._windows)
        moments = f"{num_moments} moments of {summary(self.data_provider)}"
        return f"{type(self).__name__}({moments}: {windows}; {settings})"


# --- settings ---------------------------------------------------------------------------------------------


def _bounds(provider: DataProvider, num_frames: int) -> Int64Array:
    given = getattr(provider, "sequence_lengths", None)
    if given is None:
        raise SettingError(
            f"Windows are within sequences, and {type(provider).__name__} has no attribute `sequence_lengths` "
            f"(the number of frames of each). Give it one; `[number of samples]` if all are one sequence."
        )
    lengths = checked_lengths(given, "sequence_lengths")
    if int(lengths.sum()) != num_frames:
        got = f"`sequence_lengths` add up to {int(lengths.sum())} and there are {num_frames} samples"
        raise SettingError(f"The sequences of {type(provider).__name__} must cover its samples, but {got}.")
    return np.concatenate(([0], np.cumsum(lengths)))


def _moments(
    provider: DataProvider, bounds: Int64Array, fps: float | None, times_s: npt.ArrayLike | None
) -> Float64Array:
    if fps is not None and times_s is not None:
        raise SettingError("`fps` and `times_s` both say when frames were taken: give one of them.")
    if fps is not None:
        frames = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        return frames / number(fps, "fps", above=0)
    found = provider.frame_times_s() if times_s is None else times_s
    if found is None:
        raise SettingError(
            f"Windows are in seconds, and {type(provider).__name__} does not know the times of its samples. Give "
            f"`fps` where frames are equally spaced, or `times_s`; a provider of your own defines `frame_times_s`."
        )
    times = _checked_times(found, bounds, "`times_s`")
    if np.isnan(times).any():
        raise SettingError(f"`times_s` must be finite, got nan for sample {int(np.isnan(times).argmax())}.")
    return times


def _checked_times(given: npt.ArrayLike, bounds: Int64Array, what: str) -> Float64Array:
    try:
        times = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{what} must be seconds, a number for each sample, got {shown(given)}.") from error
    if times.shape != (bounds[-1],) or np.isinf(times).any():
        got = f"shape {times.shape}" if times.shape != (bounds[-1],) else "infinity"
        raise SettingError(f"{what} must be {bounds[-1]} finite numbers, one per sample, got {got}.")
    known = np.flatnonzero(~np.isnan(times))
    sequences = bounds.searchsorted(known, side="right") - 1
    is_late = (np.diff(times[known]) < 0) & (np.diff(sequences) == 0)
    if is_late.any():
        place = int(is_late.argmax())
        before, after = known[place], known[place + 1]
        raise SettingError(
            f"{what} must ascend in each sequence, but sample {after} at {times[after]:g} s follows sample "
            f"{before} at {times[before]:g} s in sequence {sequences[place]}. Sort the frames, and check "
            f"`sequence_lengths`."
        )
    return times


def _interval(times_s: Float64Array, bounds: Int64Array) -> tuple[float, bool]:
    """Get the interval of frames in seconds, and whether they are equally spaced; if not, it is the median."""
    lengths = np.diff(bounds)
    longest = int(lengths.argmax())
    first_s, last_s = times_s[bounds[longest]], times_s[bounds[longest + 1] - 1]
    period_s = float(last_s - first_s) / max(int(lengths[longest]) - 1, 1)
    steps = np.arange(len(times_s)) - np.repeat(bounds[:-1], lengths)
    off_s = np.abs(times_s - np.repeat(times_s[bounds[:-1]], lengths) - steps * period_s)
    if period_s > 2 * _SAME_S and (off_s <= _SAME_S / 2).all():  # any two of them are within `_SAME_S`
        return period_s, True
    intervals = np.diff(times_s)[np.diff(steps) == 1]
    intervals = intervals[intervals > 0]  # not NaN, and not where a slower camera has the same frame again
    return float(np.median(intervals)) if len(intervals) else 0.0, False


def _offsets_by_path(
    windows: Mapping[Path, Sequence[float]], format: GroupFormat
) -> dict[FieldPath, tuple[float, ...]]:
    """Find the fields of the windows; each field has the offsets of the most exact of the keys that name it."""
    if not isinstance(windows, Mapping) or not windows:
        rule = "`windows` must be a mapping of fields to offsets in seconds, e.g. {'image': [-0.2, 0]}"
        raise SettingError(f"{rule}, got {shown(windows)}.")
    found: dict[FieldPath, tuple[int, tuple[float, ...]]] = {}
    for key, given in windows.items():
        offsets = number_list(given, f"windows[{key!r}]", "a list of offsets in seconds, finite numbers")
        exactness = {path: _exactness(path, key) for path in format.flat_paths}
        if not any(exactness.values()):
            raise _no_field(key, format)
        for path, how_exact in exactness.items():
            if how_exact > found.get(path, (0, ()))[0]:
                found[path] = how_exact, offsets
    elements = [path for path in found if isinstance(path[-1], int)]
    if elements:
        rule = "An array of data fields can have no windows, since its masks would have no place"
        raise SettingError(f"{rule}, got {format_paths(elements)}. Give it another form in the provider.")
    leaves = dict(zip(format.flat_paths, format.flat_leaves, strict=True))
    clips = [path for path in found if (leaves[path].content.layout or "").startswith("F")]
    if clips:
        rule = "Windows are of single frames, and there are several already in each"
        raise SettingError(f"{rule} {format_paths(clips)}. Leave it out of `windows`, or deliver single frames.")
    for path in _videos(format.flat_paths, format):
        if _numbers_path(path) in found:
            own = format_paths([_numbers_path(path)])
            raise SettingError(f"{own} has the windows of {format_paths([path])}: name that in `windows`.")
    return {path: found[path][1] for path in format.flat_paths if path in found}


def _is_small(leaf: LeafFormat) -> bool:
    """Whether a field is numbers or a text, not pictures or points."""
    return leaf.is_string or (leaf.dtype != types.DALIDataType.UINT8 and leaf.ndim in (0, 1))


def _numbers_path(path: FieldPath) -> FieldPath:
    return (*path[:-1], numbers_name(path[-1]))


def _videos(paths: Iterable[FieldPath], format: GroupFormat) -> list[FieldPath]:
    """Get the paths that are those of encoded videos."""
    leaves = dict(zip(format.flat_paths, format.flat_leaves, strict=True))
    return [path for path in paths if leaves[path].content.codecs or _numbers_path(path) in leaves]


def _exactness(path: FieldPath, key: Path) -> int:
    """How exactly a key names a field: 3 its path, 2 its path without indices, 1 its name; 0 not at all."""
    if not isinstance(key, str):
        return 3 * (path == normalized_path(key))
    if len(path) > 1 and format_path(path) == key:
        return 3
    names = [name for name in path if isinstance(name, str)]
    return 2 if len(names) > 1 and format_path(names) == key else int(path[-1] == key)


def _no_field(key: Path, format: GroupFormat) -> SettingError:
    groups = [path for path in [normalized_path(key)] if isinstance(format.get(path), GroupFormat)]
    if groups:
        below = [path for path in format.flat_paths if path[: len(groups[0])] == groups[0]]
        rule = f"`windows` must name data fields, and {shown(key)} is a group"
        return SettingError(f"{rule}. Name its fields: {format_paths(below)}.")
    names = dict.fromkeys(name for path in format.flat_paths for name in (path[-1], format_path(path)))
    meant, fields = did_you_mean(key, names), format_paths(format.flat_paths)
    return SettingError(f"`windows` names {shown(key)}, which is no field.{meant} Fields: {fields}.")


# --- format -----------------------------------------------------------------------------------------------


@attrs.frozen
class _Slot:
    """Where values of a sample come from.

    Attributes:
        path: Path of the field in the wrapped provider.
        count: Number of frames; None for a field that has no window.
        is_mask: Whether it is the mask of the field.
        is_stacked: Whether the frames are one array; else each is a field of its own.
    """

    path: FieldPath
    count: int | None = None
    is_mask: bool = False
    is_stacked: bool = False

    def values(
        self, columns: FieldColumns, is_pad: Mapping[FieldPath, BoolArray], moment: int
    ) -> Sequence[FieldValue]:
        """Get the values of a moment: one, or one for each frame."""
        if self.is_mask:
            return [is_pad[self.path][moment]]
        column = columns[self.path]
        if self.count is None:
            return [column[moment]]
        frames = column[moment * self.count : (moment + 1) * self.count]
        return [self._stacked(frames)] if self.is_stacked else [*frames]

    def _stacked(self, frames: FieldColumn) -> npt.NDArray[Any]:
        if isinstance(frames, np.ndarray):
            return frames
        arrays = [np.asarray(as_numpy(frame)) for frame in frames]
        shapes = dict.fromkeys(array.shape for array in arrays)
        if len(shapes) > 1:
            advice = "Leave it out of `windows`, or bring it to one shape in the provider"
            if arrays[0].dtype == np.uint8 and arrays[0].ndim == 1:
                advice = (
                    "Declare image files as such: `add_data_field(..., content=ImageContent(is_encoded=True))`"
                )
            raise FieldValueError(
                f"{format_path(self.path)}: the frames of a window must have one shape, to be stacked, got "
                f"{listed(shapes)}. {advice}."
            )
        return np.stack(arrays)


def _with_windows(
    group: GroupFormat,
    prefix: FieldPath,
    counts: Mapping[FieldPath, int],
    videos: Sequence[FieldPath],
    has_masks: bool,
    slots: list[_Slot],
) -> GroupFormat:
    """Get the format of a group with windows, and add where its values come from, in flat order."""
    children: list[ChildFormat] = []
    masks: list[_Slot] = []
    numbers = [*map(_numbers_path, videos)]
    for name, child in zip(group.names, group.children, strict=True):
        path = (*prefix, name)
        if isinstance(child, GroupFormat):
            child = _with_windows(child, path, counts, videos, has_masks, slots)
        elif path in numbers:
            slots.append(_Slot(path))
            child = attrs.evolve(child, ndim=1)
        elif path not in counts or path in videos:
            slots.append(_Slot(path))
            masks += [_Slot(path, is_mask=True)] * (has_masks and path in counts)
        else:
            child = _of_frames(child, counts[path])
            slots.append(_Slot(path, counts[path], is_stacked=isinstance(child, LeafFormat)))
            masks += [_Slot(path, is_mask=True)] * has_masks
        children.append(child)
    slots += masks
    names = [f"{slot.path[-1]}_is_pad" for slot in masks]
    mask = leaf_format(types.DALIDataType.BOOL, ndim=1)
    return GroupFormat((*group.names, *names), (*children, *([mask] * len(masks))))


def _of_frames(leaf: LeafFormat, count: int) -> ChildFormat:
    """Get the format of several frames of a field; the bytes of files, and texts, have no common shape."""
    content = leaf.content
    if leaf.is_string:
        return GroupFormat(tuple(range(count)), (leaf,) * count)
    is_bytes = leaf.dtype == types.DALIDataType.UINT8 and leaf.ndim == 1
    if content.is_encoded or (content.is_encoded is None and is_bytes):
        return GroupFormat((ENCODED_NAME,), (GroupFormat(tuple(range(count)), (leaf,) * count),))
    if content.layout is not None:
        content = attrs.evolve(content, layout=f"F{content.layout}")
    return leaf_format(leaf.dtype, leaf.mapping, None if leaf.ndim is None else leaf.ndim + 1, content)
