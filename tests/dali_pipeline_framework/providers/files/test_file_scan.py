"""Which files are found, in which order, with which labels: as DALI's reader finds them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from native_files import native_files
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files.file_scan import (
    DEFAULT_FILE_FILTERS,
    FileTable,
    read_list_file,
)
from accvlab.dali_pipeline_framework.providers.files.storage import Storage

slow_but_fine = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(20, 300))


def make_tree(root: Path, files: list[str]) -> None:
    """Make files whose content is their name; a name that ends with a slash is a folder."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name in files:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(path if name.endswith("/") else os.path.dirname(path), exist_ok=True)
        if not name.endswith("/"):
            with open(path, "wb") as file:
                file.write(os.fsencode(name))


def found(**arguments: Any) -> list[tuple[bytes, list[int]]] | None:
    """What the provider finds, in the form of `native_files`."""
    try:
        provider = FileDataProvider(**arguments)
        samples = [provider.get_data(i) for i in range(provider.get_number_of_samples())]
    except (FileError, SettingError):
        return None
    return [(sample["data"].tobytes(), sample["label"].tolist()) for sample in samples]


_texts = st.text(st.sampled_from("abAB019._- äÄß\uff5e😀[]*?!^\\\n\udcff"), min_size=1, max_size=5)
_names = st.one_of(_texts, st.sampled_from([".h", "a b", "-", "A", "a", "B", "10", "9"])).filter(
    lambda name: name not in (".", "..")
)
# So that several files share a folder.
_classes = st.one_of(st.sampled_from(["a", "B", "b", "ä", ".h"]), _names)
_stems = st.one_of(st.sampled_from(["a", "B", "b", "A", "10", "9", "_", "\uff5e", "\U0001f600", "\udcff"]), _names)
_endings = st.sampled_from([".jpg", ".JPG", ".jpeg", ".WebP", ".txt", "", ".jpg ", ".wav", "jpg"])
_trees = st.lists(
    st.one_of(
        st.tuples(_classes, _stems, _endings).map(lambda parts: f"{parts[0]}/{parts[1]}{parts[2]}"),
        st.tuples(_classes, _stems).map(lambda parts: f"{parts[0]}/{parts[1]}/deep.jpg"),
        _names.map(lambda name: f"{name}/"),
    ),
    min_size=1,
    max_size=12,
)
_patterns = st.one_of(
    st.text(st.sampled_from("aAbB09*?[]!^-\\.ä"), max_size=6),
    st.sampled_from(
        ["*", "*.jpg", "*.JPG", "?*.jpg", "[a-b]*", "[!a]*", "[^A-Z]*", "[[:upper:]]*", ".*", "*[", "Ä*"]
    ),
)


def _consistent(tree: list[str]) -> list[str]:
    """Leave out files where a folder of that name is."""
    folders = {"/".join(name.split("/")[:depth]) for name in tree for depth in range(1, name.count("/") + 1)}
    return [name for name in dict.fromkeys(tree) if name not in folders]


def assert_found_as_by_the_native_reader(**arguments: Any) -> None:
    native = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    expected = native_files(**native)
    assert expected is not None
    assert found(**arguments) == expected


