"""`Columns`: named arrays in a folder, whole or not there, whoever writes, reads, or is killed meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.providers import Columns, load_or_make
from accvlab.dali_pipeline_framework.providers.files import columns as columns_module

KIND = "index of a test"
ARRAYS = {
    "pose": np.arange(24.0).reshape(2, 3, 4),
    "name": np.array([b"a.jpg", b"\xff"]),
    "is_key": np.array([True, False]),
    "none": np.zeros((0, 7), np.int32),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
}


def save(folder: Path, arrays: dict[str, Any] | None = None, **notes: Any) -> Path:
    Columns(KIND, arrays or ARRAYS, notes).save(folder)
    return folder


def num_open(folder: Path) -> int:
    """How many files of a folder this process has open."""
    links = []
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # of another thread
            links.append(os.readlink(f"/proc/self/fd/{file}"))
    return sum(link.startswith(str(folder)) for link in links)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_come_back(tmp_path: Path, is_mapped: bool) -> None:
    notes = {"names": ["\xe4", os.fsdecode(b"\xff")], "rate": 1.5, "none": None}
    found = Columns.open(save(tmp_path / "i", **notes), KIND, is_mapped=is_mapped)
    assert found.notes == notes
    assert found.folder == str(tmp_path / "i")
    assert [*found.arrays] == [*ARRAYS]
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert not found.arrays[name].flags.writeable
        np.testing.assert_array_equal(found.arrays[name], array)
        np.testing.assert_array_equal(np.load(*tmp_path.glob(f"i/{name}.*.npy")), array)
    assert num_open(tmp_path) == is_mapped * len(ARRAYS)


def test_what_is_read_is_compared_with_its_checksum(tmp_path: Path) -> None:
    (path,) = save(tmp_path, {"a": np.arange(5)}).glob("a.*.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(FileError, match=r"the content of a\.[0-9a-f]{8}\.npy was changed"):
        Columns.open(tmp_path, KIND, is_mapped=False)


def test_checksum_is_that_of_all_content(tmp_path: Path) -> None:
    written = [
        Columns.open(save(tmp_path / name, {"a": np.array(values)}, x=x), KIND)
        for name, values, x in [("1", [1, 2], 0), ("2", [1, 2], 0), ("3", [1, 3], 0), ("4", [1, 2], 1)]
    ]
    assert written[0].checksum == written[1].checksum
    assert len({one.checksum for one in written}) == 3
    written[1].require(written[0].checksum, KIND)
    with pytest.raises(FileError, match=r"The test in '.*3' was made anew after this process was given it"):
        written[2].require(written[0].checksum, "test")


def test_replaced_columns_are_read_to_the_end_and_other_files_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path, {"a": np.zeros(100_000), "b": np.zeros(3)})
    for name in ("notes.txt", "a.npy", ".hidden"):
        (tmp_path / name).write_text("x")
    before = Columns.open(tmp_path, KIND).arrays["a"]
    save(tmp_path, {"a": np.ones(2)})
    assert before.sum() == 0
    assert Columns.open(tmp_path, KIND).arrays["a"].tolist() == [1, 1]
    (column,) = tmp_path.glob("a.*.npy")
    assert sorted(os.listdir(tmp_path)) == sorted([".hidden", column.name, "a.npy", "header.json", "notes.txt"])


def half_a_column(file: Any, array: Any, **_: Any) -> None:
    file.write(b"half")
    file.flush()
    if array.sum():
        os.kill(os.getpid(), signal.SIGKILL)


def no_header(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("place", ["column", "header"])
def test_of_a_writer_that_is_killed_nothing_is_seen(tmp_path: Path, place: str) -> None:
    def die_while_writing(folder: Path) -> None:
        child = os.fork()
        if child == 0:
            if place == "column":
                columns_module.np.save = half_a_column  # type: ignore[assignment]
            else:
                columns_module.replace_file = no_header  # type: ignore[assignment]
            save(folder, {"a": np.zeros(5), "b": np.ones(5)})
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    new, old = tmp_path / "new", save(tmp_path / "old", {"a": np.ones(2)})
    die_while_writing(new)
    with pytest.raises(FileNotFoundError, match="is no index of a test that can be used"):
        Columns.open(new, KIND)
    die_while_writing(old)
    assert Columns.open(old, KIND).arrays["a"].tolist() == [1, 1]
    for folder in (old, new):
        save(folder, {"a": np.ones(2)})
        assert Columns.open(folder, KIND).arrays["a"].tolist() == [1, 1]
        assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize("has_locks", [True, False])
def test_writers_do_not_disturb_each_other_nor_readers(
    tmp_path: Path, has_locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_locks:
        monkeypatch.setattr(columns_module.FileLock, "acquire", lambda *_, **__: None)
    folder = tmp_path / "index"

    def write_often(value: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            for number in range(60):
                save(folder, {name: np.full(number + 1, value) for name in "ab"}, value=value, size=number + 1)
        except BaseException:
            os._exit(1)
        os._exit(0)

    children = [write_often(value) for value in (1, 2)]
    seen = set()
    while children:
        if (folder / "header.json").exists():
            found = Columns.open(folder, KIND)
            expected = np.full(found.notes["size"], found.notes["value"])
            for name in "ab":
                np.testing.assert_array_equal(found.arrays[name], expected)
            seen.add(found.checksum)
        ended = {child: status for child in children if (status := os.waitpid(child, os.WNOHANG)) != (0, 0)}
        assert not any(status for _, status in ended.values())
        children = [child for child in children if child not in ended]
    assert len(seen) > 1
    if has_locks:
        assert len(os.listdir(folder)) == 3


def damage_column(folder: Path, content: bytes | None) -> None:
    (path,) = folder.glob("pose.*.npy")
    if content is None:
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.write_bytes(content)


def make_pipe(folder: Path) -> None:
    (folder / "header.json").unlink()
    os.mkfifo(folder / "header.json")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: damage_column(folder, None), "mmap length is greater than file size"),
        (lambda folder: damage_column(folder, b"pose" * 50), "magic string is not correct|allow_pickle"),
        (lambda folder: damage_column(folder, b""), "No data left in file|empty"),
        (lambda folder: next(folder.glob("pose.*")).unlink(), "No such file or directory"),
        (lambda folder: (folder / "header.json").unlink(), "No such file or directory"),
        (make_pipe, "it is no regular file"),
        *(
            (lambda folder, text=text: (folder / "header.json").write_text(text), reason)
            for text, reason in (
                ("", "Expecting value"),
                ("[" * 10_000, "its values are nested too deep"),
                ("{}", "'version'"),
                ("[]", "list indices must be"),
                (json.dumps({"version": 7, "kind": KIND}), "'index of a test' and version 7"),
            )
        ),
        (lambda folder: Columns("other", {}).save(folder), "it is of kind 'other'"),
    ],
)
def test_damaged_and_other_columns_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(save(tmp_path / "index"))
    with pytest.raises(
        FileError, match=rf"index' is no index of a test that can be used; make it anew.*: .*{reason}"
    ):
        Columns.open(tmp_path / "index", KIND)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match=r"The index of a test cannot be written to '.*file': File exists"):
        save(tmp_path / "file")
    with pytest.raises(SettingError, match="must be values that JSON can hold"):
        save(tmp_path / "index", x=object())
    with pytest.raises(SettingError, match=r"of objects: \['a'\]"):
        Columns(KIND, {"a": np.array([{}], object)}).save(tmp_path / "index")


def test_a_cache_is_a_local_folder() -> None:
    with pytest.raises(SettingError, match="`index_cache` must be a local folder, got 's3://a'"):
        load_or_make("s3://a", 1, lambda folder: 1, lambda: Columns(KIND, {}))
