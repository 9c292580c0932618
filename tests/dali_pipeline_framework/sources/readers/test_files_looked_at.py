"""What native readers look at before DALI does, which waits for pipes for ever."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from support.reader_data import numbered_files
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.sources import FileReader, ReaderInput, SequenceReader


def listed(folder: Path, *lines: str) -> Path:
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    return folder / "list"


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


# With a pipe at `name`, in a folder that has a folder "label" with a file "0000.jpg" in it.
PIPES: list[tuple[str, Callable[[Path], ReaderInput]]] = [
    ("label/x.jpg", lambda root: FileReader(file_root=root)),
    ("x", lambda root: FileReader(files=["label/0000.jpg", "x"], file_root=root)),
    ("x", lambda root: FileReader(file_list=listed(root, "label/0000.jpg 0", "", "x 1"))),
    ("a b", lambda root: FileReader(file_list=listed(root / "label", "a b 1"), file_root=root)),
    ("x", lambda root: FileReader(file_list=root / "x")),
    ("label/x.JPG", lambda root: SequenceReader(file_root=root, sequence_length=1)),
]


@pytest.mark.parametrize(("name", "make"), PIPES)
def test_pipes_are_refused(tmp_path: Path, name: str, make: Callable[[Path], ReaderInput]) -> None:
    numbered_files(tmp_path, {"label": 1})
    path = pipe(tmp_path / name)
    with pytest.raises(SettingError, match=r"regular file|is not a file") as caught:
        make(tmp_path)
    assert str(path)[:-1] in str(caught.value)


def test_all_files_that_cannot_be_read_are_named_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    words = (
        "'gone.jpg' does not exist, 'socket' is no regular file, but a pipe, a socket or ..., '/dev/zero' is no"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert_refused(lambda: FileReader(files=["gone.jpg", "socket", "/dev/zero"]), f"3 of its files: {words}")


def test_folders_and_lists_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    root = numbered_files(tmp_path / "root", {"a": 1})
    (root / "loop").symlink_to("loop")
    with pytest.raises(FileError, match=r"fn.readers.file cannot read '.*/root/loop': Too many levels of"):
        FileReader(file_root=root)


@pytest.mark.parametrize("way", ["files", "file_list"])
def test_files_that_were_named_and_cannot_be_read_are_refused_at_once(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = numbered_files(tmp_path, {"label": 2})
    names = ["label/0000.jpg", "label/0001.jpg", "gone.jpg", *(f"{number}.jpg" for number in range(5))]
    given = {"files": names} if way == "files" else {"file_list": listed(root, *(f"{name} 0" for name in names))}
    monkeypatch.setattr(os, "access", lambda path, mode: path.endswith("0000.jpg"))  # root may read all files
    with pytest.raises(SettingError) as caught:
        FileReader(file_root=root, **given)
    assert "cannot read 7 of its files: " in str(caught.value)
    assert f"'{root}/label/0001.jpg' must not be read (permissions), '{root}/gone.jpg' does" in str(caught.value)
    assert "'2.jpg' does not exist and 2 more. Leave them out" in str(caught.value).replace(f"{root}/", "")