class TestFoldersAgainstNativeReader:
    @slow_but_fine
    @given(
        tree=_trees,
        file_filters=st.none() | st.lists(_patterns, min_size=1, max_size=3),
        dir_filters=st.none() | st.lists(_patterns, min_size=1, max_size=3),
        case_sensitive=st.booleans(),
    )
    @example(["b/1.jpg", "B/2.jpg", "a/10.jpg", "a/9.jpg", "a/A.JPG", "a b/x.jpg", "a-b/x.jpg"], None, None, False)
    @example(["Z/x.jpg", "\udcff/x.jpg", "\uff5e/x.jpg", "\U0001f600/x.jpg", "ﬀ/x.jpg"], None, None, False)
    @example(["c/b.jpg", "c/B.jpg", "c/\uff5e.jpg", "c/\U0001f600.jpg", "c/\udcff.jpg"], None, None, True)
    @example(["empty/", "full/x.jpg", "other/x.txt", "z/.jpg", "z/.h.jpg", ".hidden/x.jpg"], None, None, False)
    @example([], ["*.jpg"], None, True)
    @example([], ["*.JPG"], None, False)
    @example([], ["*\\.jpg"], None, True)
    @example([], ["*.[jJ]PG", "*.j?g"], ["[!a-z]", "a"], True)
    @example([], ["*"], ["b", "Ä"], False)
    @example(["a/x.\u212a"], ["*.k"], None, False)  # the Kelvin sign folds to k
    def test_filters(
        self,
        tmp_path: Path,
        tree: list[str],
        file_filters: list[str] | None,
        dir_filters: list[str] | None,
        case_sensitive: bool,
    ) -> None:
        make_tree(tmp_path / "root", _consistent([*tree, "a/x.jpg", "B/y.JPG", "ä/Ä.jpg", "a/x-y"]))
        filters = {"file_filters": file_filters, "dir_filters": dir_filters}
        given_filters = {name: patterns for name, patterns in filters.items() if patterns is not None}
        arguments: dict[str, Any] = {"case_sensitive_filter": case_sensitive, **given_filters}
        expected = native_files(file_root=str(tmp_path / "root"), **arguments)
        assert found(file_root=tmp_path / "root", **arguments) == expected

    def test_the_default_filters_are_those_of_the_native_reader(self) -> None:
        from nvidia.dali.ops import readers

        shown = readers.File.__init__.__doc__ or readers.File.__doc__ or ""
        for pattern in DEFAULT_FILE_FILTERS:
            assert f"'{pattern}'" in shown
        assert shown.count("'*.") == len(DEFAULT_FILE_FILTERS)

    @pytest.mark.parametrize(
        ("link", "target"),
        [
            ("linked", "../other"),  # a link to a folder is a label folder
            ("loop", "."),
            ("a/l.jpg", "../../other/q.jpg"),
            ("a/l.txt", "nowhere"),
            ("a/loop", "../a"),
        ],
    )
    def test_links(self, tmp_path: Path, link: str, target: str) -> None:
        make_tree(tmp_path / "other", ["q.jpg", "w.png"])
        make_tree(tmp_path / "root", ["a/x.jpg", "z/y.jpg", "top.jpg"])
        (tmp_path / "root" / link).symlink_to(target)
        assert_found_as_by_the_native_reader(file_root=tmp_path / "root")

    @pytest.mark.parametrize("target", ["nowhere", "link"])
    def test_a_link_in_the_root_that_leads_nowhere_is_refused(self, tmp_path: Path, target: str) -> None:
        # Left out, it would shift the labels after it.
        make_tree(tmp_path, ["a/x.jpg"])
        (tmp_path / "link").symlink_to(target)
        assert native_files(file_root=str(tmp_path)) is None
        with pytest.raises(FileError, match=r"The link '.*/link' leads nowhere"):
            FileDataProvider(tmp_path)

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda path: path.symlink_to("nowhere"), "it is a link that leads nowhere"),
            (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
            (lambda path: path.symlink_to("."), "it is a folder"),
            (lambda path: os.mkfifo(path), "it is no regular file"),
        ],
    )
    def test_what_is_no_file_is_listed_and_refused_when_it_is_read(self, tmp_path: Path, make, reason) -> None:
        make_tree(tmp_path, ["a/x.jpg"])
        make(tmp_path / "a" / "l.jpg")
        provider = FileDataProvider(tmp_path)
        assert list(provider.file_table) == ["a/l.jpg", "a/x.jpg"]
        with pytest.raises(FileError, match=f"^The file '.*/a/l.jpg' cannot be read: {reason}"):
            provider.get_data(0)
        assert provider.get_data(1)["data"].tobytes() == b"a/x.jpg"


