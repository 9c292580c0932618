"""What native readers look at before DALI does: it waits for pipes for ever, and cuts videos short in silence."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from nvidia.dali import tfrecord as tfrec
from nvidia.dali import types
from support.reader_data import frame_folders, numbered_files, record_file, tar_archive, video
from wds2idx import IndexCreator

from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.sources import (
    CocoReader,
    FileReader,
    NumpyReader,
    ReaderInput,
    SequenceReader,
    TFRecordReader,
    VideoReader,
    WebDatasetReader,
)
from accvlab.dali_pipeline_framework.sources.readers import reader_files


def listed(folder: Path, *lines: str) -> Path:
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    return folder / "list"


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def annotations(folder: Path, name: str) -> Path:
    content = {"images": [{"id": 1, "file_name": name}], "annotations": [], "categories": []}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder / "annotations.json"


def records(folder: Path, **arguments: object) -> ReaderInput:
    path, index = record_file(folder / "records", 2)
    features = {"number": tfrec.FixedLenFeature((), tfrec.int64, 0)}
    return TFRecordReader(**{"path": path, "index_path": index, "features": features, **arguments})


# With a pipe at `name`, in a folder that has a folder "label" with a file "0000.jpg" in it.
PIPES: list[tuple[str, Callable[[Path], ReaderInput]]] = [
    ("label/x.jpg", lambda root: FileReader(file_root=root)),
    ("x", lambda root: FileReader(files=["label/0000.jpg", "x"], file_root=root)),
    ("x", lambda root: FileReader(file_list=listed(root, "label/0000.jpg 0", "", "x 1"))),
    ("a b", lambda root: FileReader(file_list=listed(root / "label", "a b 1"), file_root=root)),
    ("x", lambda root: FileReader(file_list=root / "x")),
    ("label/x.JPG", lambda root: SequenceReader(file_root=root, sequence_length=1)),
    ("x.npy", lambda root: NumpyReader(files=[root / "x.npy"])),
    ("x.npy", lambda root: NumpyReader(files=[root / "x.npy"], dtype="f4")),
    ("x.npy", lambda root: NumpyReader(file_list=listed(root, "x.npy"))),
    ("x.mp4", lambda root: VideoReader(filenames=[root / "x.mp4"], sequence_length=1)),
    ("x.mp4", lambda root: VideoReader(file_list=listed(root, f"{root}/x.mp4 0"), sequence_length=1)),
    ("label/x.mp4", lambda root: VideoReader(file_root=root, sequence_length=1)),
    ("label/x", lambda root: CocoReader(file_root=root, annotations_file=annotations(root, "label/x"))),
    ("x\n", lambda root: CocoReader(file_root=root, annotations_file=annotations(root, "x\n"))),
    ("x", lambda root: CocoReader(file_root=root, annotations_file=root / "x")),
    ("x", lambda root: WebDatasetReader(paths=[root / "x"], ext="bin")),
    ("x", lambda root: WebDatasetReader(paths=tar_archive(root / "a.tar", 1), index_paths=[root / "x"], ext="a")),
    ("x", lambda root: records(root, path=root / "x")),
    ("x", lambda root: records(root, index_path=root / "x")),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("name", "make"), PIPES)
def test_pipes_are_refused(tmp_path: Path, name: str, make: Callable[[Path], ReaderInput]) -> None:
    numbered_files(tmp_path, {"label": 1})
    path = pipe(tmp_path / name)
    with pytest.raises(SettingError, match=r"regular file|is not a file") as caught:
        make(tmp_path)
    assert str(path)[:-1] in str(caught.value)


def test_sockets_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("socket", "/dev/zero"):
            with pytest.raises(SettingError, match=f"1 of its files: '{path}' is no regular file, but a pipe, a"):
                FileReader(files=[path])


def test_all_files_that_cannot_be_read_are_named_together() -> None:
    both = "2 of its files: 'gone.jpg' does not exist, '/dev/zero' is no regular file, but a pipe, a socket or"
    with pytest.raises(SettingError, match=both):
        FileReader(files=["gone.jpg", "/dev/zero"])


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


def test_what_dali_does_not_read_may_be_anything(tmp_path: Path) -> None:
    root = frame_folders(tmp_path / "root", {"0": 2})
    pipe(root / "pipe")
    pipe(root / "0" / "pipe.txt")
    (root / "0" / "link.png").symlink_to("00000.png")
    FileReader(file_root=root)
    SequenceReader(file_root=root, sequence_length=1)


class TestVideosThatBreakOff:
    def cut(self, path: Path, num_bytes: int | None = None) -> Path:
        """Leave half of a video, or leave out its last bytes."""
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if num_bytes is None else content[:-num_bytes])
        return path

    @pytest.mark.parametrize("way", ["filenames", "file_list", "file_root"])
    def test_are_refused(self, tmp_path: Path, way: str) -> None:
        (tmp_path / "root" / "0").mkdir(parents=True)
        whole = video(tmp_path / "root" / "0" / "whole.webm", 20)
        broken = self.cut(video(tmp_path / "root" / "0" / "broken.webm", 20))
        where = {
            "filenames": [whole, broken],
            "file_list": listed(tmp_path, f"{whole} 0", f"{broken} 1"),
            "file_root": tmp_path / "root",
        }
        with pytest.raises(VideoError, match=r"broken.webm' is incomplete \(\d+ bytes are missing at its end"):
            VideoReader(**{way: where[way]}, sequence_length=2)
        broken.unlink()
        VideoReader(filenames=[whole], sequence_length=2)

    def test_so_are_those_that_must_not_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = video(tmp_path / "a.webm", 5)
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs the tests may read all
        with pytest.raises(FileError, match=r"Cannot open the video '.*/a.webm': Permission denied") as caught:
            VideoReader(filenames=[path], sequence_length=2)
        assert isinstance(caught.value, PermissionError)

    def test_all_of_them_are_named(self, tmp_path: Path) -> None:
        paths = [self.cut(video(tmp_path / f"{number}.webm", 30)) for number in range(7)]
        with pytest.raises(VideoError, match=r"(?s)^7 of 7 videos cannot be used:.*4.webm.*\n  - and 2 more$"):
            VideoReader(filenames=paths, sequence_length=2)

    def test_a_file_that_lacks_what_is_behind_the_last_frame_is_fine(self, tmp_path: Path) -> None:
        VideoReader(filenames=[self.cut(video(tmp_path / "a.webm", 10), 4)], sequence_length=2)

    def test_without_pyav_there_is_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def missing(path: str) -> None:
            raise SettingError("PyAV is missing.")

        path = self.cut(video(tmp_path / "a.webm", 30))
        monkeypatch.setattr(reader_files, "index_video", missing)
        caplog.set_level(logging.WARNING)
        VideoReader(filenames=[path], sequence_length=2)
        assert f"{str(path)!r} lacks " in caplog.text


def write_archive(path: Path, numbers: Iterable[int]) -> Path:
    """Write an archive with a file for each number, of as many bytes."""
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            entry = tarfile.TarInfo(f"{number}.bin")
            entry.size = number
            archive.addfile(entry, io.BytesIO(bytes(number)))
    return path


def test_an_index_of_an_archive_that_was_written_again_is_refused(tmp_path: Path) -> None:
    archive, index = write_archive(tmp_path / "a.tar", range(1, 200)), tmp_path / "a.idx"
    with IndexCreator(str(archive), str(index), verbose=False) as creator:
        creator.create_index()
    WebDatasetReader(paths=archive, index_paths=index, ext="bin")
    write_archive(archive, range(199, 0, -1))
    message = r"The index '.*a\.idx' is not one of '.*a\.tar': at byte 512 there is nothing of 1 bytes.*`wds2idx`"
    with pytest.raises(SettingError, match=message):
        WebDatasetReader(paths=[archive], index_paths=[index], ext="bin")


def test_an_index_of_other_records_is_refused(tmp_path: Path) -> None:
    path, index = record_file(tmp_path / "records", 200)
    given = {"index_path": index, "dtypes": {"number": types.DALIDataType.INT64}}
    features = {"number": tfrec.FixedLenFeature((), tfrec.int64, 0)}
    assert TFRecordReader(path=path, features=features, **given).fields
    path.write_bytes(path.read_bytes()[8:])
    with pytest.raises(SettingError, match=r"at byte 0 there is nothing of \d+ bytes.*`tfrecord2idx`"):
        TFRecordReader(path=path, features=features, **given)
