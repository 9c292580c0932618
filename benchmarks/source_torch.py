# SPDX-License-Identifier: Apache-2.0
"""The same files read by data sets of PyTorch, decoded by Pillow, OpenCV or PyAV in the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from races import START_METHOD
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[tuple[torch.Tensor, int]]):
    """One image per sample, (H, W, 3) uint8, and its label."""

    def __init__(self, paths: Sequence[str], decode: Callable[[str], Any]) -> None:
        self.paths, self.decode = paths, decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.decode(self.paths[index])), index


class ImageSequences(Dataset[torch.Tensor]):
    """One sequence of images per sample, (F, H, W, 3) uint8."""

    def __init__(self, sequences: Sequence[Sequence[str]], decode: Callable[[str], Any]) -> None:
        self.sequences, self.decode = sequences, decode

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.stack([self.decode(path) for path in self.sequences[index]]))


class VideoClips(Dataset[torch.Tensor]):
    """One clip of a video per sample, (F, H, W, 3) uint8: the file is opened, and sought, for each.

    Times of the frames are taken to be those of a constant rate, which is not so of every video.
    """

    def __init__(self, clips: Sequence[tuple[str, int]], length: int, frames_per_second: int) -> None:
        self.clips, self.length, self.rate = clips, length, frames_per_second

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> torch.Tensor:
        import av

        path, first = self.clips[index]
        with av.open(path) as container:
            stream = container.streams.video[0]
            start = round(first / self.rate / stream.time_base) + (stream.start_time or 0)
            container.seek(start, stream=stream)
            frames = []
            for frame in container.decode(stream):
                if frame.pts >= start:
                    frames.append(frame.to_ndarray(format="rgb24"))
                if len(frames) == self.length:
                    break
        return torch.from_numpy(np.stack(frames))


def decode_by_pillow(path: str) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        return np.array(image.convert("RGB"))


def decode_by_opencv(path: str) -> Any:
    import cv2

    return cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)


def torch_loader(dataset: Dataset[Any], batch_size: int, *, num_workers: int, shuffle: bool) -> DataLoader[Any]:
    if num_workers == 0:
        return DataLoader(dataset, batch_size, shuffle=shuffle, drop_last=True)
    return DataLoader(
        dataset,
        batch_size,
        shuffle=shuffle,
        num_workers=num_workers,
        multiprocessing_context=START_METHOD,
        persistent_workers=True,
        drop_last=True,
    )
