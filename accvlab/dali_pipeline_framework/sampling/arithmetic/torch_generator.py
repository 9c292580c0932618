# SPDX-License-Identifier: Apache-2.0
"""Random numbers of PyTorch's generator for the CPU, for orders that are to be those of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SettingError

Int64Array = npt.NDArray[np.int64]


def torch_generator(seed: int) -> Any:
    """Make a generator with a seed; a `SettingError` where PyTorch is not installed."""
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            "This order is that of PyTorch's generator, and PyTorch is not installed: "
            'pip install "accvlab.dali_pipeline_framework[torch]". Other samplers of this package do not need it.'
        ) from error
    return torch.Generator().manual_seed(seed)


def torch_permutation(count: int, generator: Any) -> Int64Array:
    """Get ``torch.randperm``, ``(count,)``."""
    import torch

    return np.asarray(torch.randperm(count, generator=generator).numpy(), np.int64)
