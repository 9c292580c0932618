"""Runs of the demo."""

import subprocess
from collections.abc import Callable
from functools import partial

import demo
import pytest

from accvlab.dali_pipeline_framework import DataLoader


@pytest.fixture
def run_demo(monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the demo in this process, with workers of the fork server: nothing is imported again, for seconds."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(demo, "DataLoader", partial(DataLoader, start_method="forkserver"))
        capsys.readouterr()
        status = demo.main([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run
