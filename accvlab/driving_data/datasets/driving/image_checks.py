# SPDX-License-Identifier: Apache-2.0
"""Warnings of images that do not fit what an index says of their camera."""

from __future__ import annotations

import os
from contextlib import suppress

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import image_orientation, image_size, is_gray_of_16_bits
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from .array_types import UInt8
from .driving_index import DrivingIndex


class ImageChecks:
    """Looks at the first image of each camera in each scene, and warns once of each camera."""

    def __init__(self, index: DrivingIndex) -> None:
        """Set up; no image is known."""
        self._index = index
        self._looked_at: set[tuple[int, int]] = set()
        self._warned: set[int] = set()

    def look_at(self, frame: int, camera: int, image: UInt8 | tuple[int, ...]) -> None:
        """Compare an image with the size that its intrinsics are for.

        Args:
            frame: Number of the frame in the index.
            camera: Number of the camera.
            image: The file, ``(num_bytes,)`` uint8, or the height and width of a decoded image.
        """
        scene, cameras = self._index.scene_of(frame), self._index.cameras
        if (scene, camera) in self._looked_at:
            return
        self._looked_at.add((scene, camera))
        name, token = self._index.camera_names[camera], os.fsdecode(bytes(self._index.frames.token[frame]))
        stated = cameras.image_wh[scene, camera].tolist() if cameras and cameras.image_wh is not None else [0, 0]
        problem, file = "", None if isinstance(image, tuple) else image
        if file is not None and (orientation := image_orientation(file)) != 1:
            problem = f"is turned when it is decoded, by its EXIF orientation {orientation}"
        elif any(stated):
            with suppress(FieldValueError):  # what is no image fails when it is decoded
                height, width = image if isinstance(image, tuple) else image_size(image)
                problem = f"is {width} x {height} pixels (width, height)" * ([width, height] != stated)
        if file is not None and is_gray_of_16_bits(file):
            self._warn(
                camera,
                f"The images of {name!r} are gray of 16 bits, as those of depth: `ImageDecoder` makes 8 bits of "
                f"them. Decode them in a step of your own, or leave the camera out.",
            )
        if problem:
            size = f"an image of {stated[0]} x {stated[1]}" if any(stated) else "the image as it is stored"
            self._warn(
                camera,
                f"The image of {name!r} in the frame {token!r} {problem}, but its intrinsics are those of {size}. "
                f"Change the intrinsics in a step of your own, or the images.",
            )

    def _warn(self, camera: int, text: str) -> None:
        if camera not in self._warned:
            self._warned.add(camera)
            warn_user(text)
