# SPDX-License-Identifier: Apache-2.0
"""Conversion of DALI's outputs to PyTorch tensors or NumPy arrays, without copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from nvidia.dali import types
from nvidia.dali.tensors import TensorGPU

from ..errors import OutputError, SettingError
from ..sample_data import FieldPath, GroupFormat, Path, format_path

OutputType: TypeAlias = Literal["torch", "numpy"]
RaggedPolicy: TypeAlias = Literal["raise", "list"]
RaggedArgument: TypeAlias = RaggedPolicy | Mapping[Path, RaggedPolicy]
TensorConverter: TypeAlias = Callable[[Any], Any]

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
        if policy not in ("raise", "list"):
            raise SettingError(f"`ragged` must be 'raise' or 'list', or a dict of these by field, got {ragged!r}.")
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
            )
        for index in found:
            is_list[index] = policy == "list"
    return tuple(is_list)


class OutputConverter:
    """Converts one output of a batch (a DALI tensor list)."""

    def __init__(self, output_type: OutputType, must_copy: bool, advice: str = "") -> None:
        """Set up.

        Args:
            output_type: Which arrays to make.
            must_copy: Whether the buffers are recycled by the pipeline and must be copied.
            advice: What to do about samples of different shapes; empty for what always helps.

        Raises:
            SettingError: An argument has an unknown value, or PyTorch is asked for and not installed.
        """
        makers = {"torch": _torch_converter, "numpy": _numpy_converter}
        if output_type not in makers:
            raise SettingError(f"`output_type` must be one of {sorted(makers)}, got {output_type!r}.")
        self._convert = makers[output_type](must_copy)
        self._advice = advice

    def __call__(
        self, tensors: Any, path: FieldPath, num_samples: int | None = None, *, as_list: bool = False
    ) -> Any:
        """Convert an output.

        Args:
            tensors: The output.
            path: Path of the field, for messages.
            num_samples: How many samples to deliver of it, from the first on; None for all.
            as_list: Whether to make a list of one array per sample.

        Returns:
            An array with the batch as its first axis, or a list of arrays.

        Raises:
            OutputError: The shapes differ and no list is wanted.
        """
        if as_list:
            count = len(tensors) if num_samples is None else num_samples
            return [self._convert(tensors[index]) for index in range(count)]
        try:
            tensor = tensors.as_tensor()
        except RuntimeError:
            if tensors.is_dense_tensor():
                raise
            raise self._ragged_error(tensors, path) from None
        converted = self._convert(tensor)
        return converted if num_samples is None else converted[:num_samples]

    def _ragged_error(self, tensors: Any, path: FieldPath) -> OutputError:
        shapes = [tuple(shape) for shape in tensors.shape()]
        listed = ", ".join(dict.fromkeys(map(str, shapes)))
        encoded = ""
        if tensors.dtype == types.DALIDataType.UINT8 and len(shapes[0]) == 1:
            encoded = "If these are encoded images, decode them in a step: ImageDecoder, or FrameSequenceDecoder. "
        name = next((part for part in reversed(path) if isinstance(part, str)), path[-1])
        advice = self._advice or _RAGGED_ADVICE.format(name=name)
        return OutputError(
            f"{format_path(path)}: all samples of a batch must have the same shape to form one array, got the "
            f"shapes {listed}. {encoded}{advice}"
        )


def _numpy_converter(must_copy: bool) -> TensorConverter:
    def to_numpy(tensor: Any) -> Any:
        array = np.asarray(tensor.as_cpu() if isinstance(tensor, TensorGPU) else tensor)
        return array.copy() if must_copy else array

    return to_numpy


def _torch_converter(must_copy: bool) -> TensorConverter:
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            "The output as PyTorch tensors needs PyTorch, which is not installed. Install the extra `torch`, or "
            "pass output_type='numpy'."
        ) from error

    from_dlpack: Callable[[Any], Any] = torch.utils.dlpack.from_dlpack

    def to_torch(tensor: Any) -> Any:
        if isinstance(tensor, TensorGPU):
            with torch.device("cuda", cast(Any, tensor).device_id()):
                array = from_dlpack(tensor)
        else:
            array = torch.from_numpy(np.asarray(tensor))  # a quarter of the cost of DLPack
        return array.clone() if must_copy else array

    return to_torch
