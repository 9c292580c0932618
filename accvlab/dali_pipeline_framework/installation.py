# SPDX-License-Identifier: Apache-2.0
"""A missing or damaged DALI: what to install."""

from __future__ import annotations

_WHEELS = (
    "nvidia-dali-cuda120 (CUDA 12, and machines without a GPU; by the extras cpu and cuda12 of this package) or "
    "nvidia-dali-cuda130 (CUDA 13; cuda13)"
)


def explained(error: ImportError) -> ImportError:
    """Return the error to raise in place of a failed import; of one of DALI it says how to repair it."""
    if not (error.name or "").startswith("nvidia"):
        return error
    # Without a name, so that it is left alone where it passes here again.
    return type(error)(
        f"DALI is not installed, or damaged: {error}. The wheels share nearly all of their files, so that of two "
        f"each has overwritten parts of the other. Install {_WHEELS}:\n"
        f"    pip uninstall --yes nvidia-dali-cuda120 nvidia-dali-cuda130\n"
        f"    pip install nvidia-dali-cuda120"
    )
