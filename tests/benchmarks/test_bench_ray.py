"""The benchmark of actors runs, and reports what it says; figures are not judged here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.child_processes import end_with_stacks

pytestmark = pytest.mark.wide

pytest.importorskip("ray", reason="ray is not installed")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_ray.py"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_quick_run_reports_rates_and_processor_times(tmp_path: Path) -> None:
    path = [str(BENCHMARK.parents[1]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    output, log = tmp_path / "ray.json", tmp_path / "log"
    # Paths of sockets have at most 107 bytes, so that the folder of the test is too deep for Ray.
    with tempfile.TemporaryDirectory(prefix="ray") as folder, log.open("w") as file:
        environment = {
            **os.environ,
            "HOME": folder,
            "TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(path),
        }
        command = [sys.executable, str(BENCHMARK), "--quick", "--output", str(output)]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            assert process.wait(150) == 0, log.read_text()[-4000:]
        finally:
            if process.poll() is None:
                end_with_stacks([process.pid])
                print(log.read_text()[-10000:])
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
    results = json.loads(output.read_text())
    assert [*results["receiver"]] == ["0.3 MB", "3 MB"]
    for figures in results["receiver"].values():
        assert figures["gb_per_s"]["min"] > 0
        assert 0 < figures["core_s_per_gb"]["median"] <= figures["core_s_per_gb_of_all"]["median"]
    for figure in ("gb_per_s_of_processes", "core_s_per_gb_with_processes", "core_s_per_gb_of_dali"):
        assert all(figures[figure]["min"] > 0 for figures in results["receiver"].values())
    for name in ("worker processes", "actors", "actors to processes"):
        assert results["end to end"][name]["samples_per_s"]["median"] > 0
    assert len(results["kinds"]) == 4
    for figures in results["kinds"].values():
        assert figures["core_s_per_sample"]["min"] > 0
        assert figures["bytes_per_sample"]["min"] > 0
    printed = log.read_text()
    assert "receiver, 3 MB: " in printed
    assert "end to end, at least 0.9 of worker processes: " in printed
