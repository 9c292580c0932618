"""Lists of failed samples: written line by line by several processes, read line by line, and left out."""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.child_processes import join
from support.loaders import answers
from support.providers import BadSamples

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy
from accvlab.dali_pipeline_framework.errors import QuarantineError, SettingError, SourceError
from accvlab.dali_pipeline_framework.faults import FailedSample, QuarantineEntry, read_quarantine
from accvlab.dali_pipeline_framework.faults.fault_policy import Quarantine


def write_many(path: str, rank: int) -> None:
    quarantine = Quarantine(path)
    for number in range(200):
        quarantine.add(
            FailedSample(1000 * rank + number, "x" * 1500, "graph", "skipped", f"{rank}.jpg", 1, number)
        )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "failed.jsonl")
    Quarantine(path).add(FailedSample(7, "ValueError: käse", "steps", "skipped", "a\nb.jpg", 2, 3))
    Quarantine(path).add(FailedSample(8, "no image", "graph", "found by lint"))
    first, second = read_quarantine(path)
    assert first == QuarantineEntry(7, "a\nb.jpg", "ValueError: käse", "steps", 2, 3, first.host)
    assert (second.sample_index, second.epoch, second.batch) == (8, 0, 0)
    assert first.host


def test_several_processes_write_whole_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "failed.jsonl")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_many, args=(path, rank)) for rank in range(3)]
    for process in processes:
        process.start()
    join(processes, 60)
    entries = read_quarantine(path)
    assert sorted(entry.sample_index for entry in entries) == [
        1000 * rank + number for rank in range(3) for number in range(200)
    ]
    assert {len(entry.reason) for entry in entries} == {1500}


def test_half_a_line_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    quarantine = Quarantine(str(path))
    quarantine.add(FailedSample(7, "first", "steps", "skipped"))
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(QuarantineError, match=r"cannot be written: No space left on device\. Make room"):
            quarantine.add(FailedSample(8, "second", "steps", "skipped"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("policy", "num_workers"), [("raise", 0), ("raise", 1), ("replace", 0), ("replace", 1)])
def test_a_list_that_cannot_be_written_does_not_end_the_loop(
    policy: Any, num_workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    faults = FaultPolicy(samples=policy, quarantine=folder / "failed.jsonl")
    settings = {"num_workers": num_workers, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(BadSamples(8, 3, 6), 2, faults=faults, **settings) as loader:
        shutil.rmtree(folder)
        received = [answer if isinstance(answer, SourceError) else answer["index"] for answer in answers(loader)]
        assert [each.sample_index for each in loader.failed_samples] == [3, 6]
    assert [batch.tolist() for batch in received[0::2]] == [[0, 1], [4, 5]]
    if policy == "raise":
        assert [error.sample_index for error in received[1::2]] == [3, 6]
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [message.partition(" cannot be written: ")[2] for message in messages] == [
        "No such file or directory. Make room, or name another file: `FaultPolicy(quarantine=...)`. Nothing more "
        "is written to it; `failed_samples` of the loader has all."
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sample": 1', r"line 2: must be JSON, got .* The file ends in the middle of a line"),
        ("7\n", r"line 2: must be an object such as \{\"sample\": 7\}, got 7\."),
        ('{"smaple": 1}\n', r'line 2: must have "sample", the index of a sample; has smaple\.'),
        ('{"sample": -1}\n', r'line 2: "sample" must be a whole number of at least 0, got -1\.'),
        ('{"sample": true}\n', r'line 2: "sample" must be a whole number of at least 0, got True\.'),
        ('{"sample": 1, "file": 3}\n', r'line 2: "file" must be a text, got 3\.'),
        ('{"sample": 1, "epoch": "x"}\n', r'line 2: "epoch" must be a whole number'),
        (f'{{"sample": {2**63}}}\n', r'line 2: "sample" must be a whole number of at least 0, got 92233\d+\.'),
        ("[" * 100000 + "\n", r"line 2: must be JSON"),
        ("\xff\xfe\n", r"line 2: must be JSON"),
    ],
)
def test_a_damaged_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    path.write_bytes(b'{"sample": 3}\n' + line.encode("latin-1"))
    with pytest.raises(QuarantineError, match=message):
        read_quarantine(str(path))
    with pytest.raises(QuarantineError, match=r"failed\.jsonl"):
        read_quarantine(str(path))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(QuarantineError, match=r"none' cannot be read: No such file"):
        read_quarantine(str(tmp_path / "none"))
    with pytest.raises(QuarantineError, match=r"cannot be written: No such file"):
        Quarantine(str(tmp_path / "none" / "failed.jsonl"))


def test_lists_may_be_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    path.write_text('\n{"sample": 3}\n\n' + json.dumps({"sample": 2**63 - 1, "mine": [1]}))
    assert [entry.sample_index for entry in read_quarantine(str(path))] == [3, 2**63 - 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": "skp"}, r"`samples` must be one of .*, got 'skp'\. Did you mean 'skip'\?"),
        ({"samples": "skip", "max_failed": -1}, "`max_failed` must be a whole number of at least 0"),
        ({"samples": "skip", "max_failed_share": 2}, r"`max_failed_share` must be in \[0, 1\]"),
        ({"max_failed": 1}, "`max_failed` does not go with samples='raise'"),
        ({"exclude": "x"}, "`exclude` does not go with samples='raise'"),
        ({"quarantine": 3}, "`quarantine` must be the path"),
        ({"checks_images": "yes"}, "checks_images"),
        ({"samples": "skip", "exclude": 3}, "`exclude` must be the path of a file, or several of them, got 3"),
        ({"restarts": -1}, "`restarts` must be a whole number of at least 0"),
        ({"blocked_after": 0}, "`blocked_after` must be .*above 0|`blocked_after` must be"),
        ({"stacks_after": "x"}, "`stacks_after` must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        FaultPolicy(**settings)


def test_a_policy_is_a_value(tmp_path: Path) -> None:
    policy = FaultPolicy(samples="replace", exclude=[tmp_path / "a", "b"], max_failed_share=0.5)
    assert policy.exclude == (str(tmp_path / "a"), "b")
    assert policy == FaultPolicy(samples="replace", exclude=(str(tmp_path / "a"), "b"), max_failed_share=0.5)
    assert FaultPolicy(samples="skip", exclude=tmp_path).exclude == (str(tmp_path),)
