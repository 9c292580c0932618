# SPDX-License-Identifier: Apache-2.0
"""The random affine transformation of images, and the steps of which it is made."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, TypeAlias, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from attrs.converters import optional
from numpy.typing import NDArray
from nvidia.dali.data_node import DataNode

from ...checks import choice, number_list, shown, valid
from ...checks import probability as checked_probability
from ...draws.draw_scope import Draws
from ...draws.random_draws import DrawKey, UniformDraw
from ...errors import SettingError
from ...operators import functions
from ...operators.functions import Value
from ...operators.image_transform import AxisScaling, Resampler, Resampling, ResizingAnchor, ResizingMode, resizing
from ...sample_data.graph_mode import do_not_convert
from ...unknown_arguments import explains_unknown_arguments
from ..named_fields import Key, Names
from .image_resizers import ImagePlaneChange, ResamplingStep, checked_hw


@attrs.frozen
class Coverage:
    """Position of the image in the viewport, as far as the settings alone determine it, per axis (x, y).

    Attributes:
        least_scale: Least factor of the size; negative factors count by their absolute value.
        is_covered: Whether the image certainly covers the viewport.
        is_turned: Whether the image may be rotated or sheared, which holds for both axes.
        has_turns: Whether there is a step that rotates or shears, also one that is never applied.
    """

    least_scale: NDArray[np.float64] = attrs.Factory(lambda: np.ones(2))
    is_covered: NDArray[np.bool_] = attrs.Factory(lambda: np.ones(2, bool))
    is_turned: bool = False
    has_turns: bool = False

    def both(self, other: Coverage) -> Coverage:
        """Combine two alternatives: keep what holds for both."""
        least, is_covered = np.minimum(self.least_scale, other.least_scale), self.is_covered & other.is_covered
        return Coverage(least, is_covered, self.is_turned or other.is_turned, self.has_turns or other.has_turns)


@attrs.define
class TransformationChain:
    """Transformation so far.

    Attributes:
        wh: Width and height of the images, ``(2,)`` float32: the viewport.
        numbers: Numbers of the declared draws, by name.
        matrix: ``(2, 3)`` float32.
    """

    wh: Value
    numbers: Mapping[str, Value]
    matrix: Value = attrs.Factory(lambda: np.eye(2, 3, dtype=np.float32))

    @property
    def center(self) -> Value:
        """Center of the viewport, ``(2,)``."""
        return self.wh * np.float32(0.5)

    def then(self, matrix: Value) -> None:
        """Append a transformation, ``(2, 3)``."""
        self.matrix = functions.combined(self.matrix, matrix)

    def bounds(self) -> tuple[Value, Value]:
        """Compute the least and greatest ``x, y`` of the image, ``(2,)`` each; nothing may be rotated."""
        corners = functions.coord_transform(np.array([np.zeros(2, np.float32), self.wh]), self.matrix)
        return corners.min(axis=0), corners.max(axis=0)


# --- settings -------------------------------------------------------------------------------------------


def number(value: object) -> float:
    """Check a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise SettingError(f"A transformation step needs finite numbers, got {value!r}.")
    return float(value)


def pair(value: Any) -> tuple[float, float]:
    """Check two finite numbers, for x and y."""
    try:
        x, y = value
    except (TypeError, ValueError):
        raise SettingError(f"A transformation step needs two numbers, for x and y; got {value!r}.") from None
    return number(x), number(y)


def probability(value: object) -> float:
    """Check a number in [0, 1]."""
    return checked_probability(value, "prob")


