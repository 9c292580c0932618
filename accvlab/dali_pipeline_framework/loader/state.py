# SPDX-License-Identifier: Apache-2.0
"""The state of a loader: where it stands, and to what data and order that belongs."""

from __future__ import annotations

import base64
import hashlib
import json
import reprlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from ..errors import SettingError, StateError
from ..sample_data import GroupFormat, format_path
from ..sampling.random_access_sampler import Description, EpochSegment, RandomAccessSampler
from ..sources.planned_input import PlannedInput

_VERSION = 1
_MOST_PLAN_BYTES = 450  # leaves room for as many segments as can be, with numbers as large as occur
_MARK = "#"  # begins the hash that stands for settings
MOST_SEGMENTS = 12
"""How often the batch size can be changed within an epoch."""

_short = reprlib.Repr()  # what is damaged can be long, or deeply nested
_short.maxstring = _short.maxother = 200
_short_repr = _short.repr

_LIMITS = {"epoch": 2**31, "batch": 2**62, "num_shards": 2**31, "total_batch_size": 2**31, "seed": 2**63}


@attrs.frozen
class ReaderState:
    """Where native readers stand.

    Attributes:
        epoch: Their epoch.
        batch: Batches received of it, also those that were thrown away.
        checkpoint: DALI's checkpoint of the pipeline.
    """

    epoch: int
    batch: int
    checkpoint: bytes

    def to_list(self) -> list[Any]:
        """The values as JSON can hold them."""
        return [self.epoch, self.batch, base64.b85encode(zlib.compress(self.checkpoint, 9)).decode()]


@attrs.frozen
class LoaderState:
    """Where a loader stands.

    Attributes:
        epoch: Epoch of the batch that is delivered next.
        batch: Number of that batch in the epoch, with all segments.
        segments: What was delivered of this epoch with other batch sizes, before the present one.
        num_shards: Number of shards.
        total_batch_size: Samples per batch, all shards together.
        seed: Seed of the random draws.
        plan: What the order depends on.
        blueprint: Fingerprint of the format of the samples.
        reader: Where native readers stand; None where there are none, or they have not begun.
    """

    epoch: int
    batch: int
    segments: tuple[EpochSegment, ...]
    num_shards: int
    total_batch_size: int
    seed: int
    plan: Description
    blueprint: str
    reader: ReaderState | None = None

    def to_dict(self) -> dict[str, Any]:
        """The state as a value for JSON, of at most 1024 bytes beside the checkpoint of native readers."""
        require_few_segments(self.epoch, self.segments)
        reader = {} if self.reader is None else {"reader": self.reader.to_list()}
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "num_shards": self.num_shards,
            "total_batch_size": self.total_batch_size,
            "segments": [
                [segment.num_shards, segment.total_batch_size, segment.num_batches] for segment in self.segments
            ],
            "seed": self.seed,
            "plan": self.plan,
            "blueprint": self.blueprint,
            **reader,
        }


def require_few_segments(epoch: int, segments: Sequence[EpochSegment]) -> None:
    """Raise a `StateError` where the batch size was changed so often within an epoch that no state can tell it."""
    if len(segments) > MOST_SEGMENTS:
        raise StateError(
            f"The batch size was changed {len(segments)} times within epoch {epoch}; a state can tell of "
            f"{MOST_SEGMENTS} changes per epoch. Finish the epoch before changing it again."
        )


def shortened(plan: Description) -> Description:
    """A description that fits into a state.

    In a long one the settings of a component (those of one sampler of a mixture, those of the clips) are replaced
    by a hash of them, the longest first; only where that is not enough it is cut.
    """
    if _size(plan) <= _MOST_PLAN_BYTES:
        return plan
    plan = {name: value for name, value in plan.items() if value is not None}
    # Per component how much shorter a hash makes the description.
    gains: dict[str, int] = {}
    for name, value in plan.items():
        component = _component(name)
        gains.setdefault(component, -_size({component: _MARK + _hash("")}))
        gains[component] += _size({name: value})
    for component in sorted(gains, key=lambda each: -gains[each]):
        if _size(plan) <= _MOST_PLAN_BYTES or gains[component] <= 0:
            break
        plan = _hashed(plan, {component})
    return plan if _size(plan) <= _MOST_PLAN_BYTES else _cut(plan)


def _size(plan: Description) -> int:
    return len(json.dumps(plan))


def _component(name: str) -> str:
    return name.partition(".")[0]


def _hashed(plan: Description, components: Collection[str]) -> Description:
    """The plan with one hash in place of all settings of a component."""
    hashed: Description = {}
    for name, value in plan.items():
        component = _component(name)
        if component not in components:
            hashed[name] = value
        elif component not in hashed:
            settings = {
                each: plan[each] for each in plan if _component(each) == component and plan[each] is not None
            }
            is_hash = list(settings) == [component] and _is_hash(settings[component])
            hashed[component] = settings[component] if is_hash else _MARK + _hash(json.dumps(settings))
    return hashed


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == len(_MARK) + len(_hash("")) and value.startswith(_MARK)


