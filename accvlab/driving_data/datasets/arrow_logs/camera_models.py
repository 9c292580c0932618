# SPDX-License-Identifier: Apache-2.0
"""Intrinsics of the camera models of py123d."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError


def intrinsic_matrix(camera: Mapping[str, Any], path: str) -> npt.NDArray[np.float64]:
    """Matrix of a camera by its metadata, ``(3, 3)``, camera coordinates to pixels times depth.

    Of a pinhole camera, as it is; distortion is not contained. Of fisheye cameras (``fisheye_mei``, ``ftheta``),
    the one that is right around the optical axis: the derivative of the projection there.

    Raises:
        FileError: The calibration cannot be used.
    """
    model = str(camera.get("camera_model")).lower()
    try:
        if model == "pinhole":
            fx, fy, cx, cy, skew = np.asarray(camera["intrinsics"], np.float64)
        elif model == "ftheta":
            cx, cy, _, fx = np.asarray(camera["intrinsics"], np.float64)[:4]  # pixels per radian at angle 0
            fy, skew = fx, 0.0
        elif model == "fisheye_mei":
            gamma_x, gamma_y, cx, cy = np.asarray(camera["projection"], np.float64)
            mirror = float(camera["mirror_parameter"])
            fx, fy, skew = gamma_x / (1 + mirror), gamma_y / (1 + mirror), 0.0
        else:
            raise ValueError(f"the camera model must be pinhole, fisheye_mei or ftheta, got {model!r}")
        matrix = np.array([[fx, skew, cx], [0, fy, cy], [0, 0, 1]], np.float64)
        if not np.isfinite(matrix).all() or fx <= 0 or fy <= 0:
            raise ValueError(f"focal lengths must be above 0, got {fx} and {fy}")
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"The calibration in {path!r} cannot be used: {error}. Its metadata is {shown(dict(camera))}."
        ) from error
    return matrix
