# SPDX-License-Identifier: Apache-2.0
"""Packages that steps need to work on arrays, and that are not required otherwise."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from ..errors import SettingError

# What a package is called, and the extra that installs it; for others, both as the package.
_INSTALLED_AS = {"cv2": ("OpenCV", "cpu"), "torchvision.tv_tensors": ("torchvision", "torchvision")}


def needed_package(name: str) -> ModuleType:
    """Import a package, when first needed; the module that is loaded already costs a look-up.

    Raises:
        SettingError: It cannot be imported.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package, extra = _INSTALLED_AS.get(name, (name, name))
        raise SettingError(
            f"Steps on arrays need {package}, which cannot be imported ({error}). Install it with: "
            f'pip install "accvlab.dali_pipeline_framework[{extra}]", or use steps that run in the graph.'
        ) from error
