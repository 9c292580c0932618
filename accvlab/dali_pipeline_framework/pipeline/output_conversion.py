# SPDX-License-Identifier: Apache-2.0
"""Conversion of DALI's outputs to PyTorch tensors or NumPy arrays: on the CPU without copying."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
from nvidia.dali.tensors import TensorCPU, TensorGPU

from ..checks import bullets, choice, did_you_mean, flag, shown
from ..engine.dali.gpus import require_usable_gpu
from ..engine.transport import Delivery, FieldPlace, PackedBatch, Tensors
from ..errors import OutputError, SettingError
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.folded_formats import FoldedFormat, FoldedLeaf
from ..sample_data.names import Name, Path, format_path
from ..workers.samples import Array

OutputType: TypeAlias = Literal["torch", "numpy"]
RaggedPolicy: TypeAlias = Literal["raise", "list"]
RaggedArgument: TypeAlias = RaggedPolicy | Mapping[Path, RaggedPolicy]
OutputArray: TypeAlias = Any
"""A field of a batch: a tensor of PyTorch, whose types are not imported here, or an array of NumPy."""
OutputField: TypeAlias = OutputArray | list[OutputArray]

_RAGGED_ADVICE = (
    "Resize or pad the field in a step (ImageResizer, PaddingToUniform), or pass ragged={{{name!r}: 'list'}} to "
    "the loader or iterator."
)


def fields_as_lists(ragged: RaggedArgument, output_format: GroupFormat) -> tuple[bool, ...]:
    """Which data fields are delivered as lists of one array per sample.

    Args:
        ragged: One policy for all fields; or a dict of policies, by name (for all fields and groups of that name)
            or by path. Other fields have the policy ``"raise"``.
        output_format: Format of the output.

    Returns:
        One value per data field, in flat order.

    Raises:
        SettingError: A policy is unknown, or there is no such field.
    """
    policies = ragged if isinstance(ragged, Mapping) else {(): ragged}
    for policy in policies.values():
        if not isinstance(policy, str) or str.__str__(policy) not in ("raise", "list"):
            raise SettingError(
                f"`ragged` must be 'raise' or 'list', or a dict of these by field, got {shown(ragged)}."
            )
    leaves = output_format.flat_paths
    is_list = [False] * len(leaves)
    for key, policy in policies.items():
        if isinstance(key, str | int):
            found = [index for index, leaf in enumerate(leaves) if key in leaf]
        else:
            found = [index for index, leaf in enumerate(leaves) if leaf[: len(key)] == tuple(key)]
        if not found and leaves:
            raise SettingError(
                f"`ragged` names {key!r}, but the output has no such field. Its fields are "
                f"{', '.join(map(format_path, leaves))}."
                f"{did_you_mean(key, dict.fromkeys(name for leaf in leaves for name in leaf))}"
            )
        for index in found:
            is_list[index] = policy == "list"
    return tuple(is_list)


class OutputConverter:
    """Converts the outputs of a graph to arrays, one for each field.

    Attributes:
        format: Format of the arrays.
        stream: Gets the stream of CUDA that waits for the next batch; None: the host waits.
        device: Makes the GPU of the pipeline PyTorch's current one; by the default stream of another one, DALI
            would use that GPU, too.
    """

    def __init__(
        self,
        output_type: OutputType,
        output_format: GroupFormat,
        delivery: Delivery,
        ragged: RaggedArgument = "raise",
        is_stacked: bool = False,
        must_copy: bool = False,
        advice: str = "",
        device_id: int | None = None,
        is_bound: bool = False,
        is_fed: bool = False,
        gpu_views: bool = False,
    ) -> None:
        """Set up.

        Args:
            output_type: Which arrays to make.
            output_format: Format of the output.
            delivery: Places of its fields in the outputs.
            ragged: Handling of samples of different shapes, see `fields_as_lists`.
            is_stacked: Whether the elements of each array are stacked to one field.
            must_copy: Whether the buffers are recycled by the pipeline and must be copied.
            advice: What to do about samples of different shapes; empty for what always helps.
            device_id: Number of the GPU of the pipeline; None for the CPU.
            is_bound: Whether PyTorch's stream waits for a batch, and not the host.
            is_fed: Whether a pool loads the packed fields, in memory that it uses again.
            gpu_views: Whether tensors on a GPU are views of DALI's memory, where that is not recycled.

        Raises:
            SettingError: An argument has an unknown value, or PyTorch is needed and not installed.
            DeviceError: PyTorch cannot use the GPU.
        """
        is_torch = choice(output_type, "output_type", ("numpy", "torch")) == "torch"
        self._arrays: _TorchArrays | _NumpyArrays = _NumpyArrays(must_copy)
        if is_torch:
            require_usable_gpu(device_id, uses_torch=True)
            self._arrays = _TorchArrays(must_copy, gpu_views=flag(gpu_views, "gpu_views") and not must_copy)
        self._is_reused = must_copy or is_fed
        self.stream: Callable[[], Any] | None = None
        self.device: AbstractContextManager[object] = contextlib.nullcontext()
        if isinstance(self._arrays, _TorchArrays) and device_id is not None:
            self.device = self._arrays.device(device_id)
            if is_bound:
                self.stream = functools.partial(self._arrays.current_stream, device_id)
        self._advice = advice
        self._paths = output_format.flat_paths
        self._delivery = delivery
        is_stacked = flag(is_stacked, "stack_arrays")
        most = output_format.num_leaves if is_stacked else 0
        folded = FoldedFormat.of(output_format, most, least=1)
        self.format = folded.stacked() if is_stacked else output_format
        self._makers: list[tuple[Callable[[_Batch, FoldedLeaf], OutputArray], FoldedLeaf]] = []
        for leaf, as_list in zip(folded.leaves, fields_as_lists(ragged, self.format), strict=True):
            make = self._stack if leaf.level.arrays else self._array
            as_list = as_list or (output_format.flat_leaves[leaf.members[0]].is_string and bool(leaf.level.arrays))
            self._makers.append((self._list if as_list else make, leaf))

    def __call__(self, outputs: Sequence[Tensors]) -> list[OutputField]:
        """Convert the outputs of a batch.

        Args:
            outputs: The outputs.

        Returns:
            For each field an array with the batch as its first axis, or a list with an entry per sample.

        Raises:
            OutputError: The shapes in a field differ and no list is wanted.
        """
        packed = self._delivery.packed_of(outputs, self._is_reused)
        batch = _Batch(outputs, packed, self._arrays)
        values: list[OutputField] = []
        for make, leaf in self._makers:
            values.append(make(batch, leaf))
        return values

    def _list(self, batch: _Batch, leaf: FoldedLeaf) -> list[OutputArray]:
        lists = [self._list_of_one(batch, self._delivery.places[member]) for member in leaf.members]
        if not leaf.level.arrays:
            return lists[0]
        return [_nested(elements, leaf.level.lengths) for elements in zip(*lists, strict=True)]

    def _list_of_one(self, batch: _Batch, place: FieldPlace) -> list[OutputArray]:
        if batch.packed is not None and place.is_packed:
            return list(map(self._arrays.of_numpy, batch.packed.arrays(place)))
        tensors = batch.outputs[place.output]
        entries = self._delivery.entries_of(place, len(tensors) // place.count)
        return [self._arrays.of_tensor(tensors[index]) for index in entries]

    def _stack(self, batch: _Batch, leaf: FoldedLeaf) -> OutputArray:
        stack = self._stack_as_it_is(batch, leaf)
        if stack is None:
            arrays = [self._array(batch, leaf, index) for index in range(len(leaf.members))]
            shapes = {
                self._paths[member]: tuple(array.shape) for member, array in zip(leaf.members, arrays, strict=True)
            }
            if len({*shapes.values()}) > 1:
                raise self._differing_elements(shapes)
            stack = self._arrays.stacked(arrays)
        if len(leaf.level.lengths) == 1:
            return stack
        return stack.reshape(stack.shape[0], *leaf.level.lengths, *stack.shape[2:])

    def _stack_as_it_is(self, batch: _Batch, leaf: FoldedLeaf) -> OutputArray:
        """Get all elements of a field where they are one after the other already, else None."""
        places = [self._delivery.places[member] for member in leaf.members]
        first = places[0]
        in_order = [attrs.evolve(first, element=element) for element in range(first.count)]
        if places != in_order or not (self._delivery.is_by_sample or len(places) == 1):
            return None
        if batch.packed is not None and first.is_packed:
            stack = batch.packed.stack(first)
            return None if stack is None else self._arrays.of_numpy(stack)
        whole = batch.dense(first.output)
        return None if whole is None else whole.reshape(-1, len(places), *whole.shape[1:])

    def _array(self, batch: _Batch, leaf: FoldedLeaf, index: int = 0) -> OutputArray:
        member = leaf.members[index]
        place = self._delivery.places[member]
        if batch.packed is not None and place.is_packed:
            array = batch.packed.array(place)
            if array is not None:
                return self._arrays.of_numpy(array)
            shapes: Sequence[Sequence[int]] = [each.shape for each in batch.packed.arrays(place)]
        else:
            whole = batch.dense(place.output)
            if whole is not None:
                if place.count == 1:
                    return whole
                entries = self._delivery.entries_of(place, len(whole) // place.count)
                return whole[entries.start : entries.stop : entries.step]
            tensors = batch.outputs[place.output]
            entries = self._delivery.entries_of(place, len(tensors) // place.count)
            of_element = [tensors[index] for index in entries]
            shapes = [each.shape() for each in of_element]
            if all(shape == shapes[0] for shape in shapes):  # only other elements have other shapes
                return self._arrays.of_tensors(of_element)
        raise self._ragged_error([tuple(shape) for shape in shapes], place.dtype == np.uint8, self._paths[member])

    def _differing_elements(self, shapes: Mapping[FieldPath, tuple[int, ...]]) -> OutputError:
        name = _last_name(next(iter(shapes)))
        return OutputError(
            "The elements of an array must have the same shape to be stacked, got\n"
            + bullets(f"{format_path(path)}: {shape}" for path, shape in shapes.items())
            + "\nResize or pad the field in a step, or pass "
            + f"ragged={{{name!r}: 'list'}} to the loader or iterator."
        )

    def _ragged_error(self, shapes: Sequence[tuple[int, ...]], is_uint8: bool, path: FieldPath) -> OutputError:
        listed = ", ".join(dict.fromkeys(map(str, shapes)))
        encoded = ""
        if is_uint8 and len(shapes[0]) == 1:
            encoded = "If these are encoded images, decode them in a step: ImageDecoder, or VideoDecoder. "
        advice = self._advice or _RAGGED_ADVICE.format(name=_last_name(path))
        return OutputError(
            f"{format_path(path)}: all samples of a batch must have the same shape to form one array, got the "
            f"shapes {listed}. {encoded}{advice}"
        )


def _nested(elements: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """Arrange the elements of arrays in arrays as nested lists of these lengths."""
    if len(lengths) == 1:
        return list(elements)
    size = len(elements) // lengths[0]
    return [_nested(elements[start : start + size], lengths[1:]) for start in range(0, len(elements), size)]


def _last_name(path: FieldPath) -> Name:
    return next((part for part in reversed(path) if isinstance(part, str)), path[-1])


@attrs.define
class _Batch:
    """The outputs of a batch; each is converted once, also where several fields are in it.

    Attributes:
        outputs: The outputs.
        packed: The packed fields.
    """

    outputs: Sequence[Tensors]
    packed: PackedBatch | None
    _arrays: _NumpyArrays | _TorchArrays
    _dense: dict[int, OutputArray | None] = attrs.field(factory=dict, init=False)

    def dense(self, output: int) -> OutputArray | None:
        """Get an output as one array, None if the shapes of its samples differ."""
        if output not in self._dense:
            tensors = self.outputs[output]
            try:
                self._dense[output] = self._arrays.of_tensor(tensors.as_tensor())
            except RuntimeError:
                if tensors.is_dense_tensor():
                    raise
                self._dense[output] = None
        return self._dense[output]


class _NumpyArrays:
    """Makes NumPy arrays of tensors of DALI, and of arrays that own their memory."""

    stacked = staticmethod(functools.partial(np.stack, axis=1))

    def __init__(self, must_copy: bool) -> None:
        self._must_copy = must_copy

    def of_tensor(self, tensor: TensorCPU | TensorGPU) -> OutputArray:
        array = np.asarray(tensor.as_cpu() if isinstance(tensor, TensorGPU) else tensor)
        return array.copy() if self._must_copy else array

    def of_tensors(self, tensors: Sequence[TensorCPU | TensorGPU]) -> OutputArray:
        """Copy tensors of one shape into an array of all of them."""
        return np.stack([np.asarray(each.as_cpu() if isinstance(each, TensorGPU) else each) for each in tensors])

    def of_numpy(self, array: Array) -> OutputArray:
        return array


class _TorchArrays:
    """Makes tensors of PyTorch of tensors of DALI, and of arrays that own their memory."""

    def __init__(self, must_copy: bool, *, gpu_views: bool) -> None:
        self._must_copy, self._gpu_views = must_copy, gpu_views
        try:
            import torch
        except ImportError as error:
            problem = "The output as PyTorch tensors needs PyTorch"
            advice = "Install it (pip install torch), or pass output_type='numpy'."
            raise SettingError(f"{problem}, which is not installed. {advice}") from error
        self._torch: Any = torch
        self.of_numpy: Callable[[Array], OutputArray] = torch.from_numpy  # a call less for each field
        self.current_stream: Callable[[int], Any] = torch.cuda.current_stream
        self.device: Callable[[int], AbstractContextManager[object]] = torch.cuda.device
        self.stacked = functools.partial(torch.stack, dim=1)

    def of_tensor(self, tensor: TensorCPU | TensorGPU) -> OutputArray:
        if isinstance(tensor, TensorGPU):
            return self._of_gpu(tensor)
        array = self._torch.from_numpy(np.asarray(tensor))  # a quarter of the cost of DLPack
        return array.clone() if self._must_copy else array

    def of_tensors(self, tensors: Sequence[TensorCPU | TensorGPU]) -> OutputArray:
        """Copy tensors of one shape into a tensor of all of them; on a GPU, the host does not wait."""
        first: Any = tensors[0]
        if not isinstance(first, TensorGPU):
            return self._torch.from_numpy(np.stack([np.asarray(each) for each in tensors]))
        copies = self._empty_like(first, len(tensors))
        for copy, tensor in zip(copies, tensors, strict=True):
            self._copy(tensor, copy)
        return copies

    def _of_gpu(self, tensor: Any) -> OutputArray:
        """Copy a tensor into PyTorch's memory, in its stream, for which the host does not wait.

        A view would be released by a thread of DALI that waits for the whole GPU, and that aborts the process
        where anything on it has failed, e.g. an index in the user's model. DALI does not use its memory again
        before the stream has copied it.
        """
        if self._gpu_views:
            return self._torch.from_dlpack(tensor)
        copy = self._empty_like(tensor)
        self._copy(tensor, copy)
        return copy

    def _empty_like(self, tensor: Any, *in_front: int) -> OutputArray:
        torch = self._torch
        # DALI's own function has no unsigned types of more than 8 bits.
        dtype = torch.from_numpy(np.empty(0, get_numpy_type_for_dali_type(tensor.dtype))).dtype
        return torch.empty(
            [*in_front, *tensor.shape()], dtype=dtype, device=torch.device("cuda", tensor.device_id())
        )

    def _copy(self, tensor: Any, copy: OutputArray) -> None:
        stream = ctypes.c_void_p(self.current_stream(tensor.device_id()).cuda_stream)
        tensor.copy_to_external(ctypes.c_void_p(copy.data_ptr()), stream, non_blocking=True)