@attrs.frozen
class TransformationStep(ABC):
    """A step of an `AffineTransformer`. Each sample is transformed with the probability ``prob``.

    Attributes:
        prob: The probability, in [0, 1].
    """

    prob: float = attrs.field(converter=probability)

    turns: ClassVar[bool] = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ever changed; then nothing is drawn."""
        return self.prob == 0

    def coverage_after(self, before: Coverage) -> Coverage:
        """Get the coverage after this step, which is applied with its probability.

        Raises:
            SettingError: This step cannot follow the steps before it.
        """
        after = self._coverage_if_applied(before)
        if self.prob == 0:
            return attrs.evolve(before, has_turns=after.has_turns)
        return after if self.prob == 1 else after.both(before)

    def draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw | None]:
        """Get the draws of the step, in the published order: whether it is applied, then its parameters.

        None is a number that published code draws here, and that is not used.
        """
        is_drawn = self.prob < 1 and not self.is_idle
        yield UniformDraw(f"{place}.is_applied", key=key) if is_drawn else None
        if self.prob > 0:
            yield from self._parameter_draws(place, key)

    def extend(self, chain: TransformationChain, place: str) -> None:
        """Append the step to a chain, if it is applied."""
        if chain.numbers.get(f"{place}.is_applied", 0) < np.float32(self.prob):
            self._extend(chain, place)

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        return attrs.evolve(before, is_turned=True, has_turns=True) if self.turns else before

    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw | None]:
        """Get the draws of the parameters."""
        return iter(())

    @abstractmethod
    def _extend(self, chain: TransformationChain, place: str) -> None:
        """Append the step."""


class DrawnStep(TransformationStep):
    """A step whose parameters are numbers of ranges: settings are ``prob``, the least and the greatest ones.

    Where the greatest are None, they are the least ones.
    """

    def __attrs_post_init__(self) -> None:
        """Check the limits."""
        low, high = ([*limits] for limits in zip(*self._ranges().values(), strict=True))
        if any(least > most for least, most in self._ranges().values()):
            rule = f"no minimum may exceed its maximum, got {low} and {high}."
            if len(low) == 1:
                rule = f"the minimum must not exceed the maximum, got {low[0]} and {high[0]}."
            raise SettingError(f"{type(self).__name__}: {rule}")

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Get the least and the greatest number of each parameter, by its name."""
        _, low, high = attrs.astuple(cast(Any, self), recurse=False)
        lows, highs = (np.atleast_1d(each).tolist() for each in (low, low if high is None else high))
        names = ("x", "y") if len(lows) > 1 else ("value",)
        return dict(zip(names, zip(lows, highs, strict=True), strict=True))

    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw]:
        ranges = self._ranges().items()
        draws = [UniformDraw(f"{place}.{name}", *limits, key=key) for name, limits in ranges]
        return (draw for draw in draws if draw.constant is None)

    def _value(self, chain: TransformationChain, place: str) -> Value:
        """Get the parameter, or both, ``(2,)``: float32, as drawn, or the only one that is possible."""
        ranges = self._ranges().items()
        values = [chain.numbers.get(f"{place}.{name}", least) for name, (least, _) in ranges]
        return np.array(values, np.float32) if len(values) > 1 else np.float32(values[0])


# --- chains of steps ------------------------------------------------------------------------------------


def checked_steps(steps: object, what: str) -> tuple[TransformationStep, ...]:
    """Check a step, or a sequence of steps; return a tuple. None is no step.

    Raises:
        SettingError: Something else was given.
    """
    several = () if steps is None else (steps,) if isinstance(steps, TransformationStep) else steps
    if not isinstance(several, Sequence) or not all(isinstance(step, TransformationStep) for step in several):
        raise SettingError(f"{what} must be a transformation step or a sequence of them, got {steps!r}.")
    return tuple(several)


def coverage_after(steps: Sequence[TransformationStep], before: Coverage) -> Coverage:
    """Get the coverage after some steps.

    Raises:
        SettingError: A step cannot follow the steps before it.
    """
    for step in steps:
        before = step.coverage_after(before)
    return before


def draws_of(steps: Sequence[TransformationStep], place: str, key: DrawKey) -> Iterator[UniformDraw | None]:
    """Get the draws of some steps, see `TransformationStep.draws`."""
    for index, step in enumerate(steps):
        yield from step.draws(f"{place}[{index}]", key)


def extend_by(chain: TransformationChain, steps: Sequence[TransformationStep], place: str) -> None:
    """Append steps to a chain."""
    for index, step in enumerate(steps):
        step.extend(chain, f"{place}[{index}]")


_SUM_TOLERANCE = 1e-6
# An image that is smaller than the viewport by less than this many pixels counts as large enough: rounding.
_SLACK_PX = 0.01


