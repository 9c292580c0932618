# SPDX-License-Identifier: Apache-2.0
"""Images of a sample in a worker whose pixels the graph makes."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from . import image_arrays


@attrs.frozen(eq=False)
class DeferredImage:
    """Stands for an image in a sample of arrays, where its pixels are decoded and changed in the graph.

    Steps on arrays find its shape and type as of an array, and note what the graph is to do: they replace it by
    `changed`. They cannot read pixels.

    Attributes:
        source: What is sent to the graph: the bytes of an image file, or the pixels that the input has.
        shape: Shape after the changes that were noted: ``(num_bytes,)`` of a file, ``(H, W, C)`` of an image.
        dtype: Type after these changes.
        parameters: For each change its numbers, in the order in which the step declares them.
    """

    source: npt.NDArray[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parameters: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> DeferredImage:
        """Defer the changes of an array."""
        return cls(array, array.shape, array.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def hw_of_file(self) -> npt.NDArray[np.float32]:
        """Height and width of the image in the file, from its header, ``(2,)``."""
        return image_arrays.ImageFile.opened(self.source).hw

    def changed(
        self, *parameters: Any, shape: tuple[int, ...] | None = None, dtype: npt.DTypeLike = None
    ) -> DeferredImage:
        """Note a change, by its parameters; shape and type are those after it, None where it leaves them."""
        return DeferredImage(
            self.source,
            self.shape if shape is None else shape,
            self.dtype if dtype is None else np.dtype(dtype),
            (*self.parameters, parameters),
        )
