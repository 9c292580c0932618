"""The benchmark of LeRobot's data sets runs, and reports what it says; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from bench_lerobot import LIBRARY, main
from lerobot_data import CAMERAS, write_lerobot

from accvlab.driving_data.datasets import LeRobotProvider

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_rates_and_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_lerobot(tmp_path / "own", num_episodes=2, num_frames=7, hw=(64, 96))
    provider = LeRobotProvider(written, index_cache=tmp_path / "indices")
    assert (provider.camera_names, provider.sequence_lengths.tolist()) == (CAMERAS, [7, 7])
    assert provider.get_data(13)["task"] == "follow the road"
    output = tmp_path / "lerobot.json"
    main(["--quick", "--data", str(written), "--output", str(output)])
    rows = json.loads(output.read_text())["results"]
    assert [row["race"].partition(",")[0] for row in rows] == ["made", "own"]
    for row in rows:
        assert row["per_second"][LIBRARY]["median"] > 0
        assert 1 <= row["frames_decoded_per_frame"] <= 2  # a key frame every second frame
    assert (
        f"{rows[0]['frames_decoded_per_frame']} frames decoded for each one delivered" in capsys.readouterr().out
    )
