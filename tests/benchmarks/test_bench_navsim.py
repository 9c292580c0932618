"""The benchmark of NAVSIM runs, and its contestants deliver the same; figures are not judged here."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import attrs
import pytest
import torch
from bench_navsim import LIBRARY, REDUCED, REFERENCE, main, models
from navsim_data import write_navsim

from accvlab.dali_pipeline_framework import SequentialSampler

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("number", [0, 1], ids=["states", "transfuser"])
def test_contestants_deliver_the_same(tmp_path: Path, number: int) -> None:
    cameras = ("CAM_F0", "CAM_L0", "CAM_R0") if number else ()
    size = {"num_frames": 18, "hw": (1080, 1920), "num_points": 3000, "num_others": 36}
    root = write_navsim(tmp_path, cameras=cameras, **size)
    model = attrs.evolve(models(quick=True)[number], batch_size=2)
    with model.loader(root, 0, sampler=SequentialSampler(4)) as loader:
        found = [*loader]
    assert len(found) == 2
    for batch, (features, targets, tokens) in zip(found, islice(model.reference(root, 0), 2), strict=True):
        assert batch["token"] == [*tokens]
        assert batch["features"].keys() == features.keys()
        assert batch["targets"].keys() == targets.keys()
        for group, expected in (("features", features), ("targets", targets)):
            for name, value in expected.items():
                assert batch[group][name].dtype == value.dtype
                most = 1.01 / 255 if name == "camera_feature" else 1e-6
                torch.testing.assert_close(batch[group][name], value, rtol=0, atol=most)


def test_a_quick_run_reports_prices_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--output", str(tmp_path / "navsim.json")])
    report = json.loads((tmp_path / "navsim.json").read_text())
    states, transfuser = report["results"]
    assert states["processor_ms_each"].keys() == {LIBRARY, REFERENCE}
    assert transfuser["processor_ms_each"].keys() == {LIBRARY, REDUCED, REFERENCE}
    assert len(report["targets"]) == 2
    assert "TransFuser, batches of 1" in capsys.readouterr().out
