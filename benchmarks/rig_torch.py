# SPDX-License-Identifier: Apache-2.0
"""The samples of `rig_data` in a data set of PyTorch, decoded in its workers."""

from __future__ import annotations

from typing import Any

import cv2
import simplejpeg
import torch
from rig_data import NUM_SAMPLES, RigSamples
from torch.utils.data import Dataset


def decode_by_opencv(jpeg: Any) -> torch.Tensor:
    image = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    return torch.from_numpy(cv2.cvtColor(image, cv2.COLOR_BGR2RGB, image))


def decode_by_simplejpeg(jpeg: Any) -> torch.Tensor:
    return torch.from_numpy(simplejpeg.decode_jpeg(jpeg.tobytes()))


DECODERS = {"OpenCV": decode_by_opencv, "simplejpeg": decode_by_simplejpeg}


class RigDataset(Dataset[dict[str, torch.Tensor]]):
    """A dict of the fields; images decoded."""

    def __init__(self, samples: RigSamples, decoder: str) -> None:
        self.samples, self.decoder = samples, decoder

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        decode = DECODERS[self.decoder]
        return {
            name: decode(array) if name.startswith("image") else torch.from_numpy(array)
            for name, array in zip(self.samples.names, self.samples.load(index), strict=True)
        }


class EncodedRigs(Dataset[list[torch.Tensor]]):
    """The files of the cameras."""

    def __init__(self, samples: RigSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.from_numpy(self.samples.jpeg(index, camera)) for camera in range(self.samples.num_cameras)]
