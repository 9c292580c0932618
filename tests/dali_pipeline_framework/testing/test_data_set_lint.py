"""The command that tries every sample of a data set."""

from __future__ import annotations

import functools
import multiprocessing
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lint_subjects import blocked_provider, definition, late_provider, panicking_provider, provider
from support.child_processes import run_process

from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.faults import read_quarantine
from accvlab.dali_pipeline_framework.limits import file_limits
from accvlab.dali_pipeline_framework.testing import data_set_lint
from accvlab.dali_pipeline_framework.testing.data_set_lint import _Rest, lint
from accvlab.dali_pipeline_framework.testing.sample_trial import SampleTrial, subject_of


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


def test_an_exception_that_is_no_exception_is_about_its_sample() -> None:
    failed = SampleTrial(subject_of(panicking_provider())).failures(range(10))
    assert [(sample.sample_index, sample.reason) for sample in failed] == [(4, "Panic: out of bounds")]


@pytest.fixture(params=["forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
def _start_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How processes start: those of the fork server need not import DALI first."""
    monkeypatch.setattr(data_set_lint, "_START_METHOD", request.param)


@pytest.mark.usefixtures("_start_method")
def test_samples_that_end_their_process_or_do_not_end_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "failed.jsonl"
    subject = "lint_subjects:deadly_provider"
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
    tried: list[tuple[int, int]] = []
    make_subject = functools.partial(subject_of, blocked_provider())
    failed = [*lint(make_subject, num_workers, lambda *counts: tried.append(counts), 3.0)]
    assert sorted(sample.sample_index for sample in failed) == [0, 3, 4]
    assert {sample.reason for sample in failed} == {"does not end within 3 s"}
    assert tried[0] == (0, 10)
    assert sum(count for count, _ in tried) == 10
    assert {num_samples for _, num_samples in tried} == {10}
    assert multiprocessing.active_children() == []


@pytest.mark.wide
def test_a_data_set_that_cannot_be_opened_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "lint_subjects:unopened_provider", "--workers", "1"]) == 1
    message = "The data set cannot be opened in another process, which ends: SIGSEGV."
    assert message in capsys.readouterr().err


def test_the_time_limit_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "lint_subjects:good_provider", "--timeout", "0"]) == 1
    assert "`--timeout` must be a number above 0, got 0" in capsys.readouterr().err


@pytest.mark.usefixtures("_start_method")
def test_good_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "lint_subjects:good_provider", "--workers", "1"]) == 0
    assert "All can be loaded and decoded." in capsys.readouterr().out


@pytest.mark.usefixtures("_start_method")
def test_limits_hold_in_its_processes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_limits.IMAGE_PIXELS, "most", 23)
    assert main(["lint", "lint_subjects:limited_provider", "--workers", "1"]) == 1
    assert "ValueError: at most 23 pixels" in capsys.readouterr().err


@pytest.mark.usefixtures("_start_method")
def test_what_has_no_provider_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "lint_subjects:reader"]) == 1
    assert "lint needs a data provider" in capsys.readouterr().err


def test_this_process_opens_and_imports_nothing() -> None:
    """Its start would be added to that of the others."""
    program = (
        "import sys\nfrom accvlab.dali_pipeline_framework.command_line import main\n"
        "assert main(['lint', 'lint_subjects:good_provider', '--workers', '1']) == 0\n"
        "assert not {'nvidia.dali', 'lint_subjects'} & set(sys.modules), sys.modules"
    )
    run_process([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True, timeout=100)


def test_images_that_come_before_the_first_good_one_are_tried_again() -> None:
    """Only a good one shows that a field holds images; and that does not depend on what is tried at a time."""
    subject = subject_of(late_provider())
    first, second, rest = SampleTrial(subject), SampleTrial(subject), _Rest(10, 10)
    assert first.failures([0, 1]) == []
    rest.note_tried([0, 1], first.holds_images, first.undecided)
    assert not rest
    assert second.failures([2, 3]) == []
    rest.note_tried([2, 3], second.holds_images, second.undecided)
    assert rest.chunk(1) == [0, 1]
    first.holds_images |= rest.holds_images
    assert [sample.sample_index for sample in first.failures([0, 1])] == [0, 1]
    assert not rest


@pytest.mark.parametrize("num_samples", [0, 1, 5, 100, 1000])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_all_samples_are_dealt_and_the_last_chunks_are_small(num_samples: int, num_workers: int) -> None:
    rest = _Rest(num_samples)
    chunks = [*iter(lambda: rest.chunk(num_workers), range(0))]
    assert [index for chunk in chunks for index in chunk] == [*range(num_samples)]
    assert not rest
    sizes = [len(chunk) for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) <= 32
    assert sizes[-1:] <= [4]
