# SPDX-License-Identifier: Apache-2.0
"""Outputs of DALI as arrays of the framework that the training uses, without copying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from nvidia.dali import types
from nvidia.dali.tensors import TensorGPU

from ..errors import OutputError, SettingError

OutputType: TypeAlias = Literal["torch", "numpy"]
RaggedPolicy: TypeAlias = Literal["raise", "list"]
TensorConverter: TypeAlias = Callable[[Any], Any]


class OutputConverter:
    """Converts one output of a batch (a DALI tensor list)."""

    def __init__(self, output_type: OutputType, ragged: RaggedPolicy, must_copy: bool, advice: str = "") -> None:
        """Set up.

        Args:
            output_type: Which arrays to make.
            ragged: What to do with samples of different shapes: ``"raise"`` an error, or make a ``"list"`` of
                one array per sample.
            must_copy: Whether the buffers are recycled by the pipeline and must be copied.
            advice: What to do about samples of different shapes; empty for what always helps.

        Raises:
            SettingError: An argument has an unknown value, or PyTorch is asked for and not installed.
        """
        makers = {"torch": _torch_converter, "numpy": _numpy_converter}
        if output_type not in makers:
            raise SettingError(f"`output_type` must be one of {sorted(makers)}, got {output_type!r}.")
        if ragged not in ("raise", "list"):
            raise SettingError(f"`ragged` must be 'raise' or 'list', got {ragged!r}.")
        self._convert = makers[output_type](must_copy)
        self._as_list = ragged == "list"
        self._advice = advice or (
            "Resize or pad the field in a step (ImageResizer, PaddingToUniform), or pass ragged='list' to the "
            "loader or iterator."
        )

    def __call__(self, tensors: Any, name: str, num_samples: int | None = None) -> Any:
        """Convert an output.

        Args:
            tensors: The output.
            name: How to call it in a message.
            num_samples: How many samples to deliver of it, from the first on; None for all.

        Returns:
            An array with the batch as its first axis; with ``ragged="list"`` a list of arrays where the
            shapes differ.

        Raises:
            OutputError: The shapes differ and no lists are wanted.
        """
        try:
            tensor = tensors.as_tensor()
        except RuntimeError:
            if tensors.is_dense_tensor():
                raise
            return self._converted_ragged(tensors, name)[:num_samples]
        converted = self._convert(tensor)
        return converted if num_samples is None else converted[:num_samples]

    def _converted_ragged(self, tensors: Any, name: str) -> list[Any]:
        if self._as_list:
            return [self._convert(tensors[index]) for index in range(len(tensors))]
        shapes = [tuple(shape) for shape in tensors.shape()]
        listed = ", ".join(dict.fromkeys(map(str, shapes)))
        encoded = ""
        if tensors.dtype == types.DALIDataType.UINT8 and len(shapes[0]) == 1:
            encoded = "If these are encoded images, decode them in a step: ImageDecoder, or FrameSequenceDecoder. "
        raise OutputError(
            f"{name}: all samples of a batch must have the same shape to form one array, got the shapes "
            f"{listed}. {encoded}{self._advice}"
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
