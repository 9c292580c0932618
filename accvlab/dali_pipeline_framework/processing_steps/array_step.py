# SPDX-License-Identifier: Apache-2.0
"""Steps on arrays, and how a graph runs them: Python computes sample by sample, operators change the pixels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.data_node import DataNode

from ..draws.draw_scope import Draws, declared_draws, path_in_sample, step_context
from ..draws.random_draws import RandomDraw
from ..engine.dali.graph_definition import python_operator
from ..errors import FieldValueError, FrameworkError, NotSupportedError, text_of
from ..operators.deferred_images import DeferredImage
from ..sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.graph_mode import do_not_convert, methods_not_converted
from .image_use import ImageUse
from .pipeline_step_base import ArrayApplication, PipelineStepBase, PixelChanges, filled, on_arrays, require_output

_Array: TypeAlias = npt.NDArray[Any]


@attrs.frozen
class FieldUse:
    """The fields that a step on arrays works on; only these are brought to it in a graph.

    Attributes:
        changed: Paths of the fields whose values it may replace.
        read: Paths of further fields that it reads, or removes.
        shapes: Paths of images of which it reads the shape only.
    """

    changed: Sequence[FieldPath] = ()
    read: Sequence[FieldPath] = ()
    shapes: Sequence[FieldPath] = ()


class ArrayStep(PipelineStepBase):
    """A step in NumPy, OpenCV or whatever works on arrays: one sample goes in, one sample comes out.

    It runs where the samples are loaded, in the worker processes, before the graph. Where it may also run in a
    graph (``only_in_workers = False``), Python calls it there with each sample of a batch, on the CPU.

    The values are NumPy arrays of one sample, without a batch axis; text is a ``str``. They are read-only:
    a field is changed by setting it to another array. The output format is the input format, unless the step
    overrides `format_after`; results must have the declared types.

    Attributes:
        only_in_workers: True (the default) for a step that runs in the workers only, and so cannot follow a step
            of operators, e.g. since it opens files or takes much time. False: it may run in a graph, too.

    Example::

        class Noise(ArrayStep):
            draws = [UniformDraw("strength", 0, 10), IntegerDraw("seed", 0, 2**31 - 1)]

            def arrays(self, data, draws):
                image = data["image"]
                noise = np.random.default_rng(draws["seed"]).normal(0, draws["strength"], image.shape)
                data["image"] = np.clip(image + noise, 0, 255).astype(np.uint8)
                return data
    """

    only_in_workers: bool = True

    @abstractmethod
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """Apply the step to a sample of arrays.

        Args:
            data: The sample; it may be changed and returned, not the arrays in it.
            draws: The numbers of the declared draws of the step by name, float32 or int32: an array, or a NumPy
                number for a draw without a shape.
        """

    def image_uses(self, data_empty: SampleDataGroup) -> Sequence[ImageUse] | None:
        """Get what it declares; None where a derived class defines operators instead."""
        return super().image_uses(data_empty) if self.has_array_form else None

    @property
    def has_graph_form(self) -> bool:
        """Whether the step can be part of a graph."""
        return not self.only_in_workers or not self.has_array_form

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """Get the fields that ``arrays`` works on: only these are brought to it in a graph.

        By default it may change all fields but images: their pixels stay in the graph if
        `declare_pixel_changes` says so.

        Args:
            data_empty: Format of the group that the step is applied to, before the step.
        """
        leaves = data_empty.format.leaves
        if self.declare_pixel_changes(data_empty) is None:
            return FieldUse([*leaves])
        images = [path for path, leaf in leaves.items() if leaf.content.is_encoded is not None]
        return FieldUse([path for path in leaves if path not in images], shapes=images)

    @do_not_convert
    def draw_nodes(self, names: Sequence[str]) -> Sequence[DataNode]:
        """Get the nodes of declared draws, in a graph that runs the step on arrays."""
        return [self.draw(name) for name in names]

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """Check the input format and return the output format. ``data_empty`` may be changed and returned.

        Raises:
            Exception: The step cannot work on this format. Raise a `FormatError` (see
                `accvlab.dali_pipeline_framework.sample_data.format_error`) to report several problems at once.
        """
        return data_empty

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return require_output(self, self.format_after(data_empty), "format_after")

    @on_arrays
    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        """Have Python run ``arrays`` in the graph, and the graph change the pixels.

        One operator calls Python with the fields and draws that the step uses, of all samples of a batch. Fields
        on a GPU are copied to the CPU, and what the step has changed of them is copied back. Then operators change
        the pixels of images, by the parameters that the step has noted.
        """
        if self.only_in_workers:
            raise NotSupportedError(
                f"{type(self).__name__} works on arrays only, so it cannot be part of a graph. Give it to a "
                f"`DataLoader` or a `PipelineDefinition`, which run it in the worker processes."
            )
        before, empty = data.format, data.get_empty_like_self()
        output = self.check_input_data_format_and_set_output_data_format(data)
        after = output.format
        nodes: dict[FieldPath, Any] = dict(zip(before.flat_paths, data.get_data(), strict=True))
        pixels, use = self.declare_pixel_changes(empty) or {}, self.fields_used(empty)
        changed = {*use.changed} - pixels.keys()
        computed = [
            path for path in after.flat_paths if path not in pixels and (path in changed or path not in nodes)
        ]
        function = _OnArrays(self, before, step_context.get().group, use, computed, pixels)
        made = function.defined(nodes, after)
        results: dict[FieldPath, Any] = {
            path: node.gpu() if path in nodes and nodes[path].device == "gpu" else node
            for path, node in zip(computed, made, strict=False)
        }
        parameters = iter(made[len(computed) :])
        for path, names in pixels.items():
            leaf: Any = before.at(path)
            numbers = {name: next(parameters) for name in names}
            results[path] = self.graph(nodes[path], leaf, path[-1], **numbers)
        output.set_data([results[path] if path in results else nodes[path] for path in after.flat_paths])
        return output


@methods_not_converted
@attrs.define(eq=False)
class _OnArrays:
    """The function that a graph calls with a batch.

    Attributes:
        step: The step.
        before: Format of the samples before the step.
        group: Path of the group that the step is applied to.
        use: The fields whose values come, and the images whose shapes follow.
        computed: Paths of the fields whose values are returned.
        pixels: The images whose parameters follow, with the names and types of these.
        draws: The draws whose numbers come last, by name.
    """

    step: ArrayStep
    before: GroupFormat
    group: FieldPath
    use: FieldUse
    computed: Sequence[FieldPath]
    pixels: PixelChanges
    draws: Mapping[str, RandomDraw] = attrs.field(factory=dict)
    _apply: ArrayApplication = attrs.field(factory=lambda: ArrayApplication(defers_pixels=True), init=False)

    @property
    def _values(self) -> list[FieldPath]:
        return [*dict.fromkeys((*self.use.changed, *self.use.read))]

    def defined(self, nodes: Mapping[FieldPath, Any], after: GroupFormat) -> Sequence[DataNode]:
        """Define the operator that calls this; get the nodes of what is computed, and of the parameters."""
        leaves: list[Any] = [after.at(path) for path in self.computed]
        layouts = [leaf.content.layout or "" for leaf in leaves] + [""] * sum(map(len, self.pixels.values()))
        if not layouts:
            return ()
        self.draws = declared_draws(self.step, SampleDataGroup.from_format(self.before))
        inputs = [nodes[path].cpu() if nodes[path].device == "gpu" else nodes[path] for path in self._values]
        inputs += [nodes[path].shape() for path in self.use.shapes]
        inputs += self.step.draw_nodes([*self.draws])
        # The size of the batch is that of an input.
        return python_operator(self, inputs or [node.shape() for node in nodes.values()][:1], layouts)

    def __call__(self, *columns: Sequence[_Array]) -> Any:
        """Apply the step to each sample of a batch.

        Raises:
            FieldValueError: The step failed; ends with the number of the sample in the batch of the operator.
        """
        rows: list[list[_Array]] = []
        outer = step_context.get()
        try:
            step_context.set(outer._replace(group=self.group))
            for row in zip(*columns, strict=True):
                try:
                    rows.append(self._applied(row))
                except Exception as error:
                    kind = "" if isinstance(error, FrameworkError) else f"{type(error).__name__}: "
                    raise FieldValueError(f"{kind}{text_of(error)} [sample #{len(rows)}]") from error
        finally:
            step_context.set(outer)
        num_results = len(self.computed) + sum(map(len, self.pixels.values()))
        results = [[row[place] for row in rows] for place in range(num_results)]
        return tuple(results) if num_results > 1 else results[0]

    def _applied(self, row: Sequence[_Array]) -> list[_Array]:
        remaining = iter(row)
        # Copies, since DALI uses the memory again.
        given: dict[FieldPath, Any] = {path: np.array(next(remaining)) for path in self._values}
        shapes = {path: tuple(next(remaining).tolist()) for path in self.use.shapes}
        draws = {name: np.asarray(next(remaining), draw.numpy_dtype)[()] for name, draw in self.draws.items()}
        leaves = self.before.leaves.items()
        values = [given[path] if path in given else _left(leaf, path, shapes) for path, leaf in leaves]
        sample = filled(SampleDataGroup.from_format(self.before), values)
        result = self._apply(self.step, sample, draws)
        # Text as bytes, as the graph has it.
        made = dict(zip(result.format.leaves, result.get_data(), strict=True))
        results: list[_Array] = [np.asarray(made[path]) for path in self.computed]
        for path, parameters in self.pixels.items():
            noted = result.get_item_in_path(path).parameters[-1] if parameters else ()
            results += [
                np.asarray(number).astype(get_numpy_type_for_dali_type(dtype), copy=False)
                for number, dtype in zip(noted, parameters.values(), strict=True)
            ]
        return results


def _left(leaf: LeafFormat, path: FieldPath, shapes: Mapping[FieldPath, tuple[int, ...]]) -> DeferredImage:
    """Make a placeholder for a field whose value stays in the graph."""
    shape = shapes.get(path, (0,) * (leaf.ndim or 0))
    return DeferredImage(np.empty(0), leaf.numpy_dtype, len(shape), lambda: shape, path_in_sample(path))
