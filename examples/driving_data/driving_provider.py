"""A data provider for the generated scenes: six cameras, boxes, ego pose, place in the sequence."""

from functools import cached_property
from pathlib import Path
from typing import Any

from driving_scenes import DrivingScenes
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup

__all__ = ["DrivingSceneProvider"]


class DrivingSceneProvider(DataProvider):
    """One sample per frame of a `driving_scenes` data set; C cameras, N boxes::

        cameras[0..C-1]
            image                 UINT8    (num_bytes,), a JPEG file
            name                  STRING   e.g. "FRONT_LEFT"
            intrinsics            FLOAT    (3, 3), pixels
            image_from_ego        FLOAT    (3, 4), ego frame to pixels times depth
        boxes                     in the ego frame: x forward, y left, z up
            centres               FLOAT    (N, 3), metres
            sizes                 FLOAT    (N, 3), length, width, height, metres
            yaws                  FLOAT    (N,), radians, 0 looks forward
            velocities            FLOAT    (N, 2), metres per second over the ground
            categories            INT32    (N,), assigned as names, stored as indices into category_names
            visibilities          FLOAT    (N, C), share of the object that camera c sees; 0 outside its image
        timestamp                 FLOAT64  scalar, seconds
        world_from_ego            FLOAT64  (4, 4)
        is_first_of_sequence      BOOL     scalar
        sequence                  STRING
        frame                     INT32    scalar, place in the sequence

    N differs from frame to frame; `demo_steps.BoxPadder` makes batches of that.

    A pickle holds only the path: a spawned worker opens the data set on the first sample that it loads.

    Args:
        root: The folder of the data set.

    Raises:
        DatasetError: The folder holds no complete data set of this version.
    """

    def __init__(self, root: str | Path) -> None:
        """Look whether there is a data set."""
        self._root = DrivingScenes(root).root

    def __getstate__(self) -> dict[str, Any]:
        """Only the path; what is cached is made again where it is needed."""
        return {"_root": self._root}

    @cached_property
    def _scenes(self) -> DrivingScenes:
        return DrivingScenes(self._root)

    @property
    def category_names(self) -> tuple[str, ...]:
        """By category number."""
        return self._scenes.category_names

    @property
    def image_hw(self) -> tuple[int, int]:
        """Height and width of all images, in pixels."""
        height_px, width_px = self._scenes.settings["image_hw"]
        return int(height_px), int(width_px)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each sequence, in the order of the samples."""
        return self._scenes.sequence_lengths

    def get_number_of_samples(self) -> int:
        """Get the number of frames of all sequences."""
        return self._scenes.num_frames

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        return self._blueprint.get_empty_like_self()

    @cached_property
    def _blueprint(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8, ndim=1)
        camera.add_data_field("name", DALIDataType.STRING)
        camera.add_data_field("intrinsics", DALIDataType.FLOAT, ndim=2)
        camera.add_data_field("image_from_ego", DALIDataType.FLOAT, ndim=2)

        number_of_category = {name: number for number, name in enumerate(self.category_names)}
        boxes = SampleDataGroup()
        boxes.add_data_field("centres", DALIDataType.FLOAT, ndim=2)
        boxes.add_data_field("sizes", DALIDataType.FLOAT, ndim=2)
        boxes.add_data_field("yaws", DALIDataType.FLOAT, ndim=1)
        boxes.add_data_field("velocities", DALIDataType.FLOAT, ndim=2)
        boxes.add_data_field("categories", DALIDataType.INT32, mapping=number_of_category, ndim=1)
        boxes.add_data_field("visibilities", DALIDataType.FLOAT, ndim=2)

        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", camera, len(self._scenes.camera_names))
        sample.add_data_group_field("boxes", boxes)
        sample.add_data_field("timestamp", DALIDataType.FLOAT64, ndim=0)
        sample.add_data_field("world_from_ego", DALIDataType.FLOAT64, ndim=2)
        sample.add_data_field("is_first_of_sequence", DALIDataType.BOOL, ndim=0)
        sample.add_data_field("sequence", DALIDataType.STRING)
        sample.add_data_field("frame", DALIDataType.INT32, ndim=0)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one frame; see the class for its fields."""
        scenes = self._scenes
        frame = scenes.frame(sample_index)
        sample = self.new_sample()
        for index, name in enumerate(scenes.camera_names):
            camera = sample["cameras"][index]
            camera["image"] = frame.jpegs[index]
            camera["name"] = name
            camera["intrinsics"] = frame.intrinsics[index]
            camera["image_from_ego"] = frame.image_from_ego[index]
        boxes = sample["boxes"]
        boxes["centres"] = frame.centres
        boxes["sizes"] = frame.sizes
        boxes["yaws"] = frame.yaws
        boxes["velocities"] = frame.velocities
        boxes["categories"] = [scenes.category_names[number] for number in frame.category_ids]
        boxes["visibilities"] = frame.visibility
        sample["timestamp"] = frame.timestamp_s
        sample["world_from_ego"] = frame.world_from_ego
        sample["is_first_of_sequence"] = frame.is_first_of_sequence
        sample["sequence"] = scenes.sequence_names[frame.sequence_index]
        sample["frame"] = frame.frame_in_sequence
        return sample
