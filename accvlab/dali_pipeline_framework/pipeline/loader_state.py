# SPDX-License-Identifier: Apache-2.0
"""The state of a loader: where it stands, and to what data and order that belongs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs

from accvlab.dali_pipeline_framework.errors import SettingError, StateError
from accvlab.dali_pipeline_framework.inputs.random_access_sampler import Description, Leg, RandomAccessSampler
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, format_path

_VERSION = 1
_MOST_PLAN_BYTES = 600
_MOST_LEGS = 8


@attrs.frozen
class LoaderState:
    """Where a loader stands.

    Attributes:
        epoch: Epoch of the batch that is delivered next.
        batch: Number of that batch in the epoch, with all legs.
        legs: What was delivered of this epoch with other batch sizes, before the present one.
        num_shards: Number of shards.
        total_batch_size: Samples per batch, all shards together.
        seed: Seed of the random draws.
        plan: What the order depends on.
        blueprint: Fingerprint of the format of the samples.
    """

    epoch: int
    batch: int
    legs: tuple[Leg, ...]
    num_shards: int
    total_batch_size: int
    seed: int
    plan: Description
    blueprint: str

    def to_dict(self) -> dict[str, Any]:
        """The state as a value that JSON can hold, of at most 1 kB."""
        if len(self.legs) > _MOST_LEGS:
            raise StateError(
                f"The batch size was changed {len(self.legs)} times within epoch {self.epoch}; a state can tell "
                f"of {_MOST_LEGS} changes per epoch. Finish the epoch before changing it again."
            )
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "num_shards": self.num_shards,
            "total_batch_size": self.total_batch_size,
            "legs": [[leg.num_shards, leg.total_batch_size, leg.num_batches] for leg in self.legs],
            "seed": self.seed,
            "plan": self.plan,
            "blueprint": self.blueprint,
        }


def shortened(plan: Description) -> Description:
    """A description that fits into a state: long ones are cut, and what is cut is replaced by a hash of it."""
    if len(json.dumps(plan)) <= _MOST_PLAN_BYTES:
        return plan
    kept: Description = {}
    size = 0
    for name, value in plan.items():
        size += len(json.dumps({name: value}))
        if size > _MOST_PLAN_BYTES - 100:
            break
        kept[name] = value
    rest = {name: value for name, value in plan.items() if name not in kept}
    kept[f"{len(rest)} other settings"] = _hash(json.dumps(rest))
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
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StateError(f"The state is not valid JSON ({error}). Was the file written to its end?") from error
    if not isinstance(state, Mapping):
        raise StateError(f"The state must be a dict (or JSON text of one), got {type(state).__name__}.")
    version = state.get("version")
    if version != _VERSION:
        raise StateError(
            f"The state has version {version!r}, this release of the package reads version {_VERSION}."
            + (" Is it the state of a loader?" if version is None else "")
        )
    known = {field.name for field in attrs.fields(LoaderState)}
    problems = [f"  - `{name}` is missing" for name in sorted(known - state.keys())]
    for name in ("epoch", "batch", "num_shards", "total_batch_size", "seed"):
        least = 1 if name in ("num_shards", "total_batch_size") else 0
        if name in state and not _is_count(state[name], least):
            problems.append(f"  - `{name}` must be a whole number of at least {least}, got {state[name]!r}")
    legs = state.get("legs", [])
    if not isinstance(legs, list) or not all(
        isinstance(leg, list | tuple) and len(leg) == 3 and all(_is_count(number, 1) for number in leg)
        for leg in legs
    ):
        problems.append(f"  - `legs` must be a list of lists of three whole numbers, got {legs!r}")
    if not isinstance(state.get("plan", {}), Mapping):
        problems.append(f"  - `plan` must be a dict, got {state['plan']!r}")
    if not isinstance(state.get("blueprint", ""), str):
        problems.append(f"  - `blueprint` must be a text, got {state['blueprint']!r}")
    if not problems:
        problems = [
            f"  - batches of {total_batch_size} cannot be dealt evenly to {num_shards} shards"
            for num_shards, total_batch_size in (
                *((leg[0], leg[1]) for leg in legs),
                (state["num_shards"], state["total_batch_size"]),
            )
            if total_batch_size % num_shards
        ]
        if sum(leg[2] for leg in legs) > state["batch"]:
            problems.append("  - `legs` have more batches than `batch` tells")
    if problems:
        raise damaged(problems)
    return LoaderState(
        state["epoch"],
        state["batch"],
        tuple(Leg(*leg) for leg in legs),
        state["num_shards"],
        state["total_batch_size"],
        state["seed"],
        dict(state["plan"]),
        state["blueprint"],
    )


def damaged(problems: list[str]) -> StateError:
    """The error for a state that cannot be that of any loader."""
    return StateError("The state is damaged:\n" + "\n".join(problems))


def require_within_epoch(saved: LoaderState, sampler: RandomAccessSampler) -> None:
    """Raise a `StateError` where a state tells of more batches than its epoch has."""
    if sampler.num_batches(0) is None:
        return
    num_before = sum(leg.num_batches for leg in saved.legs)
    legs = (*saved.legs, Leg(saved.num_shards, saved.total_batch_size, saved.batch - num_before))
    for number, leg in enumerate(legs):
        try:
            planned = sampler.with_settings(total_batch_size=leg.total_batch_size, num_shards=leg.num_shards)
            if number > 0:
                planned = planned.continued(saved.epoch, legs[:number])
            num_batches = planned.num_batches(saved.epoch)
        except SettingError as error:
            raise damaged([f"  - {error}"]) from error
        told = sum(each.num_batches for each in legs[: number + 1])
        if num_batches is not None and told > num_batches:
            raise damaged(
                [
                    f"  - {told} batches of epoch {saved.epoch} are told of, which has only {num_batches} (with "
                    f"batches of {leg.total_batch_size} on {leg.num_shards} shards)"
                ]
            )


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def require_same_run(saved: LoaderState, own: LoaderState) -> None:
    """Raise a `StateError` with all that differs where a state belongs to other data or another order."""
    differences = [
        f"{name}: {_shown(saved.plan, name)} in the state, {_shown(own.plan, name)} here"
        for name in dict.fromkeys([*saved.plan, *own.plan])
        if saved.plan.get(name, own) != own.plan.get(name, own)
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
    return repr(plan[name]) if name in plan else "nothing"