class TestListsAgainstNativeReader:
    _lines = st.lists(
        st.one_of(
            st.text(st.sampled_from("ab 1\t\r\x0b\x0c-+ä#0"), max_size=8),
            st.tuples(st.text(st.sampled_from("ab \tä1"), min_size=1, max_size=4), st.integers(0, 2**31 - 1)).map(
                lambda parts: f"{parts[0]} {parts[1]}"
            ),
        ),
        max_size=5,
    )

    @slow_but_fine
    @given(
        lines=_lines, end=st.sampled_from(["", "\n", "\r\n", "\n\n"]), separator=st.sampled_from(["\n", "\r\n"])
    )
    def test_lines(self, tmp_path: Path, lines: list[str], end: str, separator: str) -> None:
        root = tmp_path / "root"
        make_tree(root, [])
        with open(tmp_path / "list", "wb") as file:
            file.write((separator.join(lines) + end).encode())
        try:
            table = read_list_file(Storage(tmp_path), "list")
        except SettingError:
            assert native_files(file_root=str(root), file_list=str(tmp_path / "list")) is None
            return
        make_tree(root, list(table))
        assert_found_as_by_the_native_reader(file_root=root, file_list=tmp_path / "list")

    @pytest.mark.parametrize(
        "arguments",
        [
            {"file_list": "list"},
            {"file_list": "lists/list"},
            {"file_list": "lists/list", "file_root": "root"},
            {"file_list": "lists/absolute", "file_root": "nowhere"},
            {"files": ["root/a.jpg", "b c.txt"]},
            {"files": ["a.jpg", "../b c.txt", "a.jpg"], "file_root": "root"},
            {"files": ["a.jpg", "./a.jpg"], "file_root": "root", "labels": [7, -3]},
            {"files": "b c.txt", "labels": 5},
        ],
    )
    def test_where_names_lead(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
    ) -> None:
        make_tree(tmp_path, ["root/a.jpg", "a.jpg", "b c.txt", "lists/a.jpg"])
        (tmp_path / "list").write_text("a.jpg 4\nb c.txt 0")
        (tmp_path / "lists" / "list").write_text("a.jpg 4")
        (tmp_path / "lists" / "absolute").write_text(f"{tmp_path}/a.jpg 4")
        monkeypatch.chdir(tmp_path)
        assert_found_as_by_the_native_reader(**arguments)

    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            (b"a 0\n\nb\nc 2", 3, "expected a file name, white space, and a label .* got 'b'"),
            (b"5", 1, "got '5'"),
            (b"a -1", 1, "got 'a -1'"),
            *((b"a " + label, 1, "got") for label in (b"+3", b"0x10", b"1_0", "٣".encode(), b"\xb2")),
            (b"# comment\na 0", 1, "got '# comment'"),
            (b"x" * 5000 + b" y", 1, r"got 'xxx.*\.\.\."),
        ],
    )
    def test_bad_lines(self, tmp_path: Path, content: bytes, line: int, message: str) -> None:
        (tmp_path / "list").write_bytes(content)
        assert native_files(file_list=str(tmp_path / "list")) is None
        with pytest.raises(SettingError, match=f"/list', line {line}: .*{message}") as caught:
            FileDataProvider(file_list=tmp_path / "list")
        assert len(str(caught.value)) < 500

    def test_differences(self, tmp_path: Path) -> None:
        # What the native reader makes of these cannot be meant.
        make_tree(tmp_path, ["a"])
        path = tmp_path / "list"
        path.write_bytes(b"\xef\xbb\xbfa 3\n")
        assert native_files(file_list=str(path)) is None
        assert found(file_list=path) == [(b"a", [3])]
        too_large = "line 1: a label must be at most 2147483647, got "
        for content, native, message in [
            (b"a 2147483648", [(b"a", [-(2**31)])], f"{too_large}'2147483648'"),
            (b"a " + b"9" * 5000, [(b"a", [-1])], f"{too_large}'999"),
            (b"a 1\0 2", [(b"a", [1])], "line 1: expected"),
            (b"\n \r\n\t\n", None, "/list' names no file"),
        ]:
            path.write_bytes(content)
            assert native_files(file_list=str(path)) == native
            with pytest.raises(SettingError, match=message):
                FileDataProvider(file_list=path)

    def test_a_name_of_any_bytes(self, tmp_path: Path) -> None:
        make_tree(tmp_path, ["ä\udcff\udc80 \x01"])
        (tmp_path / "list").write_bytes("ä".encode() + b"\xff\x80 \x01 7\n")
        assert_found_as_by_the_native_reader(file_list=tmp_path / "list")