@attrs.frozen
class Translation(DrawnStep):
    """Shifts the content by ``min_xy``, or per axis by a random value in ``[min_xy, max_xy)``, in pixels."""

    min_xy: tuple[float, float] = attrs.field(converter=pair)
    max_xy: tuple[float, float] | None = attrs.field(default=None, converter=optional(pair))

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        stays = [limits == (0, 0) for limits in self._ranges().values()]
        return attrs.evolve(before, is_covered=before.is_covered & stays)

    def _extend(self, chain: TransformationChain, place: str) -> None:
        chain.then(functions.translation(self._value(chain, place)))


@attrs.frozen
class Rotation(DrawnStep):
    """Rotates the content about the center of the viewport, in degrees, counter-clockwise on the screen."""

    turns = True
    min_rot: float = attrs.field(converter=number)
    max_rot: float | None = attrs.field(default=None, converter=optional(number))

    def _extend(self, chain: TransformationChain, place: str) -> None:
        # DALI's angles are counter-clockwise where y points up.
        chain.then(functions.rotation(-self._value(chain, place), chain.center))


class _Scaling(DrawnStep):
    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if (0, 0) in self._ranges().values():
            raise SettingError(f"{type(self).__name__}: a factor must not be 0.")

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        low, high = np.transpose([*self._ranges().values()])  # of each factor, or of the one for both axes
        least = np.where((low < 0) & (high > 0), 0, np.minimum(np.abs(low), np.abs(high)))
        is_covered = before.is_covered & (least >= 1)
        return attrs.evolve(before, least_scale=before.least_scale * least, is_covered=is_covered)


@attrs.frozen
class UniformScaling(_Scaling):
    """Scales both axes by one factor, about the center of the viewport."""

    min_scaling: float = attrs.field(converter=number)
    max_scaling: float | None = attrs.field(default=None, converter=optional(number))

    def _extend(self, chain: TransformationChain, place: str) -> None:
        factor = self._value(chain, place)
        chain.then(functions.scaling(np.array([factor, factor]), chain.center))


@attrs.frozen
class NonUniformScaling(_Scaling):
    """Scales each axis by its factor, about the center of the viewport. A factor of -1 flips."""

    min_scaling_xy: tuple[float, float] = attrs.field(converter=pair)
    max_scaling_xy: tuple[float, float] | None = attrs.field(default=None, converter=optional(pair))

    def _extend(self, chain: TransformationChain, place: str) -> None:
        chain.then(functions.scaling(self._value(chain, place), chain.center))


@attrs.frozen
class Shearing(DrawnStep):
    """Shears about the center of the viewport by two angles in degrees: ``[[1, tan(ax)], [tan(ay), 1]]``."""

    turns = True

    min_shearing_xy: tuple[float, float] = attrs.field(converter=pair)
    max_shearing_xy: tuple[float, float] | None = attrs.field(default=None, converter=optional(pair))

    def __attrs_post_init__(self) -> None:
        """Check the limits."""
        super().__attrs_post_init__()
        if any(abs(angle) >= 90 for angle in (*self.min_shearing_xy, *(self.max_shearing_xy or ()))):
            raise SettingError("Shearing: angles are in degrees, between -90 and 90 (not included).")

    def _extend(self, chain: TransformationChain, place: str) -> None:
        chain.then(functions.shear(self._value(chain, place), chain.center))


class _Shift(TransformationStep):
    @property
    @abstractmethod
    def _axes(self) -> tuple[bool, bool]:
        """Whether the content is shifted along x, and along y: there, a large enough image covers the viewport."""

    @abstractmethod
    def _offset(self, chain: TransformationChain, place: str) -> Value:
        """Compute the shift along each axis, ``(2,)``."""

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        if before.has_turns:
            raise SettingError(
                f"Cannot perform `{type(self).__name__}` if rotation or shearing are performed before it: the "
                f"image has no edges along the axes then. Put the step before them."
            )
        return attrs.evolve(before, is_covered=np.where(self._axes, before.least_scale >= 1, before.is_covered))

    def _extend(self, chain: TransformationChain, place: str) -> None:
        chain.then(functions.translation(self._offset(chain, place) * np.array(self._axes, np.float32)))


