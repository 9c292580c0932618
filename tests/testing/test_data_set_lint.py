"""The command that tries every sample of a data set."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support.lint_subjects import definition, provider

from accvlab.dali_pipeline_framework import read_quarantine
from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.testing.data_set_lint import SampleTrial, subject_of


@pytest.mark.parametrize("form", ["graph", "workers"])
def test_what_fails_is_found_where_it_fails(form: Any) -> None:
    subject = provider() if form == "graph" else definition()
    failed = SampleTrial(subject_of(subject)).failures(range(10))
    image = "graph" if form == "graph" else "steps"
    assert [(sample.sample_index, sample.stage) for sample in failed] == [
        (2, "loading"),
        (3, "checks"),
        (5, image),
    ]
    assert failed[0].reason == "ValueError: no luck"
    assert failed[2].file == "sample 5"


def test_a_sample_that_ends_its_process_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "failed.jsonl"
    subject = "support.lint_subjects:deadly_provider"
    assert main(["lint", subject, "--output", str(path), "--workers", "1"]) == 1
    printed = capsys.readouterr()
    assert "4 samples have failed" in printed.err
    assert f"They are listed in {path}." in printed.err
    reasons = {entry.sample_index: entry.reason for entry in read_quarantine(str(path))}
    assert sorted(reasons) == [2, 3, 5, 7]
    assert reasons[7] == f"ends the process that loads it: {signal.Signals(signal.SIGKILL).name}"


def test_good_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:good_provider", "--workers", "1"]) == 0
    assert "All can be loaded and decoded." in capsys.readouterr().out


def test_what_has_no_provider_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:reader"]) == 1
    assert "lint needs a data provider" in capsys.readouterr().err
