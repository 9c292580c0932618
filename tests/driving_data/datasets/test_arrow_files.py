"""Tables of Apache Arrow as NumPy arrays."""

import sys
from functools import partial

import numpy as np
import pytest
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.driving_data.datasets.driving.arrow_files import ArrowFile, ListsOf, Tensors, read_columns

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
feather, pq = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")


KINDS = {
    "number": "number",
    "whole": "whole",
    "text": "text",
    "lists": ListsOf("whole"),
    "pairs": Tensors(np.dtype("i8"), (2,)),
}


def test_columns_are_of_the_kind_asked_for(tmp_path):
    names = pa.array(["b", "a", "b", "ccc"]).dictionary_encode()
    lists = pa.array([[1, 2], None, [5], []], pa.list_(pa.int32()))
    pairs = pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2))
    numbers = {"number": pa.array([1, 2, 3, None], pa.int8()), "whole": pa.array([1, 2, 3, 4], pa.uint16())}
    table = pa.table({**numbers, "text": names, "lists": lists, "pairs": pairs})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    feather.write_feather(table, str(tmp_path / "a.feather"), chunksize=3)
    for name in ("a.parquet", "a.feather"):
        empty = {"number": np.nan, "pairs": -1}
        found = read_columns(tmp_path / name, {**KINDS, "none": "text"}, or_none=["none"], empty=empty)
        assert [found[name].dtype.kind for name in ("number", "whole", "text")] == ["f", "i", "U"]
        np.testing.assert_array_equal(found["number"], [1, 2, 3, np.nan])
        assert [found[name].tolist() for name in ("whole", "text")] == [[1, 2, 3, 4], ["b", "a", "b", "ccc"]]
        assert [part.tolist() for part in found["lists"]] == [[2, 0, 1, 0], [1, 2, 5]]
        assert found["pairs"].tolist() == [[1, 2], [-1, -1], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (pa.array([1.5]), "whole", "must hold whole numbers, got double"),
        (pa.array([1]), "text", "must hold texts, got int64"),
        (pa.array(["a"]), "number", "must hold numbers, got string"),
        (pa.array([1, None]), "whole", "has 1 cells without a value"),
        (pa.array([[1.0], [1.0, 2.0]]), ListsOf("whole"), ", in its lists, must hold whole numbers, got double"),
        (pa.array([1]), ListsOf("whole"), "must hold lists, got int64"),
        (pa.array([[1], [2, 3]]), KINDS["pairs"], "must hold int64 of the shape (2,) in each row, ...of other"),
    ],
)
def test_columns_of_another_kind_are_named(tmp_path, column, kind, message):
    for name, write in (("a.parquet", pq.write_table), ("a.feather", feather.write_feather)):
        write(pa.table({"value": column}), str(tmp_path / name))
        read = partial(read_columns, tmp_path / name, {"value": kind})
        assert_refused(read, f"The column 'value' of '{tmp_path / name}'...{message}", FileError)
        read = partial(read_columns, tmp_path / name, {"values": "whole"})
        assert_refused(read, "has no column 'values'. Did you mean 'value'? It has: value.", FileError)


def test_files_that_are_none(tmp_path):
    for name in ("a.parquet", "a.feather", "a.arrow"):
        (tmp_path / name).write_bytes(b"nothing")
        assert_refused(lambda path=tmp_path / name: read_columns(path, {}), f"{name}' cannot be read", FileError)
    assert_refused(lambda: read_columns(tmp_path / "b.feather", {}), "cannot be read", FileNotFoundError)


class Matrix(pa.ExtensionType):
    """As `datasets.Array2D` of Hugging Face, whose columns pyarrow reads as such once that is imported."""

    def __init__(self):
        super().__init__(pa.list_(pa.list_(pa.float32())), "test.matrix")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_matrices_are_read_whether_their_type_is_known_or_not(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    stored = pa.array(values.tolist(), Matrix().storage_type)
    table = pa.table({"m": pa.ExtensionArray.from_storage(Matrix(), stored)})
    pq.write_table(table, tmp_path / "a.parquet")
    kinds = {"m": Tensors(np.dtype(np.float32), (2, 3))}
    np.testing.assert_array_equal(read_columns(tmp_path / "a.parquet", kinds)["m"], values)
    pa.register_extension_type(Matrix())
    try:
        np.testing.assert_array_equal(read_columns(tmp_path / "a.parquet", kinds)["m"], values)
    finally:
        pa.unregister_extension_type("test.matrix")


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for read in (ArrowFile, lambda path: read_columns(path, {})):
        with pytest.raises(SettingError, match="pip install pyarrow msgpack"):
            read(str(tmp_path / "table.arrow"))


def test_rows_are_found_in_their_batches(tmp_path):
    path = str(tmp_path / "table.arrow")
    schema = pa.schema([("name", pa.large_binary()), ("number", pa.int64())])
    with pa.ipc.new_file(path, schema) as file:
        for first in (0, 3):
            names = [b"%d" % k if k != 4 else None for k in range(first, first + 3)]
            file.write_batch(pa.record_batch([pa.array(names, pa.large_binary()), [1, 2, 3]], schema=schema))
    file = ArrowFile(path)
    assert file.num_rows == 6
    found = [file.content("name", row) for row in (5, 0, 4, 3)]
    assert [None if content is None else bytes(content) for content in found] == [b"5", b"0", None, b"3"]
    with pytest.raises(FileError, match="has 6 rows: there is no row 6"):
        file.content("name", 6)