@attrs.frozen
class ShiftInsideOriginalImage(_Shift):
    """Shifts the content at random, along the chosen axes, so that the image covers the viewport.

    Along an axis where the image is smaller than the viewport, nothing is done.
    """

    shift_x: bool
    shift_y: bool

    @property
    def is_idle(self) -> bool:
        """Whether it is never applied, or to no axis."""
        return self.prob == 0 or not any(self._axes)

    @property
    def _axes(self) -> tuple[bool, bool]:
        return bool(self.shift_x), bool(self.shift_y)

    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw]:
        names = [f"{place}.{axis}" for axis, is_shifted in zip("xy", self._axes, strict=True) if is_shifted]
        return (UniformDraw(name, key=key) for name in names)

    def _offset(self, chain: TransformationChain, place: str) -> Value:
        shares = np.array([chain.numbers.get(f"{place}.{axis}", 0) for axis in "xy"], np.float32)
        low, high = chain.bounds()
        room = high - low - chain.wh  # (2,): how much larger the image is
        shift = chain.wh - high + shares * functions.maximum(room, np.float32(0))
        return shift * (room > np.float32(-_SLACK_PX))


@attrs.frozen
class ShiftToAlignWithOriginalImageBorder(_Shift):
    """Shifts the content so that the edge of the image lies on a border of the viewport."""

    class Border(Enum):
        """A border of the viewport: ``TOP``, ``LEFT``, ``BOTTOM`` or ``RIGHT``."""

        TOP = 0
        LEFT = 1
        BOTTOM = 2
        RIGHT = 3

    border: ShiftToAlignWithOriginalImageBorder.Border = attrs.field(validator=valid(choice, allowed=Border))

    @property
    def _axes(self) -> tuple[bool, bool]:
        is_vertical = self.border in (self.Border.TOP, self.Border.BOTTOM)
        return not is_vertical, is_vertical

    def _offset(self, chain: TransformationChain, place: str) -> Value:
        low, high = chain.bounds()
        return -low if self.border in (self.Border.TOP, self.Border.LEFT) else chain.wh - high


def _option_probs(values: object) -> tuple[float, ...]:
    is_empty = isinstance(values, list | tuple) and not values
    return () if is_empty else number_list(values, "option_probs", "a list of numbers")


def _options(options: object) -> tuple[tuple[TransformationStep, ...], ...]:
    if isinstance(options, str) or not isinstance(options, Sequence):
        raise SettingError(f"`options` must be a list of transformation steps, got {shown(options)}.")
    return tuple(checked_steps(option, "Each of the `options`") for option in options)


@attrs.frozen
class Selection(TransformationStep):
    """Applies one of several options, each a step or a sequence of steps.

    Attributes:
        prob: The probability that an option is chosen at all.
        option_probs: The probability of each option where one is chosen; the sum is 1.
        options: The options.
    """

    option_probs: tuple[float, ...] = attrs.field(converter=_option_probs)
    options: tuple[tuple[TransformationStep, ...], ...] = attrs.field(converter=_options)

    def __attrs_post_init__(self) -> None:
        """Check the probabilities."""
        if len(self.option_probs) != len(self.options):
            raise SettingError(
                f"Selection: `option_probs` and `options` must have the same length, got {len(self.option_probs)} "
                f"and {len(self.options)}."
            )
        if min(self.option_probs, default=-1.0) < 0 or abs(sum(self.option_probs) - 1) > _SUM_TOLERANCE:
            raise SettingError(
                f"Selection: `option_probs` must be at least 0 and sum up to 1, got {[*self.option_probs]}."
            )

    @property
    def is_idle(self) -> bool:
        """Whether no option is ever applied, or none changes anything."""
        return self.prob == 0 or all(step.is_idle for option in self.options for step in option)

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        return functools.reduce(Coverage.both, [coverage_after(option, before) for option in self.options])

    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw | None]:
        is_drawn = len(self.options) > 1 and not self.is_idle
        yield UniformDraw(f"{place}.option", key=key) if is_drawn else None
        for index, option in enumerate(self.options):
            yield from draws_of(option, f"{place}.options[{index}]", key)

    def _extend(self, chain: TransformationChain, place: str) -> None:
        drawn, last = chain.numbers.get(f"{place}.option", 0), len(self.options) - 1
        sums = (np.float32(sum(self.option_probs[: index + 1])) for index in range(last))
        chosen = next((index for index, limit in enumerate(sums) if drawn <= limit), last)
        extend_by(chain, self.options[chosen], f"{place}.options[{chosen}]")


_PLACE = "steps"


