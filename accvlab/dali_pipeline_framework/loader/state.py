# SPDX-License-Identifier: Apache-2.0
"""The state of a loader: its position, and the data and order to which that belongs."""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from ..checks import bullets, whole_number
from ..errors import SettingError, StateError
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.names import described_together, format_path, format_paths
from ..sampling.random_access_sampler import Description, EpochSegment
from ..sources.planned_input import PlannedInput
from ..user_warnings import warn_user

_MOST_LINES = 10
_PART_OF_PATH = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def fields_for_state(blueprint: GroupFormat) -> dict[str, str]:
    """The fields of a format as they are in a state: the names of their types, by their paths, in order."""
    leaves = zip(blueprint.flat_paths, blueprint.flat_dtypes, strict=True)
    return {format_path(path): dtype.name for path, dtype in leaves}


def difference_of_fields(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Say how the fields in a state and those of a loader differ; empty if they do not."""
    if [*there.items()] == [*here.items()]:
        return ""
    more, less = ([path for path in one if path not in other] for one, other in ((here, there), (there, here)))
    lines = [
        f"{len(paths)} field{'s' * (len(paths) > 1)} {word} than when the state was saved: "
        f"{format_paths(map(_path_of, paths))}"
        for paths, word in ((more, "more"), (less, "less"))
        if paths
    ]
    both = ((path, there[path], here[path]) for path in here if path in there)
    changed = [(_path_of(path), f"{old} in the state, {new} here") for path, old, new in both if old != new]
    lines += described_together(changed)
    if not lines:
        orders = (format_paths(map(_path_of, paths)) for paths in (there, here))
        lines = ["another order, {} in the state, {} here".format(*orders)]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"and {len(lines) - _MOST_LINES + 1} more"]
    return "; ".join(lines)


def _path_of(text: str) -> FieldPath:
    path = tuple(int(index) if index else name for index, name in _PART_OF_PATH.findall(text))
    return path if format_path(path) == text else (text,)


EpochSegments: TypeAlias = tuple[int, tuple[EpochSegment, ...]]
"""An epoch, and what was delivered of it with other batch sizes."""

NO_SEGMENTS: EpochSegments = (0, ())
"""For all epochs from their beginning."""

_VERSION = 1
_LARGEST = 2**63 - 1
_CHECKSUM = "checksum"
_STEPS_IN_WORKERS = "steps_in_workers"

_short = reprlib.Repr()  # what is damaged can be long, or deeply nested
_short.maxstring = _short.maxother = 200
_short_repr = _short.repr


@attrs.frozen
class LoaderState:
    """Position of a loader, and the data and order to which it belongs.

    Attributes:
        epoch: Epoch of the batch that is delivered next.
        batch: Number of that batch in the epoch, with all segments.
        num_shards: Number of shards.
        total_batch_size: Samples per batch, all shards together.
        segments: What was delivered of this epoch with other batch sizes, before the present one.
        seed: Seed of the random draws.
        plan: Settings on which the order depends.
        fields: Types of the fields of the samples, by their paths.
        failed: Indices of samples that have failed on this rank, where a `FaultPolicy` counts them. The only entry
            that differs between ranks, and only there where some have failed.
    """

    epoch: int
    batch: int
    num_shards: int
    total_batch_size: int
    segments: tuple[EpochSegment, ...]
    seed: int
    plan: Description
    fields: Mapping[str, str]
    failed: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The state as a value for JSON, with a checksum."""
        state = {"version": _VERSION, **attrs.asdict(self, recurse=False)}
        state["segments"] = [list(attrs.astuple(segment)) for segment in self.segments]
        state["fields"] = [list(field) for field in self.fields.items()]  # frameworks sort the keys of a dict
        state["failed"] = list(self.failed)
        if not self.failed:
            del state["failed"]
        state[_CHECKSUM] = checksum_of(state)
        return state


def checksum_of(state: Mapping[str, object]) -> str:
    """A digest of all entries but itself; the same after they were written as JSON and read again."""
    entries = {name: value for name, value in state.items() if name != _CHECKSUM}
    return hashlib.blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=8).hexdigest()


def parse_state(state: Mapping[str, Any] | str | bytes) -> LoaderState:
    """Read a state.

    Raises:
        StateError: It is damaged, or of another version.
    """
    state = _of_this_version(state)
    checksum = state.get(_CHECKSUM)
    try:
        is_intact = type(checksum) is str and checksum == checksum_of(state)
    except (TypeError, ValueError, RecursionError):  # no values of JSON
        is_intact = False
    if not is_intact:
        problem = "is missing" if checksum is None else "is another one"
        raise StateError(f"The state is damaged: its checksum {problem}: it was edited, or changed on its way.")
    values = {name: value for name, value in state.items() if name not in ("version", _CHECKSUM)}
    try:
        return _with_checked_values(values)
    except (TypeError, ValueError, KeyError) as error:
        raise StateError(f"No loader has written this state, though its checksum is right: {error}.") from error


