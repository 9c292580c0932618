import sys
import types as python_types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline, pipeline_def
from nvidia.dali.types import DALIDataType
from sample_data_strategies import texts

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.conversion import decoded, encoded


def text_field():
    group = SampleDataGroup()
    group.add_data_field("name", DALIDataType.STRING)
    return group


def padded(values):
    """(N, L) uint8, as DALI pads a batch."""
    rows = [value.encode() for value in values]
    length = max(map(len, rows), default=0)
    data = b"".join(row.ljust(length, b"\0") for row in rows)
    return (
        np.frombuffer(data, dtype=np.uint8).reshape(len(rows), length)
        if data
        else np.zeros((len(rows), length), np.uint8)
    )


class TestEncoding:
    @given(texts)
    def test_round_trip(self, text):
        group = text_field()
        group["name"] = text
        assert group["name"] == text

    def test_stored_form(self):
        group = text_field()
        group["name"] = np.str_("aé")
        (stored,) = group.get_data()
        assert stored.dtype == np.uint8
        assert stored.tolist() == [97, 0xC3, 0xA9]
        assert not stored.flags.writeable

    def test_empty_text(self):
        group = text_field()
        group["name"] = ""
        assert group.get_data()[0].shape == (0,)
        assert group["name"] == ""

    def test_none_clears(self):
        group = text_field()
        group["name"] = "a"
        group["name"] = None
        assert group["name"] is None

    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            (["a", "b"], "one STRING field per text"),
            (b"a", r"value\.decode\(\)"),
            (np.array([97], dtype=np.uint8), "str or None"),
            (5, "got 5 of type int"),
            ("\ud800", "surrogate"),
        ],
    )
    def test_other_values_are_refused(self, value, advice):
        with pytest.raises(ValueError, match=f"^name: .*{advice}"):
            text_field()["name"] = value

    def test_without_conversion(self):
        group = text_field()
        group.set_do_convert(False)
        group["name"] = "a"
        assert group.get_data()[0].tolist() == [97]
        group["name"] = np.array([98, 0], dtype=np.uint8)
        assert group["name"] == "b"


class TestDecoding:
    @given(st.lists(texts, max_size=4))
    def test_batch(self, values):
        assert decoded(padded(values)) == values

    @given(st.lists(texts, max_size=4))
    def test_ragged_batch(self, values):
        assert decoded([encoded(value) for value in values]) == values
        assert decoded(tuple(encoded(value) for value in values)) == values

    def test_empty_batches(self):
        assert decoded(np.zeros((3, 0), np.uint8)) == ["", "", ""]
        assert decoded(np.zeros((0, 5), np.uint8)) == []
        assert decoded(np.zeros((2, 0, 4), np.uint8)) == [[], []]
        assert decoded(np.zeros((2, 2, 0), np.uint8)) == [["", ""], ["", ""]]

    def test_one_list_level_per_axis(self):
        data = padded(["a", "", "ccc", "dd"]).reshape(2, 2, 3)
        assert decoded(data) == [["a", ""], ["ccc", "dd"]]

    def test_only_padding_is_dropped(self):
        assert decoded(np.frombuffer(b"\0a\0b\0\0", dtype=np.uint8)) == "\0a\0b"

    def test_views_with_strides(self):
        assert decoded(np.frombuffer(b"abcdef", dtype=np.uint8)[::2]) == "ace"
        assert decoded(padded(["ab", "cd"]).T) == ["ac", "bd"]

    def test_torch(self):
        torch = pytest.importorskip("torch")
        assert decoded(torch.tensor(padded(["a", "bcd"]))) == ["a", "bcd"]
        assert decoded(torch.zeros((2, 0), dtype=torch.uint8)) == ["", ""]

    @pytest.mark.wide
    def test_jax(self):
        jnp = pytest.importorskip("jax.numpy")
        assert decoded(jnp.asarray(padded(["a", "bcd"]))) == ["a", "bcd"]

    def test_cupy(self, monkeypatch):
        class FakeArray:
            def get(self):
                return padded(["a", "bcd"])

        module = python_types.ModuleType("cupy")
        module.ndarray = FakeArray
        monkeypatch.setitem(sys.modules, "cupy", module)
        assert decoded(FakeArray()) == ["a", "bcd"]

    @pytest.mark.parametrize(
        ("value", "got"),
        [
            (np.zeros(3, np.int32), r"int32 and shape \(3,\)"),
            (np.array(5, np.uint8), r"uint8 and shape \(\)"),
            (object(), "got object"),
        ],
    )
    def test_what_is_no_text(self, value, got):
        with pytest.raises(ValueError, match=got):
            decoded(value)

    def test_not_utf8(self):
        group = SampleDataGroup()
        group.add_data_field_array("names", DALIDataType.STRING, 2)
        group.set_data([encoded("a"), np.array([0xFF], np.uint8)])
        assert group["names"][0] == "a"
        with pytest.raises(FieldValueError, match=r"^names\[1\]: the data are not UTF-8"):
            group.get_item_in_path(("names", 1))
        with pytest.raises(FieldValueError, match=r"^names\[1\]: the data are not UTF-8"):
            group.to_dictionary()


class TestInPipelines:
    @pytest.mark.parametrize("batch", [["a", "bcd"], ["", "b"], ["", ""], ["é", "\0x"]], ids=repr)
    def test_padding(self, batch):
        group = SampleDataGroup()
        inner = text_field()
        inner.add_data_field("other", DALIDataType.FLOAT)
        group.add_data_group_field("inner", inner)

        @pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def define():
            data = group.get_empty_like_self()
            data.set_data(
                fn.external_source(
                    source=lambda: ([encoded(text) for text in batch], [np.zeros(1, np.float32)] * 2),
                    num_outputs=2,
                )
            )
            other = data["inner"]["other"]
            data.ensure_uniform_size_in_batch_for_all_strings()
            assert data["inner"]["other"] is other
            return data.get_data()

        pipeline = define()
        pipeline.build()
        outputs = pipeline.run()
        result = group.get_empty_like_self()
        result.set_data([output.as_array() for output in outputs])
        assert result["inner"]["name"] == batch
        assert result.to_dictionary()["inner"]["name"] == batch

    def test_nodes_are_stored_untouched(self):
        group = text_field()
        with Pipeline(batch_size=1, num_threads=1, device_id=None):
            node = fn.constant(idata=[97], dtype=DALIDataType.UINT8)
            group["name"] = node
            assert group["name"] is node

    def test_padding_needs_data(self):
        outer = SampleDataGroup()
        outer.add_data_group_field("inner", text_field())
        with pytest.raises(FieldValueError, match=r"^inner\.name: is not set"):
            outer.ensure_uniform_size_in_batch_for_all_strings()
