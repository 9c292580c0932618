"""Cores of a control group: exact numbers, from folders as Linux has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.inputs import NumberCallable
from support.loaders import pipeline_of
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, PipelineDefinition
from accvlab.dali_pipeline_framework.limits import control_groups
from accvlab.dali_pipeline_framework.limits.control_groups import (
    cpu_quota,
    group_folders,
    idle_core_ns,
    num_usable_cores,
)
from accvlab.dali_pipeline_framework.sources.shards import num_cores_of_rank


def system(root: Path, groups: str, **files: str) -> Path:
    """A root with the groups of this process, and files below ``sys/fs/cgroup``."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        pytest.param("0::/\n", {"cpu.max": "400000 100000\n"}, 4.0, id="a container, version 2"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, None, id="no quota, version 2"),
        pytest.param("0::/\n", {}, None, id="the top group, which has no file"),
        pytest.param(
            "0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "max 100000"}, 2.5, id="around it"
        ),
        pytest.param(
            "0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "50000 100000"}, 0.5, id="the least"
        ),
        pytest.param("0::/a\n", {"b/cpu.max": "100000 100000", "a/cpu.max": "max 1"}, None, id="another group"),
        pytest.param("0::/kubepods/x\n", {"cpu.max": "300000 100000"}, 3.0, id="the path is of the host"),
        pytest.param("0::/../x\n", {"cpu.max": "300000 100000"}, 3.0, id="a path out of what is to be seen"),
        pytest.param(
            "4:memory:/m\n2:cpu,cpuacct:/docker/7\n0::/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "600000\n", "cpu,cpuacct/cpu.cfs_period_us": "200000\n"},
            3.0,
            id="a container, version 1",
        ),
        pytest.param(
            "2:cpuacct,cpu:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            None,
            id="no quota, version 1",
        ),
        pytest.param(
            "9:cpuset:/\n1:cpu:/\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000", "unified/cpu.max": "1 1"},
            1.5,
            id="both versions",
        ),
        pytest.param("0::/\n", {"cpu.max": "none none"}, None, id="no numbers"),
    ],
)
def test_the_quota_of_a_group(tmp_path: Path, groups: str, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(system(tmp_path, groups, **files)) == quota


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert [*group_folders("cpu", tmp_path)] == []


def test_groups_begin_with_that_of_the_process(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/a/b\n", **{"a/b/memory.events": "oom_kill 1"})
    names = [folder.relative_to(root / "sys/fs/cgroup").as_posix() for folder in group_folders("memory", root)]
    assert names == ["a/b", "a", "."]


@pytest.mark.parametrize(("quota", "cores", "of_two_ranks"), [(4.0, 4, 2), (2.5, 3, 1), (0.2, 1, 1)])
def test_a_container_with_a_few_cores_of_many(
    monkeypatch: pytest.MonkeyPatch, quota: float, cores: int, of_two_ranks: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(128)))
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: quota)
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    assert (num_usable_cores(), num_cores_of_rank()) == (cores, cores)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert num_cores_of_rank() == of_two_ranks
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    assert num_cores_of_rank() == of_two_ranks


def test_a_quota_of_more_than_there_are_cores_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5})
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: 64.0)
    assert num_usable_cores() == 2


STAT = """\
cpu  10 0 10 4000 20 0 0 0 0 0
cpu0 5 0 5 1000 7 0 0 0 0 0
cpu1 5 0 5 2000 3 0 0 0 0 0
cpu10 5 0 5 700 10 0 0 0 0 0
intr 1605696 0 0
"""


@pytest.mark.parametrize(("cores", "ticks"), [({0}, 1007), ({1, 10}, 2713), ({0, 1, 10}, 3720)])
def test_how_long_cores_were_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: set[int], ticks: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    assert idle_core_ns(tmp_path) == ticks * 10**9 // os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("text", [None, "", "cpu0 1 2 3 4 5 6\n", "cpu0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0\n"])
def test_cores_of_which_nothing_is_known_are_idle_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(control_groups, "perf_counter_ns", lambda: 7000)
    (tmp_path / "proc").mkdir()
    if text is not None:
        (tmp_path / "proc/stat").write_text(text)
    assert idle_core_ns(tmp_path) == 14000


def test_workers_and_threads_are_as_many_as_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(128)))
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: 4.0)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with DataLoader(IndexProvider(8), 4) as loader:
        assert loader.num_workers == 4
        assert pipeline_of(loader).num_threads == 4
    definition = PipelineDefinition(NumberCallable(8), use_parallel_external_source=False)
    assert definition.get_dali_pipeline(batch_size=4).num_threads == 4
