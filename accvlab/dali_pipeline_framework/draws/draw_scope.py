# SPDX-License-Identifier: Apache-2.0
"""Random draws of steps: collected when the format is checked, and given to the steps when the graph is defined.

In a pipeline each draw goes through these::

    DrawPlan     each step of the chain declares its draws (`declare_draws`): a list of `PlannedDraw`
    the input    computes the numbers of that list for each sample (or reads them from a record); they are outputs
                 of the external source
    GraphDraws   a step that requests a draw (`draw`) while it defines its operators gets that output
    ArrayDraws   a step that is applied to a sample of arrays gets the numbers of that sample (`SampleDraws`)

A draw is found again by the position of its step in the chain, the step object, the group of the sample that the
step is applied to, and its name. Wrapping steps set the group by `in_group`. Where steps are called
outside of a `PipelineDefinition`, there is no list, and DALI's random operators draw.
"""

from __future__ import annotations

import collections
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import listed
from ..errors import FrameworkError, SettingError, StepOutputError, error_that_is_also
from ..sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.folded_formats import WHOLE_SAMPLE, Level
from ..sample_data.graph_mode import Within, do_not_convert, methods_not_converted
from ..sample_data.names import format_path
from .random_draws import FieldKey, IntegerDraw, NormalDraw, PlannedDraw, RandomDraw, UniformDraw, is_shared

Draws: TypeAlias = Mapping[str, Any]
"""The numbers of the draws of a step for a sample, by name: float32 or int32, a NumPy number or an array."""

_Place: TypeAlias = tuple[int, int, FieldPath, str]  # position in the chain, id of the step, group, name

SupplyNode: TypeAlias = Callable[[tuple[int, ...]], DataNode]


