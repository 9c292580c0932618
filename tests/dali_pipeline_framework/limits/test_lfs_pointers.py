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
from support.arrays import DT, ArrayProvider

from accvlab.dali_pipeline_framework import (
    DALIStructuredOutputIterator,
    DataLoader,
    FaultPolicy,
    FileDataProvider,
    FrameDataProvider,
    ImageDecoder,
    PipelineDefinition,
    VideoFrameDataProvider,
)
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.faults.fault_policy import FailedSamples
from accvlab.dali_pipeline_framework.limits.file_limits import LfsPointerError, require_no_pointer
from accvlab.dali_pipeline_framework.providers.files.columns import Columns
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.sources import FileReader, SequenceReader
from accvlab.dali_pipeline_framework.sources.readers.reader_input import ReaderInput
from accvlab.dali_pipeline_framework.video import VideoStreamInput, index_video

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 1890\n".encode()


def first_batch(run: str) -> Any:
    pointers = ArrayProvider({"image": (DT.UINT8, [np.frombuffer(POINTER, np.uint8)])})
    with DataLoader(pointers, 1, steps=[ImageDecoder("image")], run=run, num_workers=0) as loader:  # type: ignore[arg-type]
        return next(iter(loader))


def in_zip(path: Path, compression: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", compression) as packed:
        packed.writestr("x", POINTER)
    return str(path)


def columns_of(path: Path) -> Columns:
    Columns("list", {"time": np.arange(3)}).save(path.parent)
    (column,) = path.parent.glob("time.*.npy")
    column.rename(path)
    path.write_bytes(POINTER)
    column.symlink_to(path)
    return Columns.open(path.parent, "list")


def decoded_by_dali(reader: ReaderInput) -> Any:
    steps = [] if isinstance(reader, SequenceReader) else [ImageDecoder("data")]
    pipeline = PipelineDefinition(reader, steps).get_dali_pipeline(batch_size=1)
    return [*DALIStructuredOutputIterator(pipeline=pipeline)]


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
    "remote zip": lambda path: Storage(f"zip://::{in_memory(path)}").exists("x"),
    "remote tar": lambda path: FileDataProvider(f"tar://::{in_memory(path)}"),
    "compressed video": lambda path: index_video(f"{in_zip(path.with_suffix('.zip'), zipfile.ZIP_DEFLATED)}/x"),
    "column": columns_of,
    "excluded samples": lambda path: FailedSamples(FaultPolicy(samples="skip", exclude=path)),
    "list of DALI": lambda path: FileReader(file_list=path),
    "files in folders of DALI": lambda path: decoded_by_dali(FileReader(file_root=path.parent.parent)),
    "frames of DALI": lambda path: decoded_by_dali(
        SequenceReader(file_root=path.parent.parent, sequence_length=1)
    ),
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
        *("video in a zip", "compressed video", "column", "list of DALI"),
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
