# SPDX-License-Identifier: Apache-2.0
"""Packages that steps need to work on arrays, and that are not required otherwise."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from ..errors import MissingPackageError
from ..threads import opencv_was_imported

# What a package is called, and by what name it is installed; for others, both as the package.
_INSTALLED_AS = {
    "cv2": ("OpenCV", "opencv-python-headless"),
    **dict.fromkeys(("PIL", "PIL.Image"), ("Pillow", "pillow")),
    "torchvision.tv_tensors": ("torchvision", "torchvision"),
}


def needed_package(name: str) -> ModuleType:
    """Import a package, when first needed; the module that is loaded already costs a look-up.

    Raises:
        MissingPackageError: It cannot be imported.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise _missing("Steps on arrays need", name, f"cannot be imported ({error})") from error
    opencv_was_imported()
    return package


def is_installed(name: str) -> bool:
    """Whether a package can be imported."""
    top = name.partition(".")[0]
    return top in sys.modules or importlib.util.find_spec(top) is not None


def require_installed(name: str, user: str) -> None:
    """Require that a package can be imported, without importing it.

    Raises:
        MissingPackageError: It is not installed; names the extra.
    """
    if not is_installed(name):
        raise _missing(f"{user} needs", name, "is not installed")


def _missing(user: str, name: str, problem: str) -> MissingPackageError:
    package, installed_as = _INSTALLED_AS.get(name, (name, name))
    return MissingPackageError(
        f"{user} {package}, which {problem}. Install it with: pip install "
        f"{installed_as}, or use steps that run in the graph."
    )
