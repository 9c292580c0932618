# SPDX-License-Identifier: Apache-2.0
"""`LeRobotDataset` in a loader of PyTorch, where its packages can be imported."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from races import START_METHOD
from torch.utils.data import DataLoader

LIBRARIES = "ACCVLAB_BENCH_LIBRARIES"


def with_libraries(folder: Path) -> None:
    """Start this program again, so that TorchCodec finds the libraries of FFmpeg that PyAV brings along."""
    import av

    if os.environ.get(LIBRARIES) or not has_lerobot():
        return
    for library in Path(av.__file__).parent.with_name("av.libs").glob("lib*.so.*"):
        name, _, version = library.name.partition(".so.")
        link = folder / f"{name.rpartition('-')[0]}.so.{version.partition('.')[0]}"
        if not link.exists():
            link.symlink_to(library)
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, LIBRARIES: str(folder), "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def has_lerobot() -> bool:
    return importlib.util.find_spec("lerobot") is not None


class _StandIn(types.ModuleType):
    """Any name is a class: LeRobot imports TorchVision for augmentations, which are not used here."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (torch.nn.Module,), {"__init__": lambda self, *_, **__: torch.nn.Module.__init__(self)})


def _stand_in_for_torchvision() -> None:
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError, OSError):  # the wheel is for PyTorch with CUDA
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for part in (
            "",
            ".io",
            ".transforms",
            ".transforms.functional",
            ".transforms.v2",
            ".transforms.v2.functional",
        ):
            name = f"torchvision{part}"
            module = sys.modules[name] = _StandIn(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


class Rows(torch.utils.data.Dataset[Any]):
    """`LeRobotDataset`, opened in each process."""

    def __init__(self, root: Path, windows: Mapping[str, Sequence[float]]) -> None:
        self._root, self._windows = root, {name: [*offsets] for name, offsets in windows.items()}
        self._opened: Any = None
        self._length = len(self._rows)

    @property
    def _rows(self) -> Any:
        if self._opened is None:
            _stand_in_for_torchvision()
            from lerobot.datasets.lerobot_dataset import LeRobotDataset

            self._opened = LeRobotDataset("drives/local", root=self._root, delta_timestamps=self._windows)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        return self._rows[number]


def torch_loader(root: Path, windows: Mapping[str, Sequence[float]], batch_size: int, num_workers: int) -> Any:
    return DataLoader(
        Rows(root, windows),
        batch_size,
        shuffle=True,
        num_workers=num_workers,
        multiprocessing_context=START_METHOD if num_workers else None,
        persistent_workers=num_workers > 0,
    )