def _with_checked_values(values: dict[str, Any]) -> LoaderState:
    for name, least in (("epoch", 0), ("batch", 0), ("seed", 0), ("num_shards", 1), ("total_batch_size", 1)):
        whole_number(values[name], name, at_least=least, at_most=_LARGEST)
    values["segments"] = tuple(EpochSegment(*segment) for segment in values["segments"])
    for segment in values["segments"]:
        for name, count in attrs.asdict(segment).items():
            whole_number(count, name, at_least=1, at_most=_LARGEST)
    values["fields"] = dict(values["fields"])
    values["failed"] = tuple(whole_number(index, "failed", at_least=0) for index in values.get("failed", ()))
    if not isinstance(values["plan"], dict) or not all(isinstance(name, str) for name in values["fields"]):
        raise TypeError("its plan or its fields are no such entries")
    if sum(segment.num_batches for segment in values["segments"]) > values["batch"]:
        raise ValueError("its segments have more batches than were delivered")
    return LoaderState(**values)


def _of_this_version(state: Mapping[str, Any] | str | bytes) -> Mapping[str, Any]:
    if isinstance(state, str | bytes | bytearray):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:  # no JSON, no text, too many digits, too many brackets
            advice = "Was the file written to its end?"
            if isinstance(state, str) and state and "{" not in state:
                advice += " If this is its path, use load_state(loader, path)."
            raise StateError(f"The state is not valid JSON ({error}). {advice}") from error
    if not isinstance(state, Mapping):
        raise StateError(f"The state must be a dict (or JSON text of one), got {type(state).__name__}.")
    version = state.get("version")
    if version is None:
        problem = "This is no state of this loader: it has no version"
        advice = "Of a checkpoint, pass only what `loader.state_dict()` has returned."
        entries = f", but the entries {', '.join(map(_short_repr, [*state][:5]))}" if state else ", it is empty"
        raise StateError(f"{problem}{entries}. {advice}")
    if type(version) is not int or version != _VERSION:
        rule = f"this release of the package reads version {_VERSION}"
        raise StateError(f"The state has version {_short_repr(version)}, {rule}.")
    return state


def with_forms(plan: Description, steps_in_workers: int) -> Description:
    """Add which steps run on arrays, where some do: their pixels may differ from those of the graph."""
    return {**plan, **({_STEPS_IN_WORKERS: steps_in_workers} if steps_in_workers else {})}


def require_same_run(saved: LoaderState, own: LoaderState) -> None:
    """Raise a `StateError` with all that differs where a state belongs to other data or another order."""
    there, here = saved.plan, own.plan
    differences = [
        f"{name}: {_shown(there, name)} in the state, {_shown(here, name)} here"
        for name in dict.fromkeys([*there, *here])
        if name != _STEPS_IN_WORKERS and there.get(name) != here.get(name)
    ]
    if saved.seed != own.seed:
        differences.append(f"seed of the random draws: {saved.seed} in the state, {own.seed} here")
    of_fields = difference_of_fields(saved.fields, own.fields)
    if of_fields:
        differences.append(f"fields of the samples (names, types, order): {of_fields}")
    if differences:
        error = StateError(
            f"The state belongs to other data or another order:\n{bullets(differences)}\n"
            f"Continue with the data and settings with which it was saved, or start anew."
        )
        error.differences = tuple(differences)
        raise error
    if there.get(_STEPS_IN_WORKERS) != here.get(_STEPS_IN_WORKERS):
        warn_user(
            f"The state was saved where {there.get(_STEPS_IN_WORKERS, 0)} steps ran in the workers, here "
            f"{here.get(_STEPS_IN_WORKERS, 0)} do. The samples are the same, but pixels may differ within the "
            f"tolerance of the steps. Pass `run` to the loader to have them run where they did."
        )


def _shown(plan: Description, name: str) -> str:
    return "nothing" if plan.get(name) is None else _short_repr(plan[name])


def continued_segments(saved: LoaderState, own: LoaderState, data_input: object) -> EpochSegments:
    """The epoch of a saved state, and how it was begun as seen from a loader with other settings.

    Raises:
        StateError: The order of the input depends on what has changed, or has fewer batches than were delivered.
    """
    planned = data_input if isinstance(data_input, PlannedInput) else None
    depends_on_shards = planned is None or planned.sampler.depends_on_shards
    segments = saved.segments
    num_batches = saved.batch - sum(segment.num_batches for segment in segments)
    is_same = saved.total_batch_size == own.total_batch_size and (
        saved.num_shards == own.num_shards or not depends_on_shards
    )
    if not getattr(data_input, "has_epochs", True):
        num_batches += saved.epoch  # whose epochs are parts of one stream
    if not is_same and num_batches > 0:
        segments = (*segments, EpochSegment(saved.num_shards, saved.total_batch_size, num_batches))
    if segments and planned is None:
        rule = "a begun epoch can be continued only with the same batch size and number of shards"
        raise StateError(
            f"{type(data_input).__name__} knows only its own order: {rule}. The state was saved with batches of "
            f"{saved.total_batch_size} in all on {saved.num_shards} shard(s), here they are "
            f"{own.total_batch_size} on {own.num_shards}."
        )
    if planned is not None:
        try:
            whole = planned.continued(saved.epoch, segments) if segments else planned
            in_epoch = whole.num_batches_of_all_shards(saved.epoch) if saved.batch > 0 else None
        except SettingError as error:
            raise StateError(str(error)) from error
        if in_epoch is not None and saved.batch > in_epoch:
            problem = f"{saved.batch} batches of epoch {saved.epoch} were delivered"
            raise StateError(f"The state belongs to another order: {problem}, which has only {in_epoch} here.")
    return (saved.epoch, segments) if segments else NO_SEGMENTS
