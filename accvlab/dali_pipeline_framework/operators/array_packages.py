# SPDX-License-Identifier: Apache-2.0
"""Packages that steps need to work on arrays, and that are not required otherwise."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from ..errors import SettingError

_INSTALLED_AS = {"cv2": "OpenCV"}


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
        package = _INSTALLED_AS.get(name, name)
        raise SettingError(
            f"Steps on arrays need {package}, which cannot be imported ({error}). Install it with: "
            'pip install "accvlab.dali_pipeline_framework[cpu]", or let the steps run in the graph.'
        ) from error