def _cut(plan: Description) -> Description:
    kept: Description = {}
    for name, value in plan.items():
        if _size({**kept, name: value}) > _MOST_PLAN_BYTES - 50:  # the rest takes up to 50
            break
        kept[name] = value
    rest = {name: value for name, value in plan.items() if name not in kept}
    kept[f"{len(rest)} other settings"] = _MARK + _hash(json.dumps(rest))
    return kept


def fingerprint(blueprint: GroupFormat) -> str:
    """A short text that tells formats apart: names, types and their order."""
    leaves = zip(blueprint.flat_paths, blueprint.flat_dtypes, strict=True)
    return _hash("\n".join(f"{format_path(path)}: {dtype.name}" for path, dtype in leaves))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def parse_state(state: Mapping[str, Any] | str | bytes) -> LoaderState:
    """Read a state.

    Raises:
        StateError: It is damaged, or of another version.
    """
    if isinstance(state, str | bytes | bytearray):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:  # no JSON, no text, too many digits, too many brackets
            raise StateError(f"The state is not valid JSON ({error}). Was the file written to its end?") from error
    if not isinstance(state, Mapping):
        raise StateError(f"The state must be a dict (or JSON text of one), got {type(state).__name__}.")
    version = state.get("version")
    if type(version) is not int or version != _VERSION:
        raise StateError(
            f"The state has version {_short_repr(version)}, this release of the package reads version {_VERSION}."
            + (" Is it the state of a loader?" if version is None else "")
        )
    problems = _problems_of_entries(state) or _problems_of_batches(state)
    if problems:
        raise damaged(problems)
    return LoaderState(
        state["epoch"],
        state["batch"],
        tuple(EpochSegment(*segment) for segment in state["segments"]),
        state["num_shards"],
        state["total_batch_size"],
        state["seed"],
        dict(state["plan"]),
        state["blueprint"],
        _parsed_reader(state.get("reader")),
    )


def _parsed_reader(value: Any) -> ReaderState | None:
    if value is None:
        return None
    problem = "  - `reader` must be a list of two whole numbers and a text that holds a checkpoint of DALI"
    if not isinstance(value, list | tuple) or len(value) != 3 or not isinstance(value[2], str):
        raise damaged([problem])
    if not all(_is_count(number, 0) for number in value[:2]):
        raise damaged([problem])
    try:
        checkpoint = zlib.decompress(base64.b85decode(value[2]))
    except (ValueError, zlib.error) as error:
        raise damaged([f"{problem} ({error})"]) from error
    return ReaderState(value[0], value[1], checkpoint)


def _problems_of_entries(state: Mapping[str, Any]) -> list[str]:
    known = {field.name for field in attrs.fields(LoaderState)} - {"reader"}
    problems = [f"  - `{name}` is missing" for name in sorted(known - state.keys())]
    for name, limit in _LIMITS.items():
        least = 1 if name in ("num_shards", "total_batch_size") else 0
        if name not in state:
            continue
        if not _is_count(state[name], least):
            got = _short_repr(state[name])
            problems.append(f"  - `{name}` must be a whole number of at least {least}, got {got}")
        elif state[name] >= limit:
            power = limit.bit_length() - 1
            problems.append(
                f"  - `{name}` must be less than 2**{power}, got a number of {state[name].bit_length()} bits"
            )
    segments = state.get("segments", [])
    if not isinstance(segments, list) or not all(
        isinstance(segment, list | tuple) and len(segment) == 3 and all(_is_count(number, 1) for number in segment)
        for segment in segments
    ):
        problems.append(
            f"  - `segments` must be a list of lists of three whole numbers, got {_short_repr(segments)}"
        )
    elif len(segments) > MOST_SEGMENTS:
        problems.append(f"  - `segments` must be at most {MOST_SEGMENTS}, got {len(segments)}")
    elif any(max(segment[:2]) >= _LIMITS["total_batch_size"] for segment in segments):
        problems.append("  - numbers of shards and batch sizes in `segments` must be less than 2**31")
    plan = state.get("plan", {})
    if not isinstance(plan, Mapping):
        problems.append(f"  - `plan` must be a dict, got {_short_repr(plan)}")
    elif not _fits_json(plan):
        problems.append(f"  - `plan` must be a dict that JSON can hold, got {_short_repr(plan)}")
    if not isinstance(state.get("blueprint", ""), str):
        problems.append(f"  - `blueprint` must be a text, got {_short_repr(state['blueprint'])}")
    return problems