class AffineTransformer(ResamplingStep):
    """Transforms images by a chain of random steps and brings them to one size.

    The images, and all fields in their pixel coordinates, anywhere in the sample, get the same transformation
    ``M = resize @ step_n @ ... @ step_1``, one ``(2, 3)`` matrix per sample. ``(x, y)`` are pixels, with
    ``(0, 0)`` at the outer corner of the first pixel. Rotation, scaling and shearing are about the center
    ``(W / 2, H / 2)`` of the *viewport*, the rectangle of the size of the input.

    =====================  ==========================================  =========================================
    fields                 input                                       output
    =====================  ==========================================  =========================================
    images                 ``(H, W, C)`` or a clip ``(F, H, W, C)``;   ``(h, w, C)``, ``(F, h, w, C)``; bilinear;
                           uint8, int16, float32                       ``fill_value`` beyond the image
    masks                  as images, values are labels                nearest pixel; 0 beyond the image
    image sizes            ``(2,)`` height, width, of any type         ``output_hw``
    projection matrices    ``(..., 3 or 4, K)``, e.g. intrinsics,      ``[M; 0 0 1] @ P``; a fourth row stays
                           float; one shape in all groups of an array
    points                 ``(..., 2 * k)`` x, y, ... of any type      ``M @ [x, y, 1]``; integer types: rounded
    boxes                  ``(..., 4)`` x1, y1, x2, y2 of any type     the smallest box around the transformed one
    =====================  ==========================================  =========================================

    Any number of points, boxes and matrices is possible, including none. They are not clipped to the image (see
    `CoordinateCropper`). Without rotation and shearing, the two corners of a box may be in any order, which they
    keep. Points and boxes that are not finite stay so. The arithmetic is float32: points are exact to about 0.001
    pixels. Types stay as they are. Images that are known to be encoded, or to have a layout other than ``HWC`` and
    ``FHWC``, are refused.

    All images and size fields of a sample must have the same size, at least one pixel, otherwise the batch fails.
    For cameras of different sizes, apply the step to each camera by a wrapper; with a ``key`` of ``"rig"`` they
    share the draws.

    Settings without rotation and shearing are computed by ``fn.resize`` of a region (with mirrored regions for
    flips) instead of ``fn.warp_affine``: the same pixels to 1 grey level, except along the edge of the image,
    where ``fn.warp_affine`` mixes half a pixel of ``fill_value`` in. There is no antialiasing in either case.

    Example:
        >>> T = AffineTransformer
        >>> flip = T.NonUniformScaling(0.5, [-1, 1])
        >>> zoom = T.Selection(1.0, [0.7, 0.3], [T.UniformScaling(1.0, 1.0, 1.5), [T.Rotation(0.5, -5, 5)]])
        >>> step = T(
        ...     [256, 704],
        ...     T.ResizingMode.CROP,
        ...     T.ResizingAnchor.BOTTOM_OR_RIGHT,
        ...     image_field_names="image",
        ...     projection_matrix_field_names="intrinsics",
        ...     transformation_steps=[zoom, flip],
        ... )
    """

    ResizingMode: TypeAlias = ResizingMode
    ResizingAnchor: TypeAlias = ResizingAnchor
    TransformationStep: TypeAlias = TransformationStep
    Translation: TypeAlias = Translation
    Rotation: TypeAlias = Rotation
    UniformScaling: TypeAlias = UniformScaling
    NonUniformScaling: TypeAlias = NonUniformScaling
    Shearing: TypeAlias = Shearing
    ShiftInsideOriginalImage: TypeAlias = ShiftInsideOriginalImage
    ShiftToAlignWithOriginalImageBorder: TypeAlias = ShiftToAlignWithOriginalImageBorder
    Selection: TypeAlias = Selection

    _usual_projections = ()  # as published: matrices follow where they are named
    _argument_of = ResamplingStep._argument_of | {
        "image": "image_field_names",
        "hw": "image_hw_field_names",
        "projection": "projection_matrix_field_names",
        "point": "point_field_names",
        "on_gpu": "transform_image_on_gpu",
    }

    @explains_unknown_arguments
    def __init__(
        self,
        output_hw: Sequence[int],
        resizing_mode: ResizingMode,
        resizing_anchor: ResizingAnchor | None = None,
        image_field_names: Names | None = None,
        image_hw_field_names: Names | None = None,
        projection_matrix_field_names: Names | None = None,
        point_field_names: Names | None = None,
        transformation_steps: Sequence[TransformationStep] | None = None,
        transform_image_on_gpu: bool = True,
        *,
        box_names: Names | None = None,
        mask_names: Names | None = None,
        fill_value: float = 0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            output_hw: Height and width of the output.
            resizing_mode: How the viewport is brought to this size, after all steps.
            resizing_anchor: What stays in place with ``PAD`` and ``CROP``; to be left out with ``STRETCH``.
            image_field_names: Name or names of the images.
            image_hw_field_names: Name or names of fields with the size of the images. They are needed where no
                images are transformed.
            projection_matrix_field_names: Name or names of projection matrices, or intrinsics; None for none.
            point_field_names: Name or names of points.
            transformation_steps: Transformations of the content of the viewport, in this order.
            transform_image_on_gpu: Whether images are transformed on the GPU, in a pipeline that has one.
                Otherwise they stay on their device.
            box_names: Name or names of boxes with edges along the axes; with rotation or shearing, they must have
                ``x1 <= x2`` and ``y1 <= y2``.
            mask_names: Name or names of masks.
            fill_value: Value of pixels beyond the image.
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: There are neither images nor sizes; mode and anchor do not fit; a
                `ShiftInsideOriginalImage` or `ShiftToAlignWithOriginalImageBorder` comes after a rotation or
                shearing; an argument is not of its form.
        """
        super().__init__(
            image_field_names,
            fill_value,
            hw_names=image_hw_field_names,
            projection_names=projection_matrix_field_names,
            point_names=point_field_names,
            box_names=box_names,
            mask_names=mask_names,
            on_gpu=transform_image_on_gpu,
        )
        self._output_hw = checked_hw(output_hw, "output_hw")
        anchors: list[ResizingAnchor | None] = [None, *ResizingAnchor]
        self._resizing_mode = choice(resizing_mode, "resizing_mode", ResizingMode)
        self._resizing_anchor = anchor = choice(resizing_anchor, "resizing_anchor", anchors)
        if self._resizing_mode == ResizingMode.STRETCH and anchor is not None:
            raise SettingError(
                f"`resizing_anchor` must be left out with STRETCH, which fills the output; got {anchor}."
            )
        if self._resizing_mode != ResizingMode.STRETCH and anchor is None:
            mode = self._resizing_mode.name
            raise SettingError(f"`resizing_anchor` must be given with {mode}: what stays in place?")
        self._steps = checked_steps(transformation_steps, "`transformation_steps`")
        self._resampling()  # refuses a wrong order of the steps
        draws = draws_of(self._steps, _PLACE, key)  # type: ignore[arg-type]
        self.draws = tuple(draw for draw in draws if draw is not None)

    @do_not_convert
    def draw_nodes(self, names: Sequence[str]) -> Sequence[DataNode]:
        """Get the nodes of the draws: callers that replace `fn.random.uniform` find the published order."""
        nodes: dict[str, DataNode] = {}
        for draw in draws_of(self._steps, _PLACE, "sample"):
            if draw is None:
                fn.random.uniform(range=[0.0, 1.0])
            else:
                nodes[draw.name] = self.draw(draw.name)
        return [nodes[name] for name in names]

    def _change_of(self, hw: Value, draws: Draws) -> ImagePlaneChange:
        chain = TransformationChain(hw[::-1], dict(draws))  # all draws, also of steps that are not applied
        extend_by(chain, self._steps, _PLACE)
        last = resizing(hw, self._output_hw, self._resizing_mode, self._resizing_anchor)
        matrix, resampling = last.matrix_after(chain.matrix), self._resampling()
        if resampling == Resampling.WARP:
            resampler = Resampler(resampling, self._output_hw, {"matrix": matrix})
        else:
            scaling = AxisScaling.of_matrix(matrix, self._output_hw) if self._steps else last
            resampler = Resampler.resizing(resampling, scaling, hw)
        return self._change_by(resampler, matrix, hw)

    def _resampling(self) -> Resampling:
        coverage = coverage_after(self._steps, Coverage())
        if coverage.is_turned:
            return Resampling.WARP
        is_covered = coverage.is_covered.all() and self._resizing_mode != ResizingMode.PAD
        return Resampling.REGION if is_covered else Resampling.PASTED_REGION
