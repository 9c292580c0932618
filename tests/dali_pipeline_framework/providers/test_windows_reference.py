"""Windows as `LeRobotDataset` delivers them with `delta_timestamps`: states, actions, indices and masks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from nvidia.dali import types
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup, Windows
from accvlab.dali_pipeline_framework.errors import SettingError

_DT = types.DALIDataType
_FIELDS = {"observation.state": (_DT.FLOAT, 1), "action": (_DT.FLOAT, 1), "index": (_DT.INT64, 0)}
_FIELDS["frame_index"] = (_DT.INT64, 0)


class Rows(DataProvider):
    """The numbers of a data set of LeRobot."""

    def __init__(self, root):
        read_table = pytest.importorskip("pyarrow.parquet").read_table
        tables = [read_table(str(path)) for path in sorted((root / "data").rglob("*.parquet"))]
        names = (*_FIELDS, "timestamp", "episode_index")
        self.columns = {
            name: np.concatenate([np.array(table[name].to_pylist()) for table in tables]) for name in names
        }
        self.sequence_lengths = np.bincount(self.columns["episode_index"])

    def get_number_of_samples(self):
        return len(self.columns["index"])

    @property
    def sample_data_structure(self):
        blueprint = SampleDataGroup()
        for name, (dtype, ndim) in _FIELDS.items():
            blueprint.add_data_field(name, dtype, ndim=ndim)
        return blueprint

    def get_data(self, sample_index):
        sample = self.new_sample()
        for name in _FIELDS:
            sample[name] = self.columns[name][sample_index]
        return sample

    def frame_times_s(self, path=()):
        return None if path else np.float32(self.columns["timestamp"])


@pytest.mark.parametrize("how", [{}, {"unit": "frames"}, {"take": "last"}], ids=str)
@pytest.mark.parametrize("name", ["l2d_like_h264", "l2d_like_av1_split", "l2d_like_v21"])
def test_windows_and_masks_are_those_of_lerobot(name, how):
    root = shared_data("golden/lerobot")
    expected = np.load(root / "expected" / name / "items.npz")
    indices = sorted({int(key[1:4]) for key in expected if key.endswith(".action")})
    rows = [step / 10 for step in range(-15, 64)]
    if how.get("unit") == "frames":
        rows = [*range(-15, 64)]
    windows = {"observation.state": rows[:16], "action": rows[15:], "index": rows, "frame_index": rows}
    provider = Windows(Rows(root / name), windows, **{"unit": "s", "edges": "repeat", **how})
    num_compared = 0
    for index in indices:
        sample = provider.get_data(index)
        for field in windows:
            kind = "" if field in ("observation.state", "action") else "window_m15_p63."
            for key in (field, f"{field}_is_pad"):
                if f"i{index:03}.{kind}{key}" in expected:
                    assert np.array_equal(sample[key], expected[f"i{index:03}.{kind}{key}"]), (index, key)
                    num_compared += 1
    assert num_compared >= 4 * len(indices) >= 36


def test_offsets_are_accepted_and_refused_as_by_lerobot():
    root = shared_data("golden/lerobot")
    rows = Rows(root / "l2d_like_h264")
    cases = json.loads((root / "expected/l2d_like_h264/expected.json").read_text())["edge_cases"]
    with pytest.raises(SettingError, match=r"must be multiples of the 0.1 s .* got 0.05 s"):
        Windows(rows, cases["not_on_grid"]["delta_timestamps"], unit="s")
    accepted = cases["within_tolerance"]["delta_timestamps"]["action"]
    sample = Windows(rows, {"index": accepted}, unit="s", edges="repeat").get_data(3)
    assert sample["index"].tolist() == [3 + step for step in cases["within_tolerance"]["frame_steps"]["action"]]