class TestNothingFound:
    def test_says_what_was_seen(self, tmp_path: Path) -> None:
        counts = (
            r"It has {} folder\(s\), {} of them matching `dir_filters`, with {} file\(s\) in them, none of which"
        )
        make_tree(tmp_path / "flat", ["a.jpg", "b.jpg"])
        with pytest.raises(SettingError, match=rf"No file is found in '.*/flat': .*{counts.format(0, 0, 0)}"):
            FileDataProvider(tmp_path / "flat")
        make_tree(tmp_path / "texts", ["a/1.txt", "b/2.txt", "b/3"])
        with pytest.raises(
            SettingError, match=rf"{counts.format(2, 2, 3)} matches `file_filters`: \*.jpg, \*.jpeg, "
        ):
            FileDataProvider(tmp_path / "texts")
        with pytest.raises(SettingError, match=counts.format(2, 0, 0)):
            FileDataProvider(tmp_path / "texts", dir_filters="c*")
        make_tree(tmp_path / "above", ["empty/x.txt", "train/cat/1.txt", "train/dog/2.jpg"])
        with pytest.raises(
            SettingError, match=r"Is the root e\.g\. '.*/above/train', with its folders as labels\?$"
        ):
            FileDataProvider(tmp_path / "above")

    def test_missing_and_unreadable_roots(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for argument, name, error, message in [
            ("file_root", "none", FileNotFoundError, r"The folder '.*/none' cannot be read: there is none"),
            ("file_root", "file", NotADirectoryError, r"The folder '.*/file' cannot be read: Not a directory"),
            ("file_list", "none", FileNotFoundError, r"The file '.*/none' cannot be read: there is none"),
            ("file_list", "", IsADirectoryError, "cannot be read: it is a folder"),
        ]:
            with pytest.raises(error, match=message):
                FileDataProvider(**{argument: tmp_path / name})


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "Give `file_root`"),
            ({"files": ["a"], "file_list": "b"}, "by `files` or by `file_list`, got both"),
            ({"file_root": "a", "labels": [1]}, "labels without files"),
            ({"file_list": "a", "labels": [1]}, "labels without files"),
            ({"files": []}, "`files` must name at least one file, got none"),
            ({"files": ["a"], "labels": [1, 2]}, "more labels"),
            ({"files": [5]}, "Name 0 must be a str, bytes or a path, got 5"),
            ({"file_root": ""}, "`file_root` must not be empty"),
            ({"file_root": 5}, "`file_root` must be a str or a Path, got 5"),
            ({"file_list": 5}, "`file_list` must be a str or a Path, got 5"),
            ({"file_root": ".", "file_filters": []}, "`file_filters` must have at least one pattern"),
            ({"file_root": ".", "dir_filters": []}, "`dir_filters` must have at least one pattern"),
            ({"file_root": ".", "file_filters": [5]}, "`file_filters` must be texts such as '[*].jpg', got 5"),
            ({"file_root": ".", "file_filters": ["a\0"]}, "`file_filters` must be texts"),
        ],
    )
    def test_bad_ones_are_named(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            FileDataProvider(**arguments)


names = st.binary(max_size=20).map(os.fsdecode)


class TestTable:
    @given(st.lists(st.tuples(names, st.integers(-(2**31), 2**31 - 1)), max_size=30))
    def test_holds_what_it_was_given(self, entries: list[tuple[str, int]]) -> None:
        table = FileTable.from_names([name for name, _ in entries], [label for _, label in entries])
        assert list(table) == [name for name, _ in entries]
        assert [(table.name(i), table.label(i)) for i in range(len(table))] == entries

    def test_is_immutable_and_named_by_its_counts(self) -> None:
        table = FileTable.from_names(["a", "b"], [7, 3])
        with pytest.raises(ValueError, match="read-only"):
            table.labels[0] = 2  # type: ignore[index]
        assert repr(table) == "FileTable(2 names, labels in [3, 7])"
        assert repr(FileTable.from_names(["a"])) == "FileTable(1 name)"
        for read in (table.name, table.label):
            for index in (-1, 2):
                with pytest.raises(IndexError, match=rf"`index` must be in \[0, 1\], got {index}"):
                    read(index)
        with pytest.raises(SettingError, match="has no labels"):
            FileTable.from_names(["a"]).label(0)

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([1], r"2 name\(s\) and fewer labels"),
            ([], r"2 name\(s\) and fewer labels"),
            ([1, 2, 3], r"2 name\(s\) and more labels"),
            ([0, 0.5], "`labels` must be a whole number"),
            ([0, 2**31], "`labels` must be at most 2147483647"),
        ],
    )
    def test_wrong_labels_are_refused(self, labels: list[Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            FileTable.from_names(["a", "b"], labels)

    @pytest.mark.parametrize(("labels", "label"), [([7], None), (None, 7)])
    def test_a_name_is_added_with_a_label_or_without_as_those_before(self, labels: Any, label: Any) -> None:
        table = FileTable.from_names(["a"], labels)
        with pytest.raises(SettingError, match="Each name of a table has a label, or none has"):
            table.add("b", label)

    @pytest.mark.parametrize("name", [5, "\ud800"])
    def test_what_is_no_name_is_refused(self, name: Any) -> None:
        with pytest.raises(SettingError, match="Name 1 must be a str, bytes or a path"):
            FileTable.from_names(["a", name])