def _problems_of_batches(state: Mapping[str, Any]) -> list[str]:
    segments = [*state["segments"], (state["num_shards"], state["total_batch_size"], 0)]
    problems = [
        f"  - batches of {total_batch_size} cannot be dealt evenly to {num_shards} shards"
        for num_shards, total_batch_size, _ in segments
        if total_batch_size % num_shards
    ]
    if sum(segment[2] for segment in segments) > state["batch"]:
        problems.append("  - `segments` have more batches than `batch` tells")
    return problems


def damaged(problems: list[str]) -> StateError:
    """The error for a state that cannot be that of any loader."""
    return StateError("The state is damaged:\n" + "\n".join(problems))


def require_within_epoch(saved: LoaderState, sampler: RandomAccessSampler) -> None:
    """Raise a `StateError` where a state tells of more batches than its epoch has."""
    if sampler.num_batches(0) is None:
        return
    num_before = sum(segment.num_batches for segment in saved.segments)
    segments = (*saved.segments, EpochSegment(saved.num_shards, saved.total_batch_size, saved.batch - num_before))
    for number, segment in enumerate(segments):
        try:
            planned = sampler.with_settings(
                total_batch_size=segment.total_batch_size, num_shards=segment.num_shards
            )
            if number > 0:
                planned = planned.continued(saved.epoch, segments[:number])
            num_batches = planned.num_batches(saved.epoch)
        except SettingError as error:
            raise damaged([f"  - {error}"]) from error
        told = sum(each.num_batches for each in segments[: number + 1])
        if num_batches is not None and told > num_batches:
            raise damaged(
                [
                    f"  - {told} batches of epoch {saved.epoch} are told of, which has only {num_batches} (with "
                    f"batches of {segment.total_batch_size} on {segment.num_shards} shards)"
                ]
            )


def _fits_json(plan: Mapping[Any, Any]) -> bool:
    try:
        json.dumps(dict(plan))
    except (TypeError, ValueError, RecursionError):
        return False
    return all(isinstance(name, str) for name in plan)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def require_same_run(saved: LoaderState, own: LoaderState) -> None:
    """Raise a `StateError` with all that differs where a state belongs to other data or another order."""
    # What is a hash on one side becomes one on the other.
    hashed = {name for plan in (saved.plan, own.plan) for name, value in plan.items() if _is_hash(value)}
    there, here = _hashed(saved.plan, hashed), _hashed(own.plan, hashed)
    differences = [
        f"{name}: {_shown(there, name)} in the state, {_shown(here, name)} here"
        for name in dict.fromkeys([*there, *here])
        if there.get(name) != here.get(name)
    ]
    if saved.seed != own.seed:
        differences.append(f"seed of the random draws: {saved.seed} in the state, {own.seed} here")
    if saved.blueprint != own.blueprint:
        differences.append(
            f"fields of the samples (names, types, order): fingerprint {saved.blueprint} in the state, "
            f"{own.blueprint} here"
        )
    if differences:
        listed = "\n".join(f"  - {difference}" for difference in differences)
        error = StateError(
            f"The state belongs to other data or another order:\n{listed}\n"
            f"Continue with the data and settings with which it was saved, or start anew."
        )
        error.differences = tuple(differences)
        raise error


def _shown(plan: Description, name: str) -> str:
    return "nothing" if plan.get(name) is None else _short_repr(plan[name])


def require_same_batches(saved: LoaderState, own: LoaderState) -> None:
    """Raise a `StateError` where native readers are to go on with other batches, or on other shards."""
    if (saved.total_batch_size, saved.num_shards) != (own.total_batch_size, own.num_shards) or saved.segments:
        raise StateError(
            f"Native readers can be continued only with the same batch size and number of shards, which is what "
            f"DALI's checkpoints tell: the state was saved with batches of {saved.total_batch_size} in all on "
            f"{saved.num_shards} shard(s), here they are {own.total_batch_size} on {own.num_shards}. A data "
            f"provider with a sampler can be continued with others."
        )
    if saved.reader is None and (saved.epoch, saved.batch) != (0, 0):
        raise damaged(["  - `reader` is missing, which tells where the native readers stand"])


def continued_segments(
    saved: LoaderState, own: LoaderState, data_input: Any
) -> tuple[int, tuple[EpochSegment, ...]]:
    """The epoch of a state, and how it was begun as seen from a loader with other settings.

    Args:
        saved: The state.
        own: State of the loader that goes on.
        data_input: Its input.

    Raises:
        StateError: The order of the input depends on what has changed.
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
    if not segments:
        return saved.epoch, ()
    if planned is None:
        raise StateError(
            f"{type(data_input).__name__} knows only its own order: a begun epoch can be continued only with "
            f"the same batch size and number of shards. The state was saved with batches of "
            f"{saved.total_batch_size} in all on {saved.num_shards} shard(s), here they are "
            f"{own.total_batch_size} on {own.num_shards}."
        )
    require_few_segments(saved.epoch, segments)
    try:
        planned.continued(saved.epoch, segments)
    except SettingError as error:
        raise StateError(str(error)) from error
    return saved.epoch, segments
