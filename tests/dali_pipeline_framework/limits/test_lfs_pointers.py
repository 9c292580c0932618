"""Files in place of which there are pointers, as after `git clone` without Git LFS, git-annex or Xet."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    FileDataProvider,
    FrameDataProvider,
    ImageDecoder,
    SampleDataGroup,
    VideoFrameDataProvider,
)
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.limits.file_limits import LfsPointerError, require_no_pointer
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.sources import (
    FileReader,
)
from accvlab.dali_pipeline_framework.video import VideoStreamInput, index_video

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 1890\n".encode()


class Pointers(DataProvider):
    """Reads files itself."""

    def get_number_of_samples(self) -> int:
        return 1

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("image", DALIDataType.UINT8, ndim=1)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["image"] = POINTER
        return sample


def first_batch(run: str) -> Any:
    with DataLoader(Pointers(), 1, steps=[ImageDecoder("image")], run=run, num_workers=0) as loader:  # type: ignore[arg-type]
        return next(iter(loader))


def in_zip(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x", POINTER)
    return str(path)


def in_memory(path: Path) -> str:
    with fsspec.open(f"memory:/{path}", "wb") as file:
        file.write(path.read_bytes())
    return f"memory:/{path}"


# Each with a pointer at the path.
READERS: dict[str, Callable[[Path], object]] = {
    "file": lambda path: Storage(path.parent).read_bytes(path.name),
    "open file": lambda path: Storage(path.parent).open_binary(path.name),
    "remote file": lambda path: Storage("").read_bytes(in_memory(path)),
    "sample": lambda path: FileDataProvider(files=[path]).get_data(0),
    "list": lambda path: FileDataProvider(file_list=path),
    "frame": lambda path: FrameDataProvider(path.parent.parent).get_data(0),
    "zip": lambda path: Storage(f"zip://::{path}").read_bytes("x"),
    "tar": lambda path: Storage(f"tar://::{path}").read_bytes("x"),
    "member": lambda path: Storage(f"zip://::{in_zip(path)}").read_bytes("x"),
    "video": lambda path: VideoFrameDataProvider([path]),
    "video in a zip": lambda path: index_video(f"{in_zip(path.with_suffix('.zip'))}/x"),
    "remote video": lambda path: index_video(in_memory(path)),
    "bytes of a video": lambda path: index_video(path.read_bytes()),
    "fed video": lambda path: VideoStreamInput(sequence_length=1).feed(path),
    "image in the graph": lambda path: first_batch("graph"),
    "image on arrays": lambda path: first_batch("workers"),
    "named files of DALI": lambda path: FileReader(files=[path]),
}


@pytest.mark.parametrize("name", READERS)
def test_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / "frames" / "camera" / "0.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(POINTER)
    message = (
        r"[Ii]t is a pointer of Git LFS, 129 bytes of text in place of the file\. Fetch .*: `git lfs pull` in"
    )
    with pytest.raises(FrameworkError, match=message) as caught:
        READERS[name](path)
    assert (os.fspath(path) in str(caught.value)) or name in (
        *("image in the graph", "image on arrays", "bytes of a video"),
        "video in a zip",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTER.replace(b"\n", b"\r\n"), "Git LFS, 132 bytes .*`git lfs pull`"),
        (b"\xef\xbb\xbf" + POINTER, "Git LFS, 132 bytes .*`git lfs pull`"),
        (POINTER.replace(b"git-lfs", b"hawser"), "Git LFS, 128 bytes .*`git lfs pull`"),
        (b"/annex/objects/SHA256E-s9--ab.jpg\n", "git-annex, 34 bytes .*`git annex get`"),
        (b"../../.git/annex/objects/x1/SHA256E-s9--ab.jpg", "git-annex, 46 bytes .*`git annex get`"),
        (b"# xet version 0\nfilesize = 9\nhash = 'ab'\n", "Xet, 41 bytes .*`hf download`"),
    ],
)
def test_of_other_stores_are_refused_too(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "0.jpg"
    path.write_bytes(content)
    with pytest.raises(FrameworkError, match=message):
        FileDataProvider(files=[path]).get_data(0)
    with pytest.raises(FrameworkError, match=message):
        index_video(content)


def test_other_texts_are_none() -> None:
    annex = b"see /annex/objects/x", b"annex/objects/x\nand more"
    for content in (
        *annex,
        b"",
        POINTER[:42],
        POINTER[1:],
        POINTER.replace(b"v1\n", b"v10\n"),
        POINTER + bytes(1000),
    ):
        require_no_pointer(content)
    with pytest.raises(LfsPointerError):
        require_no_pointer(np.frombuffer(POINTER, np.uint8).data)