class DrawingStep(Protocol):
    """The part of `PipelineStepBase` that is about draws."""

    random_name: str | None

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Get the draws of the step for a group of this format."""


def declared_draws(step: DrawingStep, data_empty: SampleDataGroup) -> dict[str, RandomDraw]:
    """Get the draws that a step declares, by name.

    Raises:
        SettingError: It declares something else, or two draws of one name.
    """
    return checked_draws(
        step.declare_draws(data_empty), f"{type(step).__name__}.declare_draws must return a list of draws"
    )


def checked_draws(declared: Sequence[RandomDraw], what: str) -> dict[str, RandomDraw]:
    """Check a list of draws, and return them by name; ``what`` begins the messages.

    Raises:
        SettingError: It is something else, or there are two draws of one name.
    """
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        raise SettingError(f"{what}, got {declared!r}.")
    draws: dict[str, RandomDraw] = {}
    for draw in declared:
        if not isinstance(draw, UniformDraw | IntegerDraw | NormalDraw):
            raise SettingError(f"{what} (UniformDraw, IntegerDraw, NormalDraw), got {draw!r} among them.")
        if draw.name in draws:
            raise SettingError(f"{what} with different names, got {draw.name!r} twice.")
        draws[draw.name] = draw
    return draws


class PlannedPixels(NamedTuple):
    """A change of the pixels of an image by a step of a chain.

    Attributes:
        position: Position of the step in the chain.
        step: The step that changes pixels, maybe inside of a wrapper.
        path: Path of the image in the sample.
        leaf: Its format before the step.
        parameters: Names and types of what the step needs to change pixels in the graph.
    """

    position: int
    step: DrawingStep
    path: FieldPath
    leaf: LeafFormat
    parameters: Mapping[str, types.DALIDataType]

    @property
    def alike_key(self) -> tuple[object, ...]:
        """Key that is equal for changes that one operator makes for several images."""
        return id(self.step), self.path[-1], self.leaf, *self.parameters.items()


@methods_not_converted
class DrawPlan:
    """The draws and the changes of pixels that the steps of a chain declare; filled while the format is checked.

    Attributes:
        draws: The draws, without constant ones (``low == high``), which need no numbers.
        index: Position in ``draws`` of the draw at each place.
        position: Position in the chain of the step whose format is being checked.
        pixels: The changes of pixels that steps declare.
        pixel_readers: Positions of the steps that may look at pixels, and do not declare what they do.
    """

    def __init__(self, input_format: GroupFormat | None) -> None:
        """Start without draws, for an input of a format; None where the input is not known."""
        self.draws: list[PlannedDraw] = []
        self.position = 0
        self._input_format = input_format
        self.index: dict[_Place, int] = {}
        self.pixels: list[PlannedPixels] = []
        self.pixel_readers: set[int] = set()
        # The step itself is kept as well: no other object can get its id then.
        self._steps: dict[tuple[int, int], tuple[DrawingStep, str, int]] = {}
        self._counts: collections.Counter[str] = collections.Counter()

    def collect(self, step: DrawingStep, draws: dict[str, RandomDraw]) -> None:
        """Record the draws that a step declares for the current group.

        Raises:
            SettingError: A draw cannot have the key that it names.
        """
        if not draws:
            return
        name, number = self._identity(step)
        for draw in draws.values():
            self._check_key(draw)
            place = _place(self.position, step, draw)
            planned = PlannedDraw(draw, name, number, place[2])
            if place in self.index:
                self._require_same(self.draws[self.index[place]], planned)
            elif draw.constant is None:
                self.index[place] = len(self.draws)
                self.draws.append(planned)

    def collect_pixels(
        self,
        step: DrawingStep,
        changes: Mapping[FieldPath, Mapping[str, types.DALIDataType]] | None,
        before: GroupFormat,
    ) -> None:
        """Record the changes of pixels that a step declares for the current group; None if it declares none."""
        if changes is None:
            self.pixel_readers.add(self.position)
        for path, parameters in (changes or {}).items():
            leaf: Any = before.at(path)
            self.pixels.append(PlannedPixels(self.position, step, path_in_sample(path), leaf, parameters))

    def _identity(self, step: DrawingStep) -> tuple[str, int]:
        key = (self.position, id(step))
        if key not in self._steps:
            name = step.random_name or type(step).__name__
            self._steps[key] = (step, name, self._counts[name])
            self._counts[name] += 1
        return self._steps[key][1:]

    def _check_key(self, draw: RandomDraw) -> None:
        if self._input_format is None:
            return
        paths = self._input_format.flat_paths
        if isinstance(draw.key, FieldKey) and draw.key.path not in paths:
            raise SettingError(
                f"The draw {draw.name!r} is keyed by {draw.key}, but the input has no data field with this path. "
                f"Paths start at the whole sample. Fields: {listed(map(format_path, paths))}."
            )

    def _require_same(self, planned: PlannedDraw, again: PlannedDraw) -> None:
        if planned.draw != again.draw:
            raise SettingError(
                f"The {planned} must be the same each time that it is declared, got {planned.draw} and "
                f"{again.draw}. A draw that groups share cannot depend on the group."
            )


@methods_not_converted
class DrawSupply(ABC):
    """Gives steps their draws: nodes of a graph, or numbers.

    Attributes:
        position: Position in the chain of the step that is being applied.
        level: Which elements of folded arrays the draws are for; a node has the numbers for all of them.
    """

    def __init__(
        self, plan: DrawPlan | None = None, supply_node: SupplyNode | None = None, position: int = 0
    ) -> None:
        """Set up for the draws of a plan.

        Args:
            plan: The plan; None outside of a pipeline of a `PipelineDefinition`.
            supply_node: Gets the node of draws that are given by their positions in the plan, one for each element
                of the level. None: DALI's random operators draw.
            position: Position in the chain of the first step that is applied.
        """
        self.position = position
        self.level = WHOLE_SAMPLE
        self._plan = plan
        self._supply_node = supply_node
        self._made: dict[_Place, DataNode] = {}  # for the present level

    def node(self, step: DrawingStep, draw: RandomDraw) -> DataNode:
        """Get the node of a draw that a step declares for the current group."""
        place = _place(self.position, step, draw)
        if place not in self._made:
            self._made[place] = self._make(step, draw, place)
        return self._made[place]

    def end_step(self) -> None:
        """Go on to the next step of the chain."""
        self.position += 1
        if self._plan is not None:  # it may grow with each step, where they are called one by one
            self._plan.position = self.position

    def _make(self, step: DrawingStep, draw: RandomDraw, place: _Place) -> DataNode:
        if draw.constant is not None:
            return self._constant(draw, draw.constant)
        if self._plan is None:
            return self._drawn(draw)
        position, identity, group, name = place
        paths = [self.level.path_of(group, element) for element in range(self.level.count)]
        indices = [self._plan.index.get((position, identity, path, name)) for path in paths]
        if None in indices:
            raise StepOutputError(
                f"{type(step).__name__} requests its draw {draw.name!r}, but did not declare it when the "
                f"format was checked. A step that applies another one must call the other's "
                f"check_input_data_format_and_set_output_data_format in its own "
                f"_check_and_adjust_data_format_input_to_output, on the same object and group."
            )
        if self._supply_node is None:
            return self._drawn(draw)
        return self._supply_node(tuple(index for index in indices if index is not None))

    @abstractmethod
    def _constant(self, draw: RandomDraw, value: float) -> DataNode:
        """Make a constant draw."""

    @abstractmethod
    def _drawn(self, draw: RandomDraw) -> DataNode:
        """Draw numbers that nobody supplies."""


@methods_not_converted
class GraphDraws(DrawSupply):
    """Gives steps the nodes of their draws while a graph is defined; DALI draws where nobody supplies them."""

    @contextlib.contextmanager
    def at(self, level: Level) -> Iterator[None]:
        """Supply the draws for a level within a ``with`` statement; if it fails, nothing was supplied."""
        before = self.position, self._made.copy()
        self.level = level
        try:
            yield
        except BaseException:
            self.position, self._made = before
            raise
        finally:
            self.level = WHOLE_SAMPLE

    def take_parts(self, to_part: Callable[[DataNode], DataNode]) -> None:
        """Keep, of each draw, the part of the batch that the step has got: random operators draw it anew."""
        self._made = {place: to_part(node) for place, node in self._made.items()}

    def made(self) -> list[DataNode]:
        """Get the nodes of the draws that the steps have requested."""
        return [*self._made.values()]

    def _constant(self, draw: RandomDraw, value: float) -> DataNode:
        node: DataNode = types.Constant(np.full(draw.shape, value, draw.numpy_dtype), device="cpu")
        return node

    def _drawn(self, draw: RandomDraw) -> DataNode:
        shape: dict[str, Any] = {"shape": [*draw.shape]} if draw.shape else {}
        # `fn.random.uniform` is looked up at each call: callers may replace it.
        if isinstance(draw, UniformDraw):
            node: DataNode = fn.random.uniform(range=[draw.low, draw.high], **shape)
            return node
        if isinstance(draw, NormalDraw):
            node = fn.random.normal(mean=draw.mean, stddev=draw.stddev, **shape)
            return node
        number = dali_math.floor(fn.random.uniform(range=[draw.low, draw.high], **shape))
        return dali_math.clamp(fn.cast(number, dtype=draw.dtype), draw.low, draw.high - 1)


@methods_not_converted
class ArrayDraws(DrawSupply):
    """Gives steps that are applied to a sample of arrays the numbers of their draws, for one sample after another.

    Outside of a pipeline, where nobody supplies them, they come from NumPy's global generator.
    """

    def __init__(self, plan: DrawPlan | None = None) -> None:
        """Set up for the draws of a plan; None outside of a pipeline."""
        super().__init__(plan, None if plan is None else self._number_of)
        self._numbers: Callable[[int], Any]  # of a sample

    def begin_sample(self, numbers: Callable[[int], Any]) -> None:
        """Begin with a sample, for which ``numbers`` gives the array of each draw of the plan."""
        self.position = 0
        self._made.clear()
        self._numbers = numbers

    def _number_of(self, indices: tuple[int, ...]) -> Any:
        return self._numbers(indices[0])[()]

    def _constant(self, draw: RandomDraw, value: float) -> Any:
        return np.full(draw.shape, value, draw.numpy_dtype)[()]

    def _drawn(self, draw: RandomDraw) -> Any:
        if isinstance(draw, UniformDraw):
            numbers: Any = np.random.uniform(draw.low, draw.high, draw.shape)
        elif isinstance(draw, NormalDraw):
            numbers = np.random.normal(draw.mean, draw.stddev, draw.shape)
        else:
            numbers = np.random.randint(draw.low, draw.high, draw.shape)
        return np.asarray(numbers, draw.numpy_dtype)[()]


class SampleDraws(Mapping[str, Any]):
    """The numbers of the draws that a step declares, for a sample, by name; supplied when they are requested."""

    def __init__(self, step: DrawingStep, declared: Mapping[str, RandomDraw], supply: ArrayDraws) -> None:
        """Set up for the draws that a step declares for the current group."""
        self._step, self._declared, self._supply = step, declared, supply

    def __getitem__(self, name: str) -> Any:
        if name not in self._declared:
            raise _no_such_draw(f"draws[{name!r}] of {type(self._step).__name__}", self._declared)
        return self._supply.node(self._step, self._declared[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


def _no_such_draw(what: str, declared: Mapping[str, RandomDraw]) -> FrameworkError:
    known = ", ".join(map(repr, declared)) or "none"
    message = f"{what}: there is no such draw. Declared by declare_draws: {known}."
    return error_that_is_also(SettingError, (KeyError,), message)


def _place(position: int, step: DrawingStep, draw: RandomDraw) -> _Place:
    return position, id(step), () if is_shared(draw.key) else step_context.get().group, draw.name


class StepContext(NamedTuple):
    """Circumstances in which steps are applied, or their formats are checked.

    Attributes:
        group: Path of the group that steps are applied to; empty for the whole sample.
        plan: Collects what steps declare; None where no format is checked.
        supply: Gives steps their draws; None outside of a pipeline of a `PipelineDefinition`.
        step: The step that is being applied, which may get its draws; None for none.
        draws: The draws that this step declares for the group.
        application: Applies the steps that a step on arrays applies; None in a graph.
    """

    group: FieldPath = ()
    plan: DrawPlan | None = None
    supply: DrawSupply | None = None
    step: DrawingStep | None = None
    draws: Mapping[str, RandomDraw] = MappingProxyType({})
    application: object | None = None


_NO_STEP = StepContext()

# The published `_process(data)` of steps takes no context, so that it cannot be passed along.
step_context: ContextVar[StepContext] = ContextVar("step_context", default=_NO_STEP)


def path_in_sample(path: FieldPath) -> FieldPath:
    """Get the path in the sample of a path in the group that steps are applied to."""
    return (*step_context.get().group, *path)


@do_not_convert
def in_group(path: FieldPath) -> Within[StepContext]:
    """Apply steps to the group at a path of the present group, within a ``with`` statement."""
    return Within(step_context, step_context.get()._replace(group=path_in_sample(path)))


@methods_not_converted
class RunningStep:
    """Lets a step get the draws that it declares, within a ``with`` statement."""

    def __init__(
        self,
        step: DrawingStep,
        draws: Mapping[str, RandomDraw],
        supply: DrawSupply | None = None,
        application: object | None = None,
    ) -> None:
        """Set up for a step and its draws in the current group."""
        outer = step_context.get()
        # In a bare pipeline nobody supplies draws; what the outermost step draws, its groups may share.
        used = (supply or outer.supply or GraphDraws()) if outer.step is None else outer.supply
        self._context = StepContext(outer.group, outer.plan, used, step, draws, application)
        self._ending = used if outer.step is None else None

    def __enter__(self) -> None:
        self._token = step_context.set(self._context)

    def __exit__(self, *raised: object) -> None:
        step_context.reset(self._token)
        if self._ending is not None:
            self._ending.end_step()


@do_not_convert
def draw_of(step: DrawingStep, name: str) -> DataNode:
    """Get the node of a draw of the step that is being applied.

    Raises:
        SettingError: It did not declare the draw, or another step is being applied, or it is applied to arrays.
    """
    context = step_context.get()
    what = f"{type(step).__name__}.draw({name!r})"
    if context.application is not None:
        raise SettingError(f"{what} is for `_process`: `arrays` gets the numbers, as `draws[{name!r}]`.")
    if context.step is not step or context.supply is None:
        rule = "works only while the step is applied, i.e. in its _process"
        raise SettingError(f"{what} {rule}. Apply steps by calling them.")
    if name not in context.draws:
        raise _no_such_draw(what, context.draws)
    return context.supply.node(step, context.draws[name])
