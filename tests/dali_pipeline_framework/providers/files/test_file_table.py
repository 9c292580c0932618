"""`FileTable`: a list of names that is kept in a few arrays."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.providers.files.file_table import FileTable

names = st.binary(max_size=20).map(os.fsdecode)
labelled = st.lists(st.tuples(names, st.integers(-(2**31), 2**31 - 1)), max_size=30)


def table_of(entries: list[tuple[str, int]]) -> FileTable:
    return FileTable.from_names([name for name, _ in entries], [label for _, label in entries])


class TestTable:
    @given(labelled)
    def test_holds_what_it_was_given(self, entries: list[tuple[str, int]]) -> None:
        table = table_of(entries)
        assert list(table) == [name for name, _ in entries]
        assert [(table.name(i), table.label(i)) for i in range(len(table))] == entries
        assert [table.name_bytes(i) for i in range(len(table))] == [os.fsencode(name) for name, _ in entries]

    @given(labelled, labelled)
    def test_equality_is_that_of_the_entries(
        self, one: list[tuple[str, int]], other: list[tuple[str, int]]
    ) -> None:
        assert (table_of(one) == table_of(other)) == (one == other)
        assert (table_of(one).digest() == table_of(other).digest()) == (one == other)
        assert hash(table_of(one)) == hash(table_of(list(one)))

    def test_names_that_share_their_bytes_differ(self) -> None:
        assert FileTable.from_names(["ab", "c"]) != FileTable.from_names(["a", "bc"])
        assert FileTable.from_names(["ab"]) != FileTable.from_names(["ab"], [0])
        assert FileTable.from_names(["ab"]) != ["ab"]

    def test_digest_is_pinned(self) -> None:
        # It stands in the states of loaders.
        assert FileTable.from_names(["a.jpg", "ä"], [0, 1]).digest() == "77a46a95347cd17b"

    def test_iteration_crosses_its_chunks(self) -> None:
        count = 3 * 65536 + 5
        assert list(FileTable.from_names(map(str, range(count)))) == [str(i) for i in range(count)]

    def test_is_immutable(self) -> None:
        table = FileTable.from_names(["a"], [1], notes={"x": 1})
        with pytest.raises(ValueError, match="read-only"):
            table.labels[0] = 2  # type: ignore[index]
        with pytest.raises(TypeError):
            table.notes["x"] = 2  # type: ignore[index]

    def test_repr(self) -> None:
        assert repr(FileTable.from_names(["a"])) == "FileTable(1 name)"
        assert repr(FileTable.from_names(["a", "b"], [7, 3])) == "FileTable(2 names, labels in [3, 7])"


class TestMemory:
    def test_a_name_costs_its_bytes_and_a_few_more(self) -> None:
        count = examples(30_000, 100_000)
        gc.collect()
        tracemalloc.start()
        table = FileTable.from_names((f"folder/{i:08}.jpg" for i in range(count)), iter(range(count)))
        kept, peak = tracemalloc.get_traced_memory()
        assert len(table) == count
        tracemalloc.stop()
        assert kept / count < 19 + 8 + 4 + 7  # growing buffers are up to an eighth larger
        assert peak / count < 80

    def test_a_mapped_table_is_pickled_as_its_path(self, tmp_path: Path) -> None:
        table = FileTable.from_names(map(str, range(10_000)))
        table.save(tmp_path / "names")
        assert len(pickle.dumps(FileTable.load(tmp_path / "names"))) < 300
        assert len(pickle.dumps(table)) > 100_000


class TestFile:
    @given(entries=labelled)
    def test_comes_back(self, tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, int]]) -> None:
        path = tmp_path_factory.getbasetemp() / "names"
        table = table_of(entries)
        table.save(path)
        loaded = FileTable.load(path)
        assert list(loaded) == list(table)
        assert np.array_equal(loaded.labels, table.labels) if entries else loaded.labels is None
        assert loaded == table
        assert loaded.folder == str(path)
        assert pickle.loads(pickle.dumps(loaded)) == table

    def test_notes_come_back(self, tmp_path: Path) -> None:
        notes = {"classes": ["ä", "b"], "time": None}
        FileTable.from_names(["a"], notes=notes).save(tmp_path / "names")
        assert FileTable.load(tmp_path / "names").notes == notes
        assert pickle.loads(pickle.dumps(FileTable.from_names(["a"], notes=notes))).notes == notes

    def test_another_process_maps_it(self, tmp_path: Path) -> None:
        FileTable.from_names(["ä\udcff"], [3]).save(tmp_path / "names")
        content = pickle.dumps(FileTable.load(tmp_path / "names"))
        script = "import pickle, sys; t = pickle.load(sys.stdin.buffer); print(ascii(t.name(0)), t.label(0))"
        done = subprocess.run([sys.executable, "-c", script], input=content, capture_output=True, check=True)
        assert done.stdout.decode().split() == [r"'\xe4\udcff'", "3"]

    def test_a_table_that_was_replaced_on_its_way_to_a_worker_is_refused(self, tmp_path: Path) -> None:
        FileTable.from_names(["a"]).save(tmp_path / "names")
        content = pickle.dumps(FileTable.load(tmp_path / "names"))
        FileTable.from_names(["b"]).save(tmp_path / "names")
        with pytest.raises(FileError, match=r"table of names in '.*names' was made anew after this process"):
            pickle.loads(content)

    def test_a_table_that_was_damaged_on_its_way_to_a_worker_is_refused(self, tmp_path: Path) -> None:
        FileTable.from_names(["a", "bb"], [5, 6]).save(tmp_path / "names")
        content = pickle.dumps(FileTable.load(tmp_path / "names"))
        (path,) = tmp_path.glob("names/names.*.npy")
        path.write_bytes(path.read_bytes().replace(b"abb", b"xbb"))
        with pytest.raises(FileError, match=r"names' is no table of names .* the content of names.* was changed"):
            pickle.loads(content)

    def test_notes_must_be_json(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match="must be values that JSON can hold"):
            FileTable.from_names(["a"], notes={"x": object()}).save(tmp_path / "names")


class TestBadInput:
    def test_no_such_name(self) -> None:
        table = FileTable.from_names(["a"], [1])
        for index in (-1, 1):
            with pytest.raises(IndexError, match=rf"`index` must be in \[0, 0\], got {index}"):
                table.name(index)
            with pytest.raises(IndexError):
                table.label(index)

    def test_no_labels(self) -> None:
        with pytest.raises(SettingError, match="has no labels"):
            FileTable.from_names(["a"]).label(0)

    @pytest.mark.parametrize(("labels", "word"), [([1], "fewer"), ([1, 2, 3], "more"), ([], "fewer")])
    def test_another_number_of_labels(self, labels: list[int], word: str) -> None:
        with pytest.raises(SettingError, match=rf"2 name\(s\) and {word} labels"):
            FileTable.from_names(["a", "b"], labels)

    @pytest.mark.parametrize("label", [0.5, "1", 2**31])
    def test_no_label(self, label: object) -> None:
        with pytest.raises(SettingError, match="Label 1 must be a whole number of at most 32 bits"):
            FileTable.from_names(["a", "b"], [0, label])  # type: ignore[list-item]

    @pytest.mark.parametrize("name", [5, None, "\ud800"])
    def test_no_name(self, name: object) -> None:
        with pytest.raises(SettingError, match="Name 1 must be a str, bytes or a path"):
            FileTable.from_names(["a", name])  # type: ignore[list-item]

    def test_one_name_in_place_of_a_list(self) -> None:
        with pytest.raises(SettingError, match=r"Write \['a.jpg'\]"):
            FileTable.from_names("a.jpg")
