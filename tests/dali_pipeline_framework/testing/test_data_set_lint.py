"""The command that tries every sample of a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.faults import read_quarantine
from accvlab.dali_pipeline_framework.limits import file_limits

NO_IMAGE = "FieldValueError: image: No image file that can be decoded: shape (6,), begins with b'<html>'."
NO_TYPE = "does not fit the blueprint: image: expected dtype uint8, got int8 (shape (83,))"


def listed(subject: str, path: Path, *arguments: str) -> dict[int, tuple[str, str]]:
    """What the command lists: stage and reason of each sample."""
    command = ["lint", f"lint_subjects:{subject}", "--output", str(path), "--workers", "1", *arguments]
    assert main(command) == 1
    entries = read_quarantine(str(path))
    assert [entry.file for entry in entries] == [f"sample {entry.sample_index}" for entry in entries]
    found = {entry.sample_index: (entry.step, entry.reason) for entry in entries}
    assert len(found) == len(entries)
    return found


@pytest.mark.parametrize("subject", ["SomeBad", "definition", "loader", "Undeclared", "Vectors"])
def test_what_fails_is_found_where_it_fails(
    subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "failed.jsonl"
    found = listed(subject, path)
    num_failed = len(found)
    assert found.pop(2) == ("loading", "ValueError: no luck")
    assert found.pop(3) == ("checks", NO_TYPE)
    if subject in ("Undeclared", "Vectors"):
        stage, reason = found.pop(6)
        assert (stage, reason[:38]) == ("steps", "FieldValueError: image: The JPEG file ")
        # It does not even begin like an image.
        assert found == {5: ("checks", "image: no image file, as other samples have there")}
    elif subject == "loader":  # which decodes in the graph
        [(stage, reason)] = [found.pop(5)]
        assert stage == "graph"
        assert "nvImageCodec failure" in reason
    else:
        assert found == {5: ("steps", NO_IMAGE)}
    printed = capsys.readouterr()
    assert "10 samples tried in " in printed.out
    assert f"{num_failed} samples have failed" in printed.err
    assert f"They are listed in {path}." in printed.err
    assert "in its place" not in printed.err + caplog.text


@pytest.mark.wide
def test_samples_that_end_their_process_or_do_not_end_are_named(tmp_path: Path) -> None:
    found = listed("Deadly", tmp_path / "failed.jsonl", "--timeout", "4")
    assert sorted(found) == [2, 3, 5, 7, 8]
    assert found[7][1].startswith("It has ended two workers. ")
    assert "was ended by SIGKILL" in found[7][1]
    assert "since it stood still for 4." in found[8][1]


def test_limits_hold_in_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_limits.IMAGE_PIXELS, "most", 23)
    found = listed("Images", tmp_path / "failed.jsonl")
    assert sorted(found) == [*range(10)]
    assert "23" in found[0][1]


@pytest.mark.parametrize("subject", ["Images", "loader_of_forked_workers"])
def test_good_data_in_workers_that_start_as_those_of_the_loader(
    subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", f"lint_subjects:{subject}", "--workers", "1"]) == 0
    assert "All can be loaded and decoded." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Images", "--timeout", "0"], "`--timeout` must be a number above 0, got 0"),
        (["reader"], "lint needs a data provider"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    subject, *others = arguments
    assert main(["lint", f"lint_subjects:{subject}", *others]) == 1
    assert message in capsys.readouterr().err
