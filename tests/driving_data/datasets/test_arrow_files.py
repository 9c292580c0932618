"""Tables of Apache Arrow as NumPy arrays."""

import sys

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.driving_data.datasets.driving.arrow_files import ArrowFile, read_columns, read_tensors

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture(params=["parquet", "feather"])
def written(request, tmp_path):
    def write(**columns):
        path = tmp_path / f"table.{request.param}"
        table = pa.table(columns)
        if request.param == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, path)
        else:
            import pyarrow.feather

            pyarrow.feather.write_feather(table, str(path))
        return path

    return write


class TestColumns:
    def test_are_of_the_kind_asked_for(self, written):
        names = pa.array(["b", "a", "b"]).dictionary_encode()
        lists = pa.array([[1, 2], None, [5]], pa.list_(pa.int32()))
        path = written(
            number=pa.array([1, 2, 3], pa.int8()), whole=pa.array([1, 2, 3], pa.uint16()), text=names, lists=lists
        )
        kinds = {"number": "number", "whole": "whole", "text": "text", "lists": "whole lists", "none": "text"}
        found = read_columns(path, kinds, or_none=["none"])
        assert [column.dtype.kind for column in found.values()] == ["f", "i", "U", "O"]
        assert found["text"].tolist() == ["b", "a", "b"]
        assert [own.tolist() for own in found["lists"]] == [[1, 2], [], [5]]

    def test_of_several_parts(self, tmp_path):
        import pyarrow.feather
        import pyarrow.parquet

        names, numbers = ["a", "bb", "a", "ccc", "ccc"], [1.5, 2.0, 3.0, 4.0, 5.0]
        table = pa.table({"text": names, "number": numbers, "lists": [[place] * place for place in range(5)]})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
        pyarrow.feather.write_feather(table, str(tmp_path / "a.feather"), chunksize=3)
        for name in ("a.parquet", "a.feather"):
            found = read_columns(tmp_path / name, {"text": "text", "number": "number", "lists": "whole lists"})
            assert found["text"].tolist() == names
            assert found["number"].tolist() == numbers
            assert [own.tolist() for own in found["lists"]] == [[place] * place for place in range(5)]

    @pytest.mark.parametrize(
        ("column", "kind", "message"),
        [
            (pa.array([1.5]), "whole", "must hold whole numbers, got double"),
            (pa.array([1]), "text", "must hold texts, got int64"),
            (pa.array(["a"]), "number", "must hold numbers, got string"),
            (pa.array([1, None]), "whole", "has 1 cells without a value"),
            (pa.array([[1.0], [1.0, 2.0]]), "whole lists", "must hold lists of whole numbers"),
            (pa.array([1]), "whole lists", "must hold lists of whole numbers"),
        ],
    )
    def test_of_another_kind_are_named(self, written, column, kind, message):
        path = written(value=column)
        with pytest.raises(FileError, match=rf"'value' of .*table\.\w+' {message}"):
            read_columns(path, {"value": kind})

    def test_that_are_missing_are_named(self, written):
        with pytest.raises(FileError, match=r"has no column 'values'. Did you mean 'value'\? It has: value"):
            read_columns(written(value=[1]), {"values": "whole"})

    def test_of_a_file_that_is_none(self, tmp_path):
        for name in ("a.parquet", "a.feather", "a.arrow"):
            (tmp_path / name).write_bytes(b"nothing")
            with pytest.raises(FileError, match=f"{name}' cannot be read"):
                (ArrowFile if name == "a.arrow" else lambda path: read_columns(path, {}))(str(tmp_path / name))
        with pytest.raises(FileNotFoundError, match="cannot be read"):
            read_columns(tmp_path / "b.feather", {})


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
    import pyarrow.parquet

    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    stored = pa.array(values.tolist(), Matrix().storage_type)
    table = pa.table({"m": pa.ExtensionArray.from_storage(Matrix(), stored)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    numbers = {"m": (np.dtype(np.float32), (2, 3))}
    np.testing.assert_array_equal(read_tensors(tmp_path / "a.parquet", numbers)["m"], values)
    pa.register_extension_type(Matrix())
    try:
        np.testing.assert_array_equal(read_tensors(tmp_path / "a.parquet", numbers)["m"], values)
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
