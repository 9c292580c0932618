"""Data providers that do something to the process that loads them."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import HorizontalFlipper
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider
from support.providers import IndexProvider


class ImageProvider(IndexProvider):
    """Sample ``i`` has the number ``i`` and a small image that depends on it."""

    size_hw = (4, 6)

    def __init__(self, num_samples: int = 40) -> None:
        super().__init__(num_samples)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = super().sample_data_structure
        blueprint.add_data_field("image", types.DALIDataType.UINT8)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        pixels = (np.arange(np.prod(self.size_hw) * 3) * (sample_index + 1) % 251).astype(np.uint8)
        header = f"P6 {self.size_hw[1]} {self.size_hw[0]} 255\n".encode()
        sample["image"] = np.frombuffer(header + pixels.tobytes(), np.uint8)
        return sample


class JpegProvider(ImageProvider):
    """The images are JPEG files; those of some samples are cut off, which is noted in a folder."""

    def __init__(self, folder: Path, broken: Collection[int] = ()) -> None:
        super().__init__()
        self.folder = folder
        self.broken = frozenset(broken)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        import cv2  # which most scripts do without

        sample = super().get_data(sample_index)
        image = cv2.imencode(".jpg", cv2.imdecode(np.asarray(sample["image"]), cv2.IMREAD_COLOR))[1].ravel()
        if sample_index in self.broken:
            image = image[:50]
            (self.folder / f"{sample_index}_{time.time_ns()}").write_text(f"{os.getpid()} {time.time()}")
        sample["image"] = image
        return sample


class LargeProvider(ImageProvider):
    """Samples of a megabyte."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        sample["image"] = np.full(2**20, sample_index % 251, np.uint8)
        return sample


class LargeImageProvider(ImageProvider):
    """Its images have a quarter of a megabyte."""

    size_hw = (256, 340)


class DeadlyProvider(ImageProvider):
    """Some samples do something to their process, each so many times; what was done is noted in a folder."""

    def __init__(
        self, folder: Path, fault: str, bad: Mapping[int, int], num_samples: int = 40, pace_s: float = 0.0
    ) -> None:
        """Set up.

        Args:
            folder: An empty folder.
            fault: Name of a method.
            bad: How many times it happens, by sample.
            num_samples: Number of samples.
            pace_s: How long each sample takes at least.
        """
        super().__init__(num_samples)
        self.folder = folder
        self.fault = fault
        self.bad = dict(bad)
        self.pace_s = pace_s

    def get_data(self, sample_index: int) -> SampleDataGroup:
        time.sleep(self.pace_s)
        for number in range(self.bad.get(sample_index, 0)):
            note = self.folder / f"{sample_index}_{number}"
            if not note.exists():
                note.write_text(f"{os.getpid()} {time.time()}")
                getattr(self, self.fault)()
                break
        return super().get_data(sample_index)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def segfault(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()  # which tests switch on
        ctypes.string_at(1)

    def exit(self) -> None:
        os._exit(7)

    def block(self) -> None:
        time.sleep(1000)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def block_unkillably(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)

    def block_in_native_code(self) -> None:
        mutex = (ctypes.c_long * 8)()
        for _ in range(2):  # the second time it waits for ever, and keeps the interpreter's lock
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)

    def eat_memory(self) -> None:
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1)) * (1 << 24))

    def fail(self) -> None:
        raise ValueError("no calibration")


class VideoReadingProvider(DeadlyProvider):
    """Sample 17 reads a frame of a video, once."""

    def __init__(self, folder: Path, frames: VideoFrameDataProvider) -> None:
        super().__init__(folder, "read_frame", {17: 1})
        self.frames = frames

    def read_frame(self) -> None:
        self.frames.get_data(30)


class BlockedSetUp:
    """Stands still when a worker unpickles it, or calls it as its `worker_init_fn`, so many times in all."""

    def __init__(self, folder: Path, fault: str = "block", num_times: int = 1, in_call: bool = False) -> None:
        """Set up.

        Args:
            folder: An empty folder, where it is noted.
            fault: Name of a function below that is called.
            num_times: How many workers.
            in_call: Whether it happens in a call of it, and not where it is unpickled.
        """
        self.folder, self.fault, self.num_times, self.in_call = folder, fault, num_times, in_call

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if not self.in_call:
            self.happen()

    def __call__(self, worker: int) -> None:
        if self.in_call:
            self.happen()

    def happen(self) -> None:
        for number in range(self.num_times):
            with contextlib.suppress(FileExistsError), (self.folder / f"set_up_{number}").open("x") as note:
                note.write(f"{os.getpid()} {time.time()}")
                note.flush()
                globals()[f"_{self.fault}"](self.folder)
                break


def _block(folder: Path) -> None:
    time.sleep(1000)


def _import_slowly(folder: Path) -> None:
    """Import modules that take 0.2 s each, from the folder."""
    sys.path.append(str(folder))
    for path in sorted(folder.glob("slow_*.py")):
        __import__(path.stem)


class BlockedProvider(ImageProvider):
    """A provider with something that stands still when it is unpickled."""

    def __init__(self, blocked: BlockedSetUp) -> None:
        super().__init__()
        self.blocked = blocked


class BlockedStep(HorizontalFlipper):
    """A step with something that stands still when it is unpickled."""

    def __init__(self, blocked: BlockedSetUp) -> None:
        super().__init__("image", prob=0.5)
        self.blocked = blocked


def when_noted(folder: Path) -> float:
    """When the first fault happened (`time.time`)."""
    return min(float(note.read_text().split()[1]) for note in folder.iterdir())
