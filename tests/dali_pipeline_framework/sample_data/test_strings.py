"""Text in STRING fields: UTF-8 bytes in a sample, padded in a batch, read back from arrays of any library."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.types import DALIDataType
from sample_data_strategies import texts
from support.array_samples import group_of

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.sample_data.conversion import decoded, encoded


def padded(values):
    """(N, L) uint8, as DALI pads a batch."""
    rows = [value.encode() for value in values]
    length = max(map(len, rows), default=0)
    data = b"".join(row.ljust(length, b"\0") for row in rows)
    return np.frombuffer(data, np.uint8).reshape(len(rows), length)


class TestEncoding:
    @given(texts)
    def test_round_trip(self, text):
        group = group_of(name=DALIDataType.STRING)
        group["name"] = text
        assert group["name"] == text
        group["name"] = None
        assert group["name"] is None

    def test_stored_form(self):
        group = group_of(name=DALIDataType.STRING)
        for do_convert in (True, False):
            group.set_do_convert(do_convert)
            group["name"] = np.str_("aé")
            (stored,) = group.get_data()
            assert stored.dtype == np.uint8
            assert stored.tolist() == [97, 0xC3, 0xA9]
            assert not stored.flags.writeable
        group["name"] = np.array([98, 0], dtype=np.uint8)
        assert group["name"] == "b"

    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            (["a", "b"], "one STRING field per text"),
            (b"a", r"value\.decode\(\)"),
            (np.array([97], dtype=np.uint8), "str or None"),
            ("\ud800", "surrogate"),
        ],
    )
    def test_other_values_are_refused(self, value, advice):
        with pytest.raises(ValueError, match=f"^name: .*{advice}"):
            group_of(name=DALIDataType.STRING)["name"] = value


class TestDecoding:
    @given(st.lists(texts, max_size=4))
    def test_batches(self, values):
        assert decoded(padded(values)) == values
        assert decoded([encoded(value) for value in values]) == values
        assert decoded(torch.tensor(padded(values))) == values

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (np.zeros((3, 0), np.uint8), ["", "", ""]),
            (np.zeros((0, 5), np.uint8), []),
            (np.zeros((2, 0, 4), np.uint8), [[], []]),
            (padded(["a", "", "ccc", "dd"]).reshape(2, 2, 3), [["a", ""], ["ccc", "dd"]]),
            (np.frombuffer(b"\0a\0b\0\0", np.uint8), "\0a\0b"),  # only padding is dropped
            (np.frombuffer(b"abcdef", np.uint8)[::2], "ace"),
            (padded(["ab", "cd"]).T, ["ac", "bd"]),
        ],
        ids=repr,
    )
    def test_one_list_level_per_axis(self, data, text):
        assert decoded(data) == text

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
        group = group_of(names=group_of(a=DALIDataType.STRING, b=DALIDataType.STRING))
        group.set_data([encoded("a"), np.array([0xFF], np.uint8)])
        assert group["names"]["a"] == "a"
        for read in (lambda: group.get_item_in_path(("names", "b")), group.to_dictionary):
            with pytest.raises(FieldValueError, match=r"^names\.b: the data are not UTF-8"):
                read()


@pytest.mark.parametrize("batch", [["a", "bcd"], ["", "b"], ["", ""], ["é", "\0x"]], ids=repr)
def test_padding_in_pipelines(batch):
    group = group_of(inner=group_of(name=DALIDataType.STRING, other=DALIDataType.FLOAT))

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def define():
        data = group.get_empty_like_self()
        data.set_data(
            fn.external_source(
                source=lambda: ([encoded(text) for text in batch], [np.zeros(1, np.float32)] * 2), num_outputs=2
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
    assert result["inner"]["name"] == result.to_dictionary()["inner"]["name"] == batch
    with pytest.raises(FieldValueError, match=r"^inner\.name: is not set"):
        group.ensure_uniform_size_in_batch_for_all_strings()
