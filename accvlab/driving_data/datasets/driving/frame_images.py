# SPDX-License-Identifier: Apache-2.0
"""Images of frames of an index: files, and frames of videos, also at other times than those of the frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import cast

import numpy as np

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FieldValueError, FileError, SettingError
from accvlab.dali_pipeline_framework.extension import image_orientation, image_size, is_gray_of_16_bits
from accvlab.dali_pipeline_framework.providers import EncodedClipValue, Storage
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from . import poses
from .array_types import Int64, UInt8
from .driving_fields import DrivingFields
from .driving_index import CameraColumns, DrivingIndex
from .frame_places import not_recorded, seconds_text, span_text, times_around
from .requested_files import LEAVE_OUT
from .video_frames import FrameKey, VideoFrames


class FrameImages:
    """Images of frames, by the numbers of frame and camera in the index."""

    def __init__(
        self,
        index: DrivingIndex,
        fields: DrivingFields,
        storage: Storage,
        videos: VideoFrames,
        file_name: Callable[[bytes, str], str],
    ) -> None:
        """Set up, for an index with cameras, and fields that were `completed`; nothing is opened."""
        self._index, self._fields, self._storage, self._videos = index, fields, storage, videos
        self._file_name = file_name
        self._cameras = cast(CameraColumns, index.cameras)
        self._looked_at: set[tuple[int, int]] = set()
        self._warned: set[int] = set()

    def are_of_videos(self, frames: Int64, cameras: Sequence[int]) -> bool:
        """Whether images of some frames are those of videos.

        Raises:
            SettingError: Some are, and some are not.
        """
        chosen = np.ix_(frames, np.array(cameras))
        has_file, video_frame = np.asarray(self._cameras.file)[chosen] != b"", self._cameras.video_frame
        is_video = np.zeros_like(has_file) if video_frame is None else np.asarray(video_frame)[chosen] >= 0
        of_video, of_files = (has_file & is_video).any(axis=0), (has_file & ~is_video).any(axis=0)
        if of_video.any() and of_files.any():
            kinds = [
                f"{self._index.camera_names[camera]}: {' and '.join(['videos'] * video + ['files'] * file)}"
                for camera, video, file in zip(cameras, of_video.tolist(), of_files.tolist(), strict=True)
            ]
            rule = "The images of a sample must be all encoded or all of videos"
            advice = "choose `cameras` or `scenes` that go together"
            raise SettingError(f"{rule}: {advice}. There are: {listed(kinds)}.")
        return not of_files.any()

    def video_kinds(self, frames: Int64, cameras: Sequence[int]) -> tuple[str, ...]:
        """Codecs of the videos: of the first of each camera that can be read."""
        files = {camera: np.asarray(self._cameras.file)[frames, camera] for camera in cameras}
        return self._videos.kinds(
            (
                self._storage.path(self._file_name(name, self._index.camera_names[camera]))
                for name in dict.fromkeys(names[names != b""].tolist())
            )
            for camera, names in files.items()
        )

    def read(self, frame: int, camera: int) -> UInt8:
        """Read the image of a frame: the bytes of its file, ``(num_bytes,)`` uint8; of a video, its pixels."""
        if self._fields.image_times:
            return np.stack([self._videos.frame(*key) for key in self.keys(frame, camera)])
        name, number = self.key(frame, camera)
        if not name:
            token, name = os.fsdecode(self._index.frames.token[frame]), self._index.camera_names[camera]
            span = f": {self._span(frame, camera)}" if self._cameras.frame_time is not None else ""
            raise FileError(f"The frame {token!r} has no image of camera {name!r}{span}. {LEAVE_OUT}")
        return self._storage.read_bytes(name) if number < 0 else self._videos.frame(name, number)

    def key(self, frame: int, camera: int) -> FrameKey:
        """Path and number of a frame of a video; name and -1 of a file that is none."""
        name = self._file_name(self._cameras.file[frame, camera], self._index.camera_names[camera])
        number = -1 if self._cameras.video_frame is None else int(self._cameras.video_frame[frame, camera])
        if number < 0:
            return name, number
        path, times = self._storage.path(name), self._times(frame, camera)
        if len(times):
            self._videos.expect(path, len(times))
        return path, number

    def keys(self, frame: int, camera: int) -> list[FrameKey]:
        """As `key`, of all images of a camera in a sample."""
        path, number = self.key(frame, camera)
        numbers = self.window(frame, camera)[0].tolist() if self._fields.image_times else [number]
        return [(path, number) for number in numbers]

    def window(self, frame: int, camera: int) -> tuple[Int64, Int64]:
        """Frames of a video at `image_times`: numbers, and when they were taken, microseconds; ``(T,)`` each."""
        times, wanted = self._times(frame, camera), times_around(self._index, frame, self._fields.image_times)[1]
        numbers = poses.last_before(times, wanted) if len(times) else np.full(len(wanted), -1)
        if (numbers < 0).any():
            rule = "There must be an image of each camera at or before each time of `image_times`"
            needed = f"one of {seconds_text(wanted[int(np.argmax(numbers < 0))])}"
            raise not_recorded(self._index, frame, rule, needed, self._span(frame, camera))
        return numbers, times[numbers]

    def encoded(self, keys: Sequence[FrameKey], frame: int, camera: int, kinds: Sequence[str]) -> EncodedClipValue:
        """Cut frames of a camera out of their video; ``frame`` is the first frame of the data set."""
        path, other = keys[0][0], next((each for each, _ in keys if each != keys[0][0]), None)
        if other is not None:
            token, name = os.fsdecode(self._index.frames.token[frame]), self._index.camera_names[camera]
            raise FieldValueError(
                f"The images of {name!r} from the frame {token!r} on are in several videos: {path!r}, {other!r}. "
                f"With images='encoded', one sample needs one video: pass images='decoded', or choose other "
                f"windows."
            )
        clip = self._videos.encoded_frames(path, [number for _, number in keys], kinds)
        video = self._videos.index(path)
        self.look_at(frame, camera, (video.height, video.width))
        return clip

    def together(self, images: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """Decode images before they are loaded, each video in one pass."""
        keys: list[FrameKey] = []
        for frame, camera in images if self._cameras.video_frame is not None else ():
            with suppress(FieldValueError):  # raised again for the sample
                keys += self.keys(frame, camera)
        return self._videos.shared(key for key in keys if key[1] >= 0)

    def look_at(self, frame: int, camera: int, image: UInt8 | tuple[int, ...]) -> None:
        """Compare the first image of a camera in a scene with the size that its intrinsics are for.

        There is one warning of each camera at most.

        Args:
            frame: Number of the frame in the index.
            camera: Number of the camera.
            image: The file, ``(num_bytes,)`` uint8, or the height and width of a decoded image.
        """
        scene, image_wh = self._index.scene_of(frame), self._cameras.image_wh
        if (scene, camera) in self._looked_at:
            return
        self._looked_at.add((scene, camera))
        name, token = self._index.camera_names[camera], os.fsdecode(bytes(self._index.frames.token[frame]))
        stated = [0, 0] if image_wh is None else image_wh[scene, camera].tolist()
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

    def _times(self, frame: int, camera: int) -> Int64:
        """Times of all frames of a video; none where they are not known."""
        if self._cameras.frame_time is None or self._cameras.first_time is None:
            return np.zeros(0, np.int64)
        video = self._index.scene_of(frame) * len(self._index.camera_names) + camera
        return self._cameras.frame_time[slice(*self._cameras.first_time[video : video + 2].tolist())]

    def _span(self, frame: int, camera: int) -> str:
        """From when to when there are images of a camera, for messages."""
        times, name = self._times(frame, camera), repr(self._index.camera_names[camera])
        return f"the images of {name} are {span_text(times)}" if len(times) else f"{name} has no video there"
