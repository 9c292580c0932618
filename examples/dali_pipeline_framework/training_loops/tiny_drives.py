"""What the training loops of this folder share: a small data set of drives, its loaders, and when they end."""

import argparse
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    ImageDecoder,
    ImageResizeCropFlipper,
    PhotoMetricDistorter,
    SampleDataGroup,
)

__all__ = [
    "NUM_EPOCHS",
    "STEPS_BETWEEN_CHECKPOINTS",
    "TOTAL_BATCH_SIZE",
    "TinyDrives",
    "is_counted",
    "parse_arguments",
    "training_loader",
    "validation_loader",
]

NUM_EPOCHS = 3
TOTAL_BATCH_SIZE = 4  # over all ranks
STEPS_BETWEEN_CHECKPOINTS = 4

_NUM_CAMERAS = 2
_HEIGHT_PX, _WIDTH_PX = 40, 80
_NUM_TRAINING_FRAMES, _NUM_VALIDATION_FRAMES = 26, 10


class TinyDrives(DataProvider):
    """Frames of two small cameras, drawn when they are asked for::

        cameras[0..1]
            image        UINT8   (num_bytes,), a JPEG file
        steering         FLOAT64 scalar, in [-1, 1], a multiple of 1/8

    Args:
        num_frames: How many frames there are.
    """

    def __init__(self, num_frames: int) -> None:
        """Keep how many there are."""
        self._num_frames = num_frames

    def get_number_of_samples(self) -> int:
        """Get the number of frames."""
        return self._num_frames

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """An empty frame."""
        camera = SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8, ndim=1)
        frame = SampleDataGroup()
        frame.add_data_group_field_array("cameras", camera, _NUM_CAMERAS)
        frame.add_data_field("steering", DALIDataType.FLOAT64, ndim=0)
        return frame

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Draw a frame: a road that bends by as much as the steering says, below a sky with noise."""
        random = np.random.default_rng(sample_index)
        frame = self.new_sample()
        frame["steering"] = steering = int(random.integers(-8, 9)) / 8
        for number in range(_NUM_CAMERAS):
            pixels = random.integers(90, 166, (_HEIGHT_PX, _WIDTH_PX, 3), np.uint8)
            vanishing_point = int(_WIDTH_PX * (0.5 + 0.4 * steering)) - 6 * number, _HEIGHT_PX // 3
            road = np.array([vanishing_point, (_WIDTH_PX - 10, _HEIGHT_PX), (10, _HEIGHT_PX)], np.int32)
            cv2.fillPoly(pixels, [road], (40, 40, 40))
            frame["cameras"][number]["image"] = cv2.imencode(".jpg", pixels)[1]
        return frame


def training_loader(batch_size: int, num_workers: int = 1, **arguments: Any) -> DataLoader:
    """Shuffled frames, with random crops, mirroring and colours.

    Args:
        batch_size: Samples per batch on this rank.
        num_workers: Worker processes.
        **arguments: Other arguments of `DataLoader`.
    """
    steps = [
        ImageDecoder("image", use_device_mixed=True),
        ImageResizeCropFlipper("image", output_hw=(32, 64), scale_range=(0.8, 1.2)),
        PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], enforce_process_on_gpu=False),
    ]
    return _loader(_NUM_TRAINING_FRAMES, batch_size, num_workers, steps, shuffle=True, seed=7, **arguments)


def validation_loader(batch_size: int, num_workers: int = 1, **arguments: Any) -> DataLoader:
    """All frames in their order, as they are; the last batch is padded, so that all ranks have equally many.

    Args:
        batch_size: Samples per batch on this rank.
        num_workers: Worker processes.
        **arguments: Other arguments of `DataLoader`.
    """
    steps = [
        ImageDecoder("image", use_device_mixed=True),
        ImageResizeCropFlipper(
            "image", output_hw=(32, 64), scale_range=None, flip_prob=0, crop_x_range=(0.5, 0.5)
        ),
    ]
    return _loader(_NUM_VALIDATION_FRAMES, batch_size, num_workers, steps, last_batch="pad", **arguments)


def _loader(num_frames: int, batch_size: int, num_workers: int, steps: list[Any], **arguments: Any) -> DataLoader:
    return DataLoader(
        TinyDrives(num_frames),
        batch_size,
        steps=steps,
        num_workers=num_workers,
        num_threads=1,
        stack_arrays=True,  # batch["cameras"]["image"]: (batch, cameras, height, width, 3)
        context_name="context",
        **arguments,
    )


def is_counted(batch: Any) -> Any:
    """(batch,) bool: which samples are not padding."""
    return batch["context"]["is_padding"] == 0


def parse_arguments() -> argparse.Namespace:
    """Get the folder for checkpoints and the log, and how many worker processes a loader has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("training_loop"), help="for checkpoints and the log")
    parser.add_argument("--num-workers", type=int, default=1, help="worker processes per loader")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return arguments
