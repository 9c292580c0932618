# SPDX-License-Identifier: Apache-2.0
"""An input and a chain of steps, with all that a definition says of them; and what follows from that alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from nvidia.dali import types

from ..draws.draw_scope import DrawPlan
from ..draws.keyed_draws import SampleSeeds
from ..draws.random_draws import (
    NEEDS_SEQUENCES,
    SEQUENCE_KEYS,
    FieldKey,
    KeyedDraws,
    PlannedDraw,
    take_group,
    with_record,
)
from ..errors import SettingError
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.folded_formats import FoldedFormat
from ..sample_data.names import Name
from ..sources.input_bases import CallableBase
from ..sources.input_parts import InputParts
from ..sources.shards import Shard
from ._insert_copy_for_passthrough import _InsertCopyForPassthrough
from .chain_planning import Placement, chain_format, place_steps

if TYPE_CHECKING:
    from .chain_planning import ArraySteps
    from .graph import Copier

DEFAULT_DEPTH = 2


@attrs.frozen(eq=False, kw_only=True)
class Chain:
    """An input, the steps that are applied to its samples, and how.

    Attributes:
        data_input: The input.
        steps: The steps.
        run: Where steps run that have a form for arrays.
        checks_data_format: Whether the types of the first batch are compared with the declared format.
        is_parallel: Whether the input may run in worker processes.
        prefetch_queue_depth: Batches that the workers load ahead.
        evens_out: Whether they load further ahead than that, where it is `DEFAULT_DEPTH`.
        prints_formats: Whether the format after each step is printed.
        copy_selection: Which output fields are copied, as `_InsertCopyForPassthrough` takes it; None for none.
        record_name: Name of the group of drawn numbers in the output; None where they are not recorded.
        must_declare_draws: Whether random operators beside declared draws are refused where draws are recorded.
        replay_path: Path of the group of recorded draws in the samples of the input; None where they are drawn.
        folds_arrays: Whether arrays are folded.
    """

    data_input: Any
    steps: tuple[PipelineStepBase, ...]
    run: RunWhere
    checks_data_format: bool
    is_parallel: bool
    prefetch_queue_depth: int
    evens_out: bool = False
    prints_formats: bool
    copy_selection: Mapping[str, Any] | None
    record_name: Name | None
    must_declare_draws: bool = True
    replay_path: FieldPath | None
    folds_arrays: bool

    def __attrs_post_init__(self) -> None:
        """Refuse steps that cannot run where they are asked to."""
        self.placement(has_gpu=True)  # which needs no format: `output` refuses one that does not fit

    @property
    def parts(self) -> InputParts:
        """The parts of the input."""
        return InputParts.of(self.data_input)

    @property
    def loaded(self) -> Any:
        """The part of the input that workers load; all of it where there is none."""
        main = self.parts.main
        return self.data_input if main is None else main.source

    @property
    def input_data_structure(self) -> SampleDataGroup:
        """Blueprint of the input."""
        blueprint: SampleDataGroup = self.data_input.used_sample_data_structure
        return blueprint

    def blueprint_of_steps(self) -> SampleDataGroup:
        """Blueprint of the samples, as the first step gets them."""
        blueprint = self.input_data_structure.get_empty_like_self()
        blueprint.set_apply_mapping(False)
        if self.replay_path is not None:
            take_group(blueprint, self.replay_path)
        return blueprint

    def output(self) -> tuple[SampleDataGroup, DrawPlan, Copier | None]:
        """Get the format of the output, the random draws of the steps, and what copies output fields.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            SettingError: The selection of fields to copy does not fit the output.
        """
        blueprint = self.input_data_structure.get_empty_like_self()
        replayed = None if self.replay_path is None else take_group(blueprint, self.replay_path)
        draws = DrawPlan(blueprint.format)
        names: set[Name] = set()

        def on_step(num_steps_done: int, blueprint: SampleDataGroup) -> None:
            names.update(name for path in blueprint.format.flat_paths for name in path)
            if self.prints_formats:
                _print_format(num_steps_done, blueprint)

        output = chain_format(blueprint, self.steps, on_step, draws)
        if replayed is not None and self.replay_path is not None:
            from ..providers.replayed_draws import require_fitting_record

            require_fitting_record(replayed.format, draws.draws, self.replay_path)
        if self.record_name is not None:
            output = with_record(output, self.record_name, draws.draws)
        return output, draws, self._copier(output, names)

    def _copier(self, output: SampleDataGroup, known_names: Collection[Name]) -> Copier | None:
        if self.copy_selection is None:
            return None
        try:
            return _InsertCopyForPassthrough(output, **self.copy_selection, removed_names=known_names)
        except SettingError as error:
            raise SettingError(
                f"Invalid pass-through output copy configuration for final output format: {error}"
            ) from error

    def placement(self, has_gpu: bool) -> Placement:
        """Decide where the steps run."""
        is_native = bool(self.parts.native)
        refusal = "operators of DALI read the samples, or a part of them, so that workers have none" * is_native
        return place_steps(self.steps, self.run, self.blueprint_of_steps, has_gpu=has_gpu, refusal=refusal)

    def array_steps(self, num_in_workers: int) -> ArraySteps | None:
        """Get the steps that run in the workers; None where all run in the graph."""
        from .chain_planning import ArraySteps

        if num_in_workers == 0:
            return None
        return ArraySteps(self.blueprint_of_steps().format, self.steps[:num_in_workers])

    def keyed_draws(
        self, plan: DrawPlan, seed: int, batch_size: int, array_steps: ArraySteps | None
    ) -> KeyedDraws | None:
        """Get what computes the draws of a plan where samples are loaded; None where nothing is drawn there.

        Args:
            plan: The draws.
            seed: Seed of the draws.
            batch_size: Samples per batch on this shard.
            array_steps: The steps that run where samples are loaded.
        """
        parts = self.parts
        paths = parts.main_field_paths()
        require_keys(plan.draws, self.loaded, paths)
        if not plan.draws or not (parts.has_callable or (array_steps is not None and array_steps.draws)):
            return None
        shard = self.sample_seeds(seed, batch_size).shard
        return KeyedDraws(plan.draws, paths, seed, shard=shard, batch_size=batch_size)

    def sample_seeds(self, seed: int, batch_size: int) -> SampleSeeds:
        """Get the seeds of global generators where samples are loaded.

        Args:
            seed: Seed of the draws.
            batch_size: Samples per batch on this shard.
        """
        shard = self.parts.shard or Shard(0, 1)
        return SampleSeeds(seed, (shard.shard_id, shard.num_shards), batch_size)

    def num_slots(self, blueprint: SampleDataGroup, first_step: int) -> int:
        """Entries of the batch of the pipeline per sample: as many as a field can be folded of.

        Args:
            blueprint: Format of the samples in the graph.
            first_step: Number of the first step that runs there.
        """
        in_graph = self.steps[first_step:]
        if not self.folds_arrays or self.parts.native or not any(step.treats_elements_alike for step in in_graph):
            return 1
        from .graph import MOST_ELEMENTS

        levels = FoldedFormat.of(blueprint.format, MOST_ELEMENTS).levels
        return max((level.count for level in levels), default=1)


def _print_format(num_steps_done: int, blueprint: SampleDataGroup) -> None:
    title = "Input format:" if num_steps_done == 0 else f"Format after step {num_steps_done - 1}:"
    print(f"{title}\n{blueprint.get_string_no_details()}")  # noqa: T201 (asked for by an argument)


def require_keys(draws: Sequence[PlannedDraw], data_input: Any, field_paths: Sequence[FieldPath]) -> None:
    """Refuse draws whose keys an input cannot supply, as far as that is known before it is asked for samples.

    Args:
        draws: The draws.
        data_input: The input; with native readers beside it, only what workers load.
        field_paths: Paths of the fields of its samples.

    Raises:
        SettingError: Lists all of them.
    """
    name = type(data_input).__name__
    problems: list[str] = []
    needs_sequences = any(planned.draw.key in SEQUENCE_KEYS for planned in draws)
    tells_sequences = needs_sequences and _tells_sequences(data_input)
    for planned in draws:
        key = planned.draw.key
        if isinstance(key, FieldKey) and not callable(data_input):
            problems.append(
                f"  - the {planned} is keyed by {key}, which only callable inputs support (see CallableBase); "
                f"{name} is none"
            )
        elif isinstance(key, FieldKey) and key.path not in field_paths:
            problems.append(
                f"  - the {planned} is keyed by {key}, which a native reader delivers; only fields of "
                f"{name} can be keys"
            )
        elif key in SEQUENCE_KEYS and not tells_sequences:
            problems.append(f"  - the {planned} {NEEDS_SEQUENCES.format(name)}")
    if problems:
        raise SettingError(
            "The input cannot supply the keys of all random draws:\n" + "\n".join(dict.fromkeys(problems))
        )


def _tells_sequences(data_input: Any) -> bool:
    """Whether an input seems to know sequences, judging by its first sample."""
    get_place = getattr(type(data_input), "get_place", None)
    if not callable(data_input) or get_place is None or get_place is CallableBase.get_place:
        return False
    try:
        place = data_input.get_place(types.SampleInfo(0, 0, 0, 0))
    except Exception:  # it is reported when the first batch is due
        return True
    return place is None or place.sequence >= 0
