"""Every argument of what users create first, with wrong values of every kind: all are refused in one way."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, FrameFolders, Videos
from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.errors import FrameworkError, SettingError
from accvlab.dali_pipeline_framework.ledgers import certify
from accvlab.dali_pipeline_framework.testing import data_set_lint


class Hostile:
    """Raises wherever it is looked at."""

    __hash__ = None  # type: ignore[assignment]

    def _fail(self, *_: object) -> Any:
        raise ZeroDivisionError

    __eq__ = __bool__ = __index__ = __iter__ = __fspath__ = __repr__ = __float__ = __len__ = _fail


class HostileText(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


def endless() -> Iterator[int]:
    while True:
        yield 1


WRONG: dict[str, Callable[[], Any]] = {
    "array of a number": lambda: np.array(5),
    "array of a text": lambda: np.array("raise"),
    "array": lambda: np.arange(3),
    "array of texts": lambda: np.array(["a", "b"]),
    "NaN": lambda: float("nan"),
    "no time": lambda: np.datetime64("NaT"),
    "bytes": lambda: b"raise",
    "10**30": lambda: 10**30,
    "2**40": lambda: 2**40,
    "5000 digits": lambda: 10**5000,
    "true of NumPy": lambda: np.bool_(True),
    "set": lambda: {1, 2},
    "generator": lambda: (each for each in (1, "a")),
    "endless": endless,
    "hostile": Hostile,
    "hostile text": lambda: HostileText("spawn"),
    "hostile list": lambda: [Hostile()],
    "folder": lambda: Path("folder"),
    "half a character": lambda: "a\ud800",
    "NUL": lambda: "a\0b",
    "long text": lambda: "x" * 100_000,
    "dict": lambda: {1: object()},
    "class": lambda: int,
}


def loader(**arguments: Any) -> None:
    given = {"batch_size": 4, "num_workers": 0, "num_threads": 1, "start_method": "fork", "output_type": "numpy"}
    given.update(arguments)
    DataLoader(given.pop("source", IndexProvider(22)), **given).close()


def replacing_policy(**arguments: Any) -> None:
    FaultPolicy(**{"samples": "replace", **arguments})


def videos(**arguments: Any) -> None:
    Videos(**{"filenames": ["a.mp4"], **arguments})


def videos_of_cameras(**arguments: Any) -> None:
    Videos(**{"cameras": {"a": ["a.mp4"]}, **arguments})


def folders(**arguments: Any) -> None:
    FrameFolders(**{"file_root": "folder", "cameras": ["a", "b"], "align": "time", **arguments})


def ledgers(**arguments: Any) -> None:
    certify(**{"paths": "folder", **arguments})


MAKERS = (
    (DataLoader, loader),
    (FaultPolicy, replacing_policy),
    (Videos, videos),
    (Videos, videos_of_cameras),
    (FrameFolders, folders),
    (certify, ledgers),
)
CASES = [(make, name) for called, make in MAKERS for name in inspect.signature(called).parameters]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()


@pytest.mark.parametrize(("make", "argument"), CASES, ids=[f"{make.__name__}-{name}" for make, name in CASES])
def test_wrong_values_are_refused_by_errors_of_the_package(make: Callable[..., None], argument: str) -> None:
    bare = []
    for kind, value in WRONG.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make(**{argument: value()})
        except FrameworkError as error:
            if len(str(error)) > 1000:
                bare.append(f"{kind}: a message of {len(str(error))} characters")
        except Exception as error:
            bare.append(f"{kind}: {type(error).__name__}")
    assert not bare


def test_there_are_at_most_1024_workers() -> None:
    loader(num_workers=1024)
    with pytest.raises(SettingError, match=r"^`num_workers` must be at most 1024, got 1025\. Usually a worker"):
        loader(num_workers=1025)


COMMANDS = {
    "too many processes": (["lint", "a.py:b", "--workers", "1000000"], "`--workers` must be at most"),
    "a pipe that nobody reads": (["lint", "a.py:b", "--output", "pipe"], "'pipe'"),
    "a folder": (["lint", "a.py:b", "--output", "folder"], "'folder'"),
    "a list of half a character": (["lint", "a.py:b", "--output", "a\ud800"], "`--output`"),
    "no time": (["lint", "a.py:b", "--timeout", "nan"], "`--timeout` must be "),
    "relative to nothing": (["lint", "..a:b"], "'..a' is no name of a module"),
    "no module": (["lint", "modul.a:b"], "No module named 'modul'"),
    "nothing": (["lint", ":b"], "Empty module name"),
    "no file": (["lint", "b.py:b"], "There is no file 'b.py'"),
    "no file in a folder": (["lint", "folder/b:b"], "There is no folder 'folder/b'"),
    "a folder of data": (["lint", "folder"], "'folder' is a folder"),
    "a ledger of half a character": (["ledger", "a\ud800"], ""),
    "a ledger that is a pipe": (["ledger", "pipe"], "'pipe'"),
    "10**30 samples": (["ledger", "folder", "--samples", str(10**30)], ""),
}


@pytest.mark.parametrize(("arguments", "message"), COMMANDS.values(), ids=COMMANDS)
def test_wrong_arguments_of_commands(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*arguments: object) -> None:
        pytest.fail("processes are started, which import DALI before they refuse anything")

    monkeypatch.setattr(data_set_lint, "lint", started)
    os.mkfifo("pipe")
    Path("a.py").touch()
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"{arguments[0]}: ")
    assert message in told
    assert "Traceback" not in told


def test_a_list_of_failed_samples_is_no_pipe() -> None:
    os.mkfifo("pipe")
    for policy in ({"quarantine": "pipe"}, {"exclude": "pipe"}):
        with pytest.raises(FrameworkError, match="'pipe' cannot be"):
            loader(faults=FaultPolicy(samples="replace", **policy))
