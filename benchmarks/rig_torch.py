# SPDX-License-Identifier: Apache-2.0
"""The samples of `rig_data` in a data set of PyTorch, decoded in its workers by one of several libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import torch
from rig_data import NUM_SAMPLES, RigSamples
from torch.utils.data import Dataset


def decode_by_opencv(jpeg: Any) -> torch.Tensor:
    image = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    return torch.from_numpy(cv2.cvtColor(image, cv2.COLOR_BGR2RGB, image))


def decode_by_simplejpeg(jpeg: Any) -> torch.Tensor:
    import simplejpeg

    return torch.from_numpy(simplejpeg.decode_jpeg(jpeg.tobytes()))


def decode_by_torchvision(jpeg: Any) -> torch.Tensor:
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.from_numpy(jpeg), ImageReadMode.RGB).permute(1, 2, 0)


DECODERS: dict[str, tuple[str, Callable[[Any], torch.Tensor]]] = {
    "OpenCV": ("cv2", decode_by_opencv),
    "simplejpeg": ("simplejpeg", decode_by_simplejpeg),
    "torchvision": ("torchvision", decode_by_torchvision),
}


class RigDataset(Dataset[dict[str, torch.Tensor]]):
    """A dict of the fields; images decoded, and the first ``num_touched`` small fields doubled."""

    def __init__(self, samples: RigSamples, num_touched: int = 0, decoder: str = "OpenCV") -> None:
        self.samples, self.decoder = samples, decoder
        self.names = samples.names
        self.touched = samples.small_names[:num_touched]

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        decode = DECODERS[self.decoder][1]
        sample = {
            name: decode(array) if name.startswith("image") else torch.from_numpy(array)
            for name, array in zip(self.names, self.samples.load(index), strict=True)
        }
        for name in self.touched:
            sample[name] = sample[name] * 2.0
        return sample


class EncodedRigs(Dataset[list[torch.Tensor]]):
    """The files of the cameras."""

    def __init__(self, samples: RigSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.from_numpy(self.samples.jpeg(index, camera)) for camera in range(self.samples.num_cameras)]
