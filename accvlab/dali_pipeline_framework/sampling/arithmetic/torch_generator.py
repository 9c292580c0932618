# SPDX-License-Identifier: Apache-2.0
"""Random numbers of PyTorch's generator for the CPU, for orders that are to be those of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SettingError

Int64Array = npt.NDArray[np.int64]


def torch_module() -> Any:
    """Import PyTorch; a `SettingError` where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            "This order is that of PyTorch's generator, and PyTorch is not installed: "
            'pip install "accvlab.dali_pipeline_framework[torch]". Other samplers of this package do not need it.'
        ) from error
    return torch


def torch_generator(seed: int, state: npt.NDArray[np.uint8] | None = None) -> Any:
    """Make a generator with a seed, or in a state that ``get_state`` or ``get_rng_state`` told."""
    torch = torch_module()
    generator = torch.Generator()
    if state is None:
        generator.manual_seed(seed)
    else:
        generator.set_state(torch.from_numpy(state.copy()))
    return generator


def torch_permutation(count: int, generator: Any) -> Int64Array:
    """Get ``torch.randperm``, ``(count,)``."""
    return np.asarray(torch_module().randperm(count, generator=generator).numpy(), np.int64)


def torch_seed(generator: Any) -> int:
    """Draw a seed as PyTorch's loader and samplers do."""
    torch = torch_module()
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
