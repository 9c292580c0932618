# SPDX-License-Identifier: Apache-2.0
"""Windows: samples with the values of fields at several frames or times around a moment."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, SupportsIndex, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import choice, index_in, instance, number, setting_error, whole_number
from ..errors import FieldValueError, SettingError
from ..sample_data import FieldPath, FieldValue, SampleDataGroup
from ..sample_data.names import Path, format_path, format_paths
from ..sampling.arithmetic.last_batch import checked_lengths
from ..unknown_arguments import explains_unknown_arguments
from .data_provider import (
    BlueprintProvider,
    DataProvider,
    FieldColumn,
    Finding,
    blueprint_of,
    check_number_of_samples,
    summary,
)
from .sample_loading import SampleLoader, add_note, name_sample, named_index, set_named_index
from .window_fields import (
    Offsets,
    Unit,
    WindowFormat,
    is_small,
    listed_paths,
    mask_path,
    numbers_path,
    offsets_by_path,
    videos_of,
)
from .window_times import (
    ROUNDING,
    SAME,
    Float64Array,
    FrameRule,
    Frames,
    Int64Array,
    Times,
    checked_times,
    positions,
)

EdgeRule: TypeAlias = Literal["drop", "repeat"]

_MOST_WRITTEN = 8  # offsets
_MOST_PROBLEMS = 3
_MOMENTS_AT_A_TIME = 1 << 10  # keeps temporary arrays small enough for caches

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class _Window:
    """Fields that are taken at the same times.

    Attributes:
        paths: The fields.
        offsets: ``(T,)``, relative to the moment.
        times: When the frames of these fields were taken.
        tolerance: How far a frame may be from its time.
        is_regular: Whether frames are equally spaced, and at the moments.
    """

    paths: tuple[FieldPath, ...]
    offsets: Float64Array
    times: Times
    tolerance: float
    is_regular: bool

    @property
    def ends(self) -> _Window:
        """The window with those of its offsets alone that say whether it is full."""
        return self.at(np.array([self.offsets.min(), self.offsets.max()])) if self.is_regular else self

    def at(self, offsets: Float64Array) -> _Window:
        """The window with other offsets."""
        return attrs.evolve(self, offsets=offsets)

    def __str__(self) -> str:
        offsets = [f"{offset:g}" for offset in self.offsets.tolist()]
        if len(offsets) > _MOST_WRITTEN:
            offsets = [offsets[0], offsets[1], "...", offsets[-1]]
        return f"{format_paths(self.paths)} at {', '.join(offsets)}"


class Windows(BlueprintProvider):
    """Sample ``i`` is a moment of another provider, with the frames around it.

    Each field that is named has its values at the given offsets from the moment, in the same sequence; other
    fields have their value at the moment. Offsets are in frames or in seconds. With ``unit="frames"`` and
    ``{"image": [-2, -1, 0], "action": [0, 1]}``, the moment of frame 3 in a sequence of five frames has::

        frame    |  0     1     2     3     4  |
        image    |       [0]   [1]   [2]       |
        action   |                   [0]   [1] |

        of the wrapped provider         here, with T offsets
          image: UINT8 (H, W, 3)          image: UINT8 (T, H, W, 3)       layout FHWC
          image: UINT8 (num_bytes,)       image.encoded[0..T-1]: UINT8    files; `ImageDecoder` makes (T, H, W, 3)
            of a video                    image: UINT8 (num_bytes,)       a file; `VideoDecoder` makes (T, H, W, 3)
          action: FLOAT (3,)              action: FLOAT (T, 3)
          boxes: FLOAT (N, 4), listed     boxes[0..T-1]: FLOAT (N, 4)     N can differ
          task: STRING                    task[0..T-1]: STRING
                                          image_is_pad, action_is_pad: BOOL (T,)     with ``edges="repeat"``

    **Moments** are the frames 0, ``step``, ``2 * step``, ... of each sequence, in the order of the wrapped
    provider. A moment is one sample, so any sampler gives the order. Clips of eight frames that do not overlap
    have the offsets ``range(8)`` and ``step=8``.

    **Edges.** With ``edges="drop"``, moments without a full window are not samples; a sequence that loses moments
    in its middle becomes two. With ``edges="repeat"`` all moments are samples: an offset before the first or after
    the last frame of the sequence gets this first or last frame, and is True in the mask of the field (in seconds,
    if it is farther from this frame than the tolerance).

    **In seconds**, ``take="nearest"`` takes the frame nearest to each time (of two the earlier), ``"last"`` the
    last one not after it; the frame must be within ``tolerance_s``. Fields with times of their own, such as
    cameras that are not synchronous, are searched by these (`DataProvider.frame_times_s`). Where frames are
    missing in the middle of a sequence, a time can be without a frame within the tolerance. With ``edges="drop"``
    such moments are left out, and the log says how many; with ``edges="repeat"`` loading the sample is an error
    (``testing.check_provider`` finds all such samples).

    Only the frames that are needed are loaded, each only with the fields that need it, where the wrapped provider
    can do that (`DataProvider.load_fields`); samples of a batch whose windows overlap share them. Other public
    attributes come from the wrapped provider.

    Attributes:
        data_provider: The wrapped provider.
        windows: The offsets of each field that has some, by its path.
        unit: ``"frames"`` or ``"s"``.
        rows: ``(N,)`` int64, the sample of the wrapped provider at the moment of each sample.

    Example::

        queue = Windows(frames, {"image": [-2, -1, 0], "cameras[0].image": [0]}, unit="frames", edges="repeat")
        policy = Windows(frames, {"image": [-0.2, 0], "action": [0, 0.1, 0.2]}, unit="s", edges="repeat")
        clips = Windows(videos, {"image": range(8)}, unit="frames", step=8)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        data_provider: DataProvider,
        windows: Mapping[Path, Sequence[float]],
        *,
        unit: Unit,
        step: SupportsIndex = 1,
        edges: EdgeRule = "drop",
        take: FrameRule = "nearest",
        tolerance_s: float | None = None,
        times_s: npt.ArrayLike | None = None,
        listed: Collection[Path] = (),
    ) -> None:
        """Wrap a provider.

        Args:
            data_provider: The provider of the frames; it has ``sequence_lengths``.
            windows: Field -> its offsets, in the wanted order. A field is a name, which means all fields of that
                name; a path as in messages (``"cameras[0].image"``, or without the index for all elements of the
                array, ``"cameras.image"``); or a tuple of names. The most specific key counts.
            unit: Unit of the offsets: ``"frames"``, whole numbers, or ``"s"``, seconds.
            step: Frames from one moment of a sequence to the next, at least 1.
            edges: Handling of the ends of a sequence, ``"drop"`` or ``"repeat"``.
            take: Choice of the frame for an offset in seconds, ``"nearest"`` or ``"last"``.
            tolerance_s: In seconds, how far a frame may be from its time, at least 0. None: 0.1 ms where frames
                are equally spaced and a field has the times of the samples; otherwise half the median interval, or
                with ``take="last"`` 1.5 times the median interval.
            times_s: In seconds, ``(N,)`` times of the frames, ascending in each sequence, in place of the times of
                the provider; ``np.arange(N) / 10`` for equally spaced frames.
            listed: Fields whose shape differs between frames: each frame becomes its own field (``boxes[0]``,
                ``boxes[1]``); named as in ``windows``.

        Raises:
            SettingError: An argument is out of its range or does not go with another one; there is no such field;
                there are no times; an offset in seconds falls between two frames although they are equally
                spaced; all offsets but 0 are longer than the sequences; or no moment has a full window.
            DuplicateFieldError: A mask has the name of a field that exists.
        """
        instance(data_provider, "data_provider", DataProvider)
        self._loader = SampleLoader(data_provider)
        if unit not in ("frames", "s"):
            raise setting_error("unit", "'frames' or 's'", unit, "Milliseconds are seconds * 1000: divide them.")
        self.unit: Unit = unit
        self._step = whole_number(step, "step", at_least=1)
        self._take: FrameRule = choice(take, "take", ("nearest", "last"))
        self._edges: EdgeRule = choice(edges, "edges", ("drop", "repeat"))
        self._bounds = _bounds(data_provider, check_number_of_samples(data_provider))  # (S + 1,)
        format = blueprint_of(data_provider).format
        self.windows: Offsets = offsets_by_path(windows, self.unit, format)
        self._has_times = times_s is not None
        self._windows = self._made(times_s, tolerance_s)
        self._videos = videos_of(self.windows, format)
        taken = {*self.windows, *map(numbers_path, self._videos)}
        self._others = [path for path in format.flat_paths if path not in taken]
        leaves, loads_all = format.leaves, not self._loader.has_own_fields
        large = [found for path, found in self.windows.items() if loads_all or not is_small(leaves[path])]
        span = [0.0, *itertools.chain(*large)]
        self._span = max(span) - min(span)  # of offsets at which pictures are loaded
        self._require_clips()
        self.rows = self._found_moments()
        is_apart = (np.diff(self.rows) != self._step) | (np.diff(self._sequences_of(self.rows)) != 0)
        self._firsts = np.flatnonzero(np.append(True, is_apart))  # first sample of each sequence
        self._window_format = WindowFormat(
            {path: len(offsets) for path, offsets in self.windows.items()},
            listed_paths(listed, self.windows, format),
            self._videos,
            self._edges == "repeat",
        )
        self._blueprint = SampleDataGroup.from_format(self._window_format.of(format))

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

    # --- times ------------------------------------------------------------------------------------------

    def _made(self, times_s: npt.ArrayLike | None, tolerance_s: float | None) -> list[_Window]:
        """Make the windows; fields with the same offsets and times are in one."""
        if self.unit == "frames":
            given = {"take": self._take != "nearest", "tolerance_s": tolerance_s is not None}
            given["times_s"] = times_s is not None
            wrong = [f"`{name}`" for name, is_given in given.items() if is_given]
            if wrong:
                raise SettingError(f"{', '.join(wrong)} goes with unit='s', got unit='frames'. Leave it out.")
            self._moments = Times(positions(self._bounds).astype(np.float64), self._bounds)
            tolerance_s, own = 0.0, {}
        else:
            self._moments = Times(_moments_s(self.data_provider, self._bounds, times_s), self._bounds)
            own = {} if times_s is not None else self._own_times()
            if tolerance_s is not None:
                tolerance_s = number(tolerance_s, "tolerance_s", at_least=0)
        alike: dict[tuple[tuple[float, ...], int], list[FieldPath]] = {}
        for path, offsets in self.windows.items():
            alike.setdefault((offsets, id(own.get(path, self._moments))), []).append(path)
        made = []
        for (offsets, _), paths in alike.items():
            times = own.get(paths[0], self._moments)
            is_regular = times.is_regular and times is self._moments  # others have another phase
            within = tolerance_s
            if within is None:
                within = SAME if is_regular else times.interval * (0.5 if self._take == "nearest" else 1.5)
            window = _Window(tuple(paths), np.array(offsets, np.float64), times, within, is_regular)
            if is_regular:
                self._require_frames_at(window)
            made.append(window)
        return made

    def _own_times(self) -> dict[FieldPath, Times]:
        """Get the times of fields that have others than the samples; equal ones as one object."""
        known, own = [self._moments], {}
        for path in self.windows:
            given = self.data_provider.frame_times_s(path)
            if given is None:
                continue
            times_s = checked_times(given, self._bounds, f"The times of {format_path(path)}")
            same = [each for each in known if np.array_equal(each.values, times_s, equal_nan=True)]
            own[path] = same[0] if same else Times(times_s, self._bounds)
            known.append(own[path])
        return own

    def _require_frames_at(self, window: _Window) -> None:
        """Refuse offsets that are between equally spaced frames."""
        period_s = window.times.interval
        steps = window.offsets / period_s
        found = np.round(steps) if self._take == "nearest" else np.floor(steps + SAME / period_s)
        off_s = np.abs(steps - found) * period_s
        wrong = np.flatnonzero(off_s > window.tolerance + ROUNDING)
        if len(wrong):
            offset, step = window.offsets[wrong[0]], np.floor(steps[wrong[0]])
            raise SettingError(
                f"The offsets of {format_paths(window.paths)} must be multiples of the {period_s:g} s from frame "
                f"to frame, got {offset:g} s: the frame is {off_s[wrong[0]]:g} s off, and `tolerance_s` is "
                f"{window.tolerance:g}. Use {step * period_s:g} or {(step + 1) * period_s:g}, or a larger "
                f"`tolerance_s`."
            )

    # --- which frames -----------------------------------------------------------------------------------

    def _frames(self, window: _Window, rows: Int64Array) -> Frames:
        """Find the frames of a window at ``(n,)`` moments."""
        wanted = self._moments.values[rows][:, None] + window.offsets  # (n, T)
        return window.times.find(wanted, self._sequences_of(rows), self._take, window.tolerance)

    def _sequences_of(self, rows: Int64Array) -> Int64Array:
        return self._bounds.searchsorted(rows, side="right") - 1

    def _found_moments(self) -> Int64Array:
        """Find the moments that are samples, ``(n,)``, ascending."""
        rows = np.flatnonzero(positions(self._bounds) % self._step == 0)
        for window in self._windows:
            self._require_other_frames(window, rows)
        if self._edges == "repeat":
            return rows
        is_full, has_gap = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for window in self._windows:
            for part in _parts(rows):
                frames = self._frames(window.ends, rows[part])
                is_full[part] &= ~(frames.is_pad | frames.is_missing).any(axis=1)
                has_gap[part] |= frames.is_missing.any(axis=1)
        num_gaps = int(np.count_nonzero(has_gap))
        gaps = f"{num_gaps} of {len(rows)} moments have a time without a frame within the tolerance"
        if not is_full.any():
            more = f"; {gaps}" * bool(num_gaps)
            remedy = ", a larger `tolerance_s`," * (self.unit == "s")
            raise SettingError(
                f"No moment has a full window, as edges='drop' needs. {self._longest()}{more}. The windows: "
                f"{self._described()}. Use shorter ones{remedy} or edges='repeat'."
            )
        if num_gaps:
            _logger.warning("%s: %s, and are left out.", type(self).__name__, gaps)
        return rows[is_full]

    def _require_other_frames(self, window: _Window, rows: Int64Array) -> None:
        """Refuse a window that would have no frame but that of the moment, at each moment."""
        others, own = window.at(window.offsets[window.offsets != 0]), window.at(np.zeros(1))
        are_beyond = True
        for part in _parts(rows) * bool(len(others.offsets)):
            frames = self._frames(others, rows[part])
            is_other, are_beyond = ~frames.is_pad, are_beyond and bool(frames.is_pad.all())
            if len(window.offsets) > 1:  # one alone may correct a delay
                is_other &= frames.rows != self._frames(own, rows[part]).rows
            if (is_other | frames.is_missing).any():
                return
        if len(others.offsets):
            unit = "seconds" if self.unit == "s" else "frames"
            why, cause = "no other offset has another frame of its sequence", ", or too short"
            if are_beyond:
                why, cause = "each other offset is beyond the ends of every sequence", ""
            raise SettingError(
                f"The window of {window} {self.unit} would repeat the frame of the moment: {why}. "
                f"{self._longest()}. Offsets are in {unit}: are these in another unit{cause}?"
            )

    def _longest(self) -> str:
        lengths = np.diff(self._bounds)
        longest = f"has {lengths.max()} frame(s)"
        if self.unit == "s":
            spans_s = self._moments.values[self._bounds[1:] - 1] - self._moments.values[self._bounds[:-1]]
            longest = f"lasts {spans_s.max():g} s"
        num_missing = len(getattr(self.data_provider, "missing_frames", ()))
        advice = f"; {num_missing} frames of cameras are missing, and end sequences unless `missing` is 'bridge' "
        advice += "(with another `reference_camera` it may be fewer)"
        return f"The longest of {len(lengths)} sequence(s) {longest}{advice * bool(num_missing)}"

    def _described(self) -> str:
        return "; ".join(f"{window} {self.unit}" for window in self._windows)

    def _problems(self, window: _Window, rows: Int64Array, frames: Frames) -> Iterator[str]:
        """Say what is wrong at each time for which there is no frame."""
        sequences = self._sequences_of(rows)
        rule = "nearest" if self._take == "nearest" else "last one before"
        for moment, place in np.argwhere(frames.is_missing).tolist():
            row, sequence, offset_s = int(rows[moment]), int(sequences[moment]), float(window.offsets[place])
            start, end = self._bounds[sequence : sequence + 2]
            near_s = self._moments.values[row] + offset_s - self._moments.values[start]
            shift = f" {'+' if offset_s > 0 else '-'} {abs(offset_s):g} s" * (offset_s != 0)
            text = f"{format_paths(window.paths)}: no frame near {near_s:g} s of sequence {sequence} "
            text += f"(frame {row - start}{shift}): "
            if np.isnan(window.times.values[start:end]).all():
                yield f"{text}the sequence has none with this field. Leave the sequence out."
                continue
            yield (
                f"{text}the {rule}, frame {frames.rows[moment, place] - start}, is "
                f"{frames.off[moment, place]:g} s away; `tolerance_s` is {window.tolerance:g}. Raise it, or use "
                f"edges='drop', which leaves such moments out."
            )

    # --- samples ------------------------------------------------------------------------------------------

    @property
    def data_provider(self) -> DataProvider:
        """The wrapped provider."""
        return self._loader.provider

    def _rows_of(self, sample_indices: Sequence[int]) -> Int64Array:
        count = self.get_number_of_samples()
        return self.rows[[index_in(index, "sample_index", count) for index in sample_indices]]

    def get_number_of_samples(self) -> int:
        """Get the number of moments."""
        return len(self.rows)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load the windows of a moment.

        Raises:
            SettingError: There is no such sample; the error is also an IndexError.
            FieldValueError: There is no frame at a time, see the class, or the shape of a field is not the same in
                all frames of its window.
        """
        return next(self.load_batch([sample_index], [0]))

    def describe_sample(self, sample_index: int) -> str:
        """Describe the frame at the moment of a sample, as the wrapped provider describes it."""
        return self.data_provider.describe_sample(int(self._rows_of([sample_index])[0]))

    @property
    def loads_batches(self) -> bool:
        """Return True: windows of a batch share frames."""
        return True

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the moments of a batch; moments whose windows of pictures overlap are loaded together."""
        rows = self._rows_of(sample_indices)
        groups = self._overlapping(rows)
        group_of = {place: number for number, places in enumerate(groups) for place in places}

        def load(places: list[int]) -> Iterator[list[FieldValue]]:
            return self._loaded(rows[places], [sample_indices[place] for place in places])

        num_threads = min(getattr(self.data_provider, "num_batch_threads", 1), len(groups))
        begun = dict[int, Iterator[list[FieldValue]]]()
        with contextlib.ExitStack() as stack:
            following: Iterator[Iterator[list[FieldValue]]] = map(load, groups)
            if num_threads > 1:
                threads = stack.enter_context(ThreadPoolExecutor(num_threads))
                following = threads.map(lambda places: iter([*load(places)]), groups)
            for place in range(len(rows)):
                number = group_of[place]
                if place == groups[number][0]:
                    begun[number] = next(following)
                sample = self.new_sample()
                sample.set_data(next(begun[number]))
                if place == groups[number][-1]:
                    del begun[number]  # holds the frames of the group
                yield sample

    def _overlapping(self, rows: Int64Array) -> list[list[int]]:
        """Get the places of the moments of each group, in the order of the batch."""
        times, sequences = self._moments.values[rows], self._sequences_of(rows)
        order = np.lexsort((times, sequences))
        is_apart = (np.diff(sequences[order]) != 0) | (np.diff(times[order]) > self._span + SAME)
        groups = np.split(order, np.flatnonzero(is_apart) + 1)
        return sorted(sorted(group.tolist()) for group in groups)

    def _loaded(self, rows: Int64Array, indices: Sequence[int]) -> Iterator[list[FieldValue]]:
        """Load samples whose moments are rows of one sequence: their values in flat order."""
        found = [self._frames(window, rows) for window in self._windows]
        wanted = dict.fromkeys(self._others, rows.tolist())
        columns: dict[FieldPath, FieldColumn] = {}
        masks: dict[FieldPath, FieldColumn] = {}
        rows_of_clips: dict[FieldPath, Int64Array] = {}
        for window, frames in zip(self._windows, found, strict=True):
            if frames.is_missing.any():
                error = FieldValueError(next(self._problems(window, rows, frames)))
                name_sample(error, indices[int(frames.is_missing.any(axis=1).argmax())])
                raise error
            whole = [path for path in window.paths if path not in self._videos]
            wanted |= dict.fromkeys(whole, frames.rows.ravel().tolist())
            rows_of_clips |= {path: frames.rows for path in window.paths if path in self._videos}
            masks |= {mask_path(path): frames.is_pad for path in window.paths}
        try:
            columns |= self._loader.load_fields(wanted)
            for path, of_clips in rows_of_clips.items():
                clips = self._loader.load_clips(path, of_clips) or ()
                columns[path], columns[numbers_path(path)] = [*zip(*clips, strict=True)]
        except BaseException as error:
            row = named_index(error)
            if row is None and len(rows) > 1 and isinstance(error, Exception):  # to find whose frames they are
                for place in range(len(rows)):
                    yield from self._loaded(rows[place : place + 1], indices[place : place + 1])
                return
            needed = np.concatenate([rows[:, None], *(frames.rows for frames in found)], axis=1)
            if row is not None and (needed == row).any():
                index = indices[int((needed == row).any(axis=1).argmax())]
                set_named_index(error, index)
                add_note(error, f"which is in the windows of sample {index} of the {type(self).__name__}")
            raise
        columns |= masks
        format = self._blueprint.format
        for moment in range(len(rows)):
            values = self._window_format.values(columns, moment, format)
            yield [values[path] for path in format.flat_paths]

    # --- what samplers and people read --------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of samples of each sequence that has some, ``(S,)`` int64; see the class for ``edges="drop"``."""
        return np.diff(np.append(self._firsts, len(self.rows)))

    def frame_times_s(self, path: FieldPath = ()) -> Float64Array | None:
        """Get the times of the samples; of a field, its time at each moment (None with ``times_s``)."""
        if self.unit == "s" and (self._has_times or not path):
            return None if path else self._moments.values[self.rows]
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
            return tuple(value[sequence] for sequence in self._sequences_of(self.rows[self._firsts]).tolist())
        return value

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check that there is a frame for each time of each window, and the rules of the wrapped provider."""
        problems: list[str] = []
        num_times, num_pad, num_missing, most = 0, 0, 0, 0.0
        for window in self._windows:
            for part in _parts(self.rows):
                frames = self._frames(window, self.rows[part])
                most = max(most, float(frames.off[~(frames.is_pad | frames.is_missing)].max(initial=0)))
                num_times += frames.rows.size
                num_pad += int(np.count_nonzero(frames.is_pad))
                num_missing += int(np.count_nonzero(frames.is_missing))
                if len(problems) < _MOST_PROBLEMS:
                    problems += self._problems(window, self.rows[part], frames)
        figure = f"windows: {num_times} times, {num_pad} padded, {num_missing} without a frame"
        figure += f"; frames are at most {round(most, 6):g} s off" * (self.unit == "s")
        yield Finding("there must be a frame for each time of a window", figure, problems[:_MOST_PROBLEMS])
        of_moments = {row: self.data_provider.get_data(row) for row in self._rows_of([*samples]).tolist()}
        yield from self.data_provider.contract_findings(of_moments, seed)

    def __repr__(self) -> str:
        """Summarise the windows."""
        windows = self._described()
        settings = f"step={self._step}, " * (self._step > 1) + f"edges={self._edges!r}"
        if self.unit == "s":
            windows = "; ".join(f"{window} s (within {window.tolerance:g} s)" for window in self._windows)
            settings = f"take={self._take!r}, {settings}"
        left_out = int((-(-np.diff(self._bounds) // self._step)).sum()) - len(self.rows)
        settings += f", {left_out} moments left out" * bool(left_out)
        moments = f"{len(self.rows)} moments of {summary(self.data_provider)}"
        return f"{type(self).__name__}({moments}: {windows}; {settings})"


def _parts(rows: Int64Array) -> list[slice]:
    return [slice(start, start + _MOMENTS_AT_A_TIME) for start in range(0, len(rows), _MOMENTS_AT_A_TIME)]


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


def _moments_s(provider: DataProvider, bounds: Int64Array, times_s: npt.ArrayLike | None) -> Float64Array:
    found = provider.frame_times_s() if times_s is None else times_s
    if found is None:
        raise SettingError(
            f"Offsets in seconds need the times of the samples, which {type(provider).__name__} does not know. "
            f"Give `times_s`, or offsets in frames (unit='frames'); a provider of your own defines "
            f"`frame_times_s`."
        )
    times = checked_times(found, bounds, "`times_s`")
    if np.isnan(times).any():
        raise SettingError(f"`times_s` must be finite, got nan for sample {int(np.isnan(times).argmax())}.")
    return times
