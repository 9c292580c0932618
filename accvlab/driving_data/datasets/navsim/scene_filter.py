# SPDX-License-Identifier: Apache-2.0
"""Which frames of logs are samples, as the scene filters of NAVSIM say it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from attrs.validators import optional

from accvlab.dali_pipeline_framework import checks
from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, shown, valid
from accvlab.dali_pipeline_framework.errors import FileError, MissingPackageError, SettingError, file_error
from accvlab.dali_pipeline_framework.extension import read_table

from ..driving.array_types import Int64
from ..driving.driving_index import DrivingIndex, rows_from

_logger = logging.getLogger(__name__)
_PERIOD_S, _MOST_JITTER_S = 0.5, 0.2


def _names(value: Sequence[str] | None) -> tuple[str, ...] | None:
    try:
        return value if isinstance(value, str | bytes) else tuple(value)  # type: ignore[arg-type, return-value]
    except Exception:  # what is no list, an array without axes, or an error of the object's own: refused below
        return value  # type: ignore[return-value]


@attrs.frozen(kw_only=True)
class SceneFilter:
    """Chooses scenes of logs, with the names, defaults and meaning of NAVSIM's ``SceneFilter``.

    A scene has ``num_history_frames + num_future_frames`` consecutive frames of one log. It begins at every
    ``frame_interval``-th frame of the log; a scene that would go beyond the end of the log is left out. The last
    frame of the history is its *current* frame, whose token names it.

    Attributes:
        num_history_frames: Frames up to the current one, which counts.
        num_future_frames: Frames after it.
        frame_interval: Frames from the begin of one scene to the begin of the next; None: scenes do not overlap.
        has_route: Whether scenes are left out whose current frame has no ``roadblock_ids``.
        max_scenes: How many scenes at most: the first ones.
        log_names: Names of the logs; None for all.
        tokens: Tokens of the scenes; None for all.
    """

    num_history_frames: int = attrs.field(default=4, validator=valid(checks.whole_number, at_least=1))
    num_future_frames: int = attrs.field(default=10, validator=valid(checks.whole_number, at_least=0))
    frame_interval: int | None = attrs.field(
        default=None, validator=optional(valid(checks.whole_number, at_least=1))
    )
    has_route: bool = attrs.field(default=True, validator=valid(checks.flag))
    max_scenes: int | None = attrs.field(default=None, validator=optional(valid(checks.whole_number, at_least=1)))
    log_names: Sequence[str] | None = attrs.field(default=None, converter=_names, repr=False)
    tokens: Sequence[str] | None = attrs.field(default=None, converter=_names, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse a single name in place of a list."""
        for name in ("log_names", "tokens"):
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, tuple):
                    got = f"got one: write [{value!r}]" if isinstance(value, str) else f"got {shown(value)}"
                    raise SettingError(f"`{name}` must be a list of names, {got}.")
                for each in value:
                    checks.text(each, name)

    @classmethod
    def from_yaml(cls, *paths: str | os.PathLike[str]) -> SceneFilter:
        """Read files of ``scene_filter`` in NAVSIM's configuration, e.g. ``navtrain.yaml``.

        Entries of a later file replace entries of an earlier one. ``train_logs``, ``val_logs`` and ``test_logs``
        of ``default_train_val_test_log_split.yaml`` are no part of a filter: read them with `log_split`.

        Raises:
            FileError: A file cannot be read, or has an entry that is no part of a filter.
            MissingPackageError: PyYAML is not installed.
        """
        settings: dict[str, Any] = {}
        known = [field.name for field in attrs.fields(cls)]
        for path in paths:
            for name, value in _yaml_of(path).items():
                if name in known:
                    settings[name] = _value_of(value)
                elif not name.startswith("_") and _value_of(value) not in (None, False, []):
                    hint = f"{did_you_mean(name, known)} Known are: {listed(known)}."
                    raise FileError(
                        f"The file {os.fspath(path)!r} has {name!r}, which is no part of a scene filter.{hint} "
                        f"Scenes that are not recorded (synthetic ones) are not read."
                    )
        try:
            return cls(**settings)
        except SettingError as error:
            raise FileError(f"The files {listed(map(os.fspath, paths))} are no scene filter: {error}") from error

    @property
    def num_frames(self) -> int:
        """Frames of a scene."""
        return self.num_history_frames + self.num_future_frames

    def current_frames(self, index: DrivingIndex) -> Int64:
        """Get the numbers of the current frames of the scenes in ``index``, log by log.

        Raises:
            SettingError: One of ``tokens`` is of no frame, or no scene is left.
        """
        first = np.asarray(index.frames.first_of_scene)
        lengths, interval = np.diff(first), self.frame_interval or self.num_frames
        counts = np.maximum((lengths - self.num_frames) // interval + 1, 0)
        starts = rows_from(np.zeros_like(counts), counts) * interval + np.repeat(first[:-1], counts)
        chosen = starts + (self.num_history_frames - 1)
        self._warn_of_gaps(index, starts)
        stages = [(f"have {self.num_frames} frames", len(chosen))]
        if self.has_route and index.frames.has_route is not None:
            chosen = chosen[index.frames.has_route[chosen]]
            stages.append(("have a route", len(chosen)))
        if self.tokens is not None:
            tokens = np.array([os.fsencode(token) for token in self.tokens], np.bytes_)
            self._require_known(tokens, index)
            chosen = chosen[np.isin(index.frames.token[chosen], tokens)]
            left_out = np.setdiff1d(tokens, index.frames.token[chosen])
            if len(left_out) and len(chosen):
                _logger.warning(
                    "%d of %d `tokens` are those of no scene with these settings, e.g. %r: the log ends there, "
                    "there is no route, or no scene begins there (`frame_interval`).",
                    *(len(left_out), len(tokens), os.fsdecode(left_out[0])),
                )
            stages.append(("are among `tokens`", len(chosen)))
        if not len(chosen):
            found = bullets(f"{count} {what}" for what, count in stages)
            raise SettingError(
                f"The scene filter leaves no scene. Of {int(lengths.sum())} frames in {len(lengths)} log(s), the "
                f"scenes that\n{found}\nShorten the scenes (`num_history_frames`, `num_future_frames`), or give "
                f"other `tokens` or `log_names`, or `has_route=False`."
            )
        return np.asarray(chosen[: self.max_scenes])

    def _warn_of_gaps(self, index: DrivingIndex, starts: Int64) -> None:
        """Warn of scenes in which frames are missing: futures are said to be 0.5 s apart."""
        is_wide = np.abs(np.diff(index.frames.time, append=np.inf) - _PERIOD_S) > _MOST_JITTER_S
        num_wide = np.concatenate([[0], np.cumsum(is_wide)])  # before each frame
        wide = starts[num_wide[starts + self.num_frames - 1] > num_wide[starts]]
        if len(wide):
            token = os.fsdecode(index.frames.token[wide[0] + self.num_history_frames - 1])
            _logger.warning(
                "%d of %d scenes, e.g. %r, have frames that are not %g s apart, as their poses are said to be: "
                "some are missing in the logs. Leave these out (`log_names`), or name other scenes (`tokens`).",
                *(len(wide), len(starts), token, _PERIOD_S),
            )

    @staticmethod
    def _require_known(tokens: np.ndarray[Any, np.dtype[np.bytes_]], index: DrivingIndex) -> None:
        missing = tokens[~np.isin(tokens, index.frames.token)]
        if len(missing):
            raise SettingError(
                f"`tokens` must be tokens of frames of the logs, {len(missing)} of {len(tokens)} are not: "
                f"{listed([shown(os.fsdecode(token)) for token in missing], 5)}. Give the split that has them, "
                f"and `log_names` with their logs, or leave `log_names` out."
            )


def log_split(path: str | os.PathLike[str], name: str) -> tuple[str, ...]:
    """Read names of logs from a file such as ``default_train_val_test_log_split.yaml``, for ``log_names``.

    Args:
        path: The file.
        name: Which list of it: ``"train_logs"``, ``"val_logs"`` or ``"test_logs"``.

    Raises:
        FileError: It cannot be read, or has no such list.
        MissingPackageError: PyYAML is not installed.
    """
    lists = _yaml_of(path)
    found = _value_of(lists.get(name))
    if not isinstance(found, list):
        hint = f"{did_you_mean(name, list(lists))} It has: {listed(lists)}."
        raise FileError(f"The file {os.fspath(path)!r} has no list {name!r}.{hint}")
    return tuple(map(str, found))


_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}


def _value_of(value: Any) -> Any:
    """What a scalar means where it stands alone; names in lists stay texts, also those of digits."""
    if not isinstance(value, str):
        return value
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    return int(value) if value.isascii() and value.isdecimal() else value


def _yaml_of(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingPackageError(
            f"{os.fspath(path)!r} is YAML, and PyYAML cannot be imported ({error}). Install it: "
            f"pip install pyyaml."
        ) from error
    # All scalars as texts: a token of digits, or such as 1e5, is no number.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        found = yaml.load(read_table(path), loader)  # it makes texts, lists and dicts, nothing else
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise file_error(f"The file {os.fspath(path)!r} cannot be read", error) from error
    if not isinstance(found, dict):
        raise FileError(f"The file {os.fspath(path)!r} must hold a mapping of names, got {shown(found)}.")
    return {str(name): value for name, value in found.items()}
