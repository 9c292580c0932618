"""`FileTable`: a list of names that is kept in a few arrays."""

from __future__ import annotations

import gc
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.providers.files.file_scan import FileTable

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

    def test_iteration_crosses_its_chunks(self) -> None:
        count = 3 * 65536 + 5
        assert list(FileTable.from_names(map(str, range(count)))) == [str(i) for i in range(count)]

    def test_is_immutable(self) -> None:
        table = FileTable.from_names(["a"], [1])
        with pytest.raises(ValueError, match="read-only"):
            table.labels[0] = 2  # type: ignore[index]

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
        with pytest.raises(SettingError, match=r"`labels` must be (a whole number|at most 2147483647)"):
            FileTable.from_names(["a", "b"], [0, label])  # type: ignore[list-item]

    @pytest.mark.parametrize("name", [5, None, "\ud800"])
    def test_no_name(self, name: object) -> None:
        with pytest.raises(SettingError, match="Name 1 must be a str, bytes or a path"):
            FileTable.from_names(["a", name])  # type: ignore[list-item]
