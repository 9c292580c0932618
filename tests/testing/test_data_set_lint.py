"""The command that tries every sample of a data set."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest
from support.lint_subjects import blocked_provider, definition, provider

from accvlab.dali_pipeline_framework import read_quarantine
from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.testing.data_set_lint import SampleTrial, lint, subject_of


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


def test_samples_that_end_their_process_or_do_not_end_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "failed.jsonl"
    subject = "support.lint_subjects:deadly_provider"
    assert main(["lint", subject, "--output", str(path), "--workers", "1", "--timeout", "4"]) == 1
    printed = capsys.readouterr()
    assert "5 samples have failed" in printed.err
    assert f"They are listed in {path}." in printed.err
    entries = read_quarantine(str(path))
    reasons = {entry.sample_index: entry.reason for entry in entries}
    assert sorted(reasons) == [2, 3, 5, 7, 8]
    assert [entry.file for entry in entries] == [f"sample {entry.sample_index}" for entry in entries]
    assert reasons[7] == f"ends the process that loads it: {signal.Signals(signal.SIGKILL).name}"
    assert reasons[8] == "does not end within 4 s"


@pytest.mark.wide
@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_others_are_tried_where_some_do_not_end(num_workers: int) -> None:
    tried: list[int] = []
    make_subject = functools.partial(subject_of, blocked_provider())
    failed = [*lint(make_subject, num_workers, 10, tried.append, 3.0)]
    assert sorted(sample.sample_index for sample in failed) == [0, 3, 4]
    assert {sample.reason for sample in failed} == {"does not end within 3 s"}
    assert sum(tried) == 10
    assert multiprocessing.active_children() == []


@pytest.mark.wide
def test_a_data_set_that_cannot_be_opened_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:unopened_provider", "--workers", "1"]) == 1
    message = "The data set cannot be opened in another process, which ends: SIGSEGV."
    assert message in capsys.readouterr().err


def test_the_time_limit_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:good_provider", "--timeout", "0"]) == 1
    assert "`--timeout` must be a number above 0, got 0" in capsys.readouterr().err


def test_good_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:good_provider", "--workers", "1"]) == 0
    assert "All can be loaded and decoded." in capsys.readouterr().out


def test_what_has_no_provider_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "support.lint_subjects:reader"]) == 1
    assert "lint needs a data provider" in capsys.readouterr().err
