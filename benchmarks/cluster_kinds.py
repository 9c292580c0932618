# SPDX-License-Identifier: Apache-2.0
"""Samples of the kinds that other machines may load: images of a rig, clips of videos, sweeps of a lidar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.types import DALIDataType
from rig_data import NUM_SAMPLES, RigProvider, RigSamples
from source_data import VIDEO_KINDS, large_picture, make_videos
from step_data import NUM_CAMERAS, write_jpegs

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup, VideoFrameDataProvider, Windows
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, ImageResizer, PipelineStepBase

RIG_HW, CLIP_HW, NUM_FRAMES, NUM_SWEEPS, NUM_POINTS = (256, 704), (224, 224), 32, 10, 30_000
VIDEOS = {(360, 640): 15, (720, 1280): 250}  # height and width, and frames from one key frame to the next


@attrs.frozen
class Kind:
    """What is loaded, and the steps that run where it is loaded; of a ragged field, the name."""

    provider: DataProvider
    steps: Sequence[PipelineStepBase] = ()
    ragged: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """Of a `DataLoader`."""
        return {"steps": self.steps, "run": "workers", "ragged": {self.ragged: "list"} if self.ragged else {}}


class SweepsProvider(DataProvider):
    """Points of the last ten sweeps of a lidar, in the frame of the last one, ``(points, 5)``."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("points", DALIDataType.FLOAT)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        points = np.empty((NUM_SWEEPS, NUM_POINTS, 5), np.float32)
        for age in range(NUM_SWEEPS):
            path = self._paths[(sample_index - age) % len(self._paths)]
            sweep = np.fromfile(path, np.float32).reshape(-1, 5)
            points[age, :, :3] = sweep[:, :3] @ _turn(0.01 * age) + np.float32([0.5 * age, 0, 0])
            points[age, :, 3], points[age, :, 4] = sweep[:, 3], 0.05 * age
        sample = self.sample_data_structure
        sample["points"] = points.reshape(-1, 5)
        return sample


def _turn(angle_rad: float) -> npt.NDArray[np.float32]:
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]], np.float32)


def write_kinds(folder: Path, is_quick: bool = False) -> Mapping[str, Kind]:
    """Write the files of all kinds; what they are is in the names."""
    images = write_jpegs(folder / "images", NUM_CAMERAS * (1 if is_quick else 8))
    rig = RigProvider(RigSamples(images, NUM_CAMERAS))
    kinds = {
        "6 JPEGs of 1600 x 900, to 704 x 256": Kind(rig, [ImageDecoder("image"), _resizer("image", RIG_HW)]),
        "6 JPEGs of 1600 x 900, sent encoded": Kind(rig, ragged="image"),
    }
    for (height, width), every in [*VIDEOS.items()][: 1 if is_quick else None]:
        kind = attrs.evolve(VIDEO_KINDS[0], key_frames_every=(every,))
        num_frames = 40 if is_quick else 600
        root = folder / f"{every}"
        videos = make_videos(root, large_picture(), kind, num_frames, 1 if is_quick else 2, (height, width))
        frames = VideoFrameDataProvider([str(path) for path in videos], image_name="frames")
        clips = Windows(frames, {"frames": range(NUM_FRAMES)}, unit="frames")
        name = f"{NUM_FRAMES} frames of H.264, {width} x {height}, a key frame every {every}, to 224 x 224"
        kinds[name] = Kind(clips, [_resizer("frames", CLIP_HW)])
    sweeps = [folder / f"{number}.bin" for number in range(2 * NUM_SWEEPS)]
    generator = np.random.default_rng(0)
    for path in sweeps:
        generator.normal(size=(NUM_POINTS, 5)).astype(np.float32).tofile(path)
    kinds[f"{NUM_SWEEPS} sweeps of {NUM_POINTS} points"] = Kind(SweepsProvider(sweeps))
    return kinds


def _resizer(name: str, hw: tuple[int, int]) -> PipelineStepBase:
    return ImageResizer(name, output_hw=hw)
