"""Loaders on real ranks: gloo connects them; in a wide run `torchrun` starts them too."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed_run import DISTRIBUTED, deliver, loader_of
from support.loaders import LENGTHS
from support.ranks import run_ranks, torchrun

SCRIPT = Path(__file__).with_name("distributed_run.py")


def launched(num_ranks: int, folder: Path, part: str) -> dict[str, Any]:
    """Have ranks run `distributed_run.py`, and return what it reports."""
    done = torchrun(SCRIPT, [folder, part], num_ranks, ALL_HAVE_WORKERS="1")
    left = [each for each in psutil.process_iter(["cmdline"]) if str(folder) in (each.info["cmdline"] or [])]
    assert left == []
    assert done.returncode == 0, done.stdout + done.stderr
    return report_of(folder, part)


def forked(num_ranks: int, folder: Path, part: str) -> dict[str, Any]:
    """Do the same on processes that have imported PyTorch already."""
    run_ranks(SCRIPT, [folder, part], num_ranks)
    return report_of(folder, part)


def report_of(folder: Path, part: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / f"{part}.json").read_text())
    return report


# Both give ranks the same environment; each process that `torchrun` starts imports PyTorch, which takes seconds.
@pytest.fixture(scope="module", params=["forked", pytest.param("torchrun", marks=pytest.mark.wide)])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two ranks begin epoch 0, three continue it, and one (this process) goes through the rest."""
    folder = tmp_path_factory.mktemp("ranks")
    start = launched if request.param == "torchrun" else forked
    reports = [start(2, folder, "two"), start(3, folder, "three")]
    rest = {}
    for name in DISTRIBUTED:
        with loader_of(name, None, 1) as loader:
            loader.load_state_dict((folder / f"{name}.json").read_text())
            rest[name] = {"before": [deliver(iter(loader))], "stopped": [loader.state_dict()]}
    return [*reports, rest]


def delivered(ranks: list[list[dict[str, list[Any]]]]) -> Counter[tuple[int, int, int]]:
    keys = ("sample_index", "sequence", "frame", "is_padding")
    return Counter(
        row[:3]
        for batches in ranks
        for batch in batches
        for row in zip(*(batch[key] for key in keys), strict=True)
        if not row[3]
    )


def contents(name: str) -> Counter[tuple[int, int, int]]:
    """What an epoch has."""
    frames = [(sequence, frame) for sequence, length in enumerate(LENGTHS) for frame in range(length)]
    if "streams" not in name:
        frames = [(-1, -1)] * len(frames)
    return Counter((index, *place) for index, place in enumerate(frames))


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTED)
class TestRanks:
    def test_each_has_its_shard(self, parts: list[dict[str, Any]], name: str) -> None:
        for num_ranks, part in zip((2, 3), parts, strict=False):
            found_by = "given" if name == "published" else "torch"  # its input was created for the shard
            assert part[name]["shards"] == [[rank, num_ranks, found_by] for rank in range(num_ranks)]

    def test_an_epoch_is_delivered_exactly_once_over_all(self, parts: list[dict[str, Any]], name: str) -> None:
        for part in parts[:2]:
            assert delivered(part[name]["whole"]) == contents(name)

    def test_all_make_the_same_number_of_steps(self, parts: list[dict[str, Any]], name: str) -> None:
        for part in parts[:2]:
            assert len({len(batches) for batches in part[name]["whole"]}) == 1

    def test_all_have_the_same_state_at_the_same_step(self, parts: list[dict[str, Any]], name: str) -> None:
        for part in parts[:2]:
            states = part[name]["states"]
            assert all(each == states[0] for each in states)
            assert [(state["epoch"], state["batch"]) for state in states[0]] == [
                *((3, number) for number in range(1, len(states[0]))),
                (4, 0),
            ]
            assert all(state == part[name]["stopped"][0] for state in part[name]["stopped"])

    def test_another_number_of_ranks_finishes_the_epoch(self, parts: list[dict[str, Any]], name: str) -> None:
        together: Counter[tuple[int, int, int]] = Counter()
        for part in parts:
            together += delivered(part[name]["before"])
        assert together == contents(name)
        positions = [(part[name]["stopped"][0]["epoch"], part[name]["stopped"][0]["batch"]) for part in parts]
        assert positions == [(0, 1), (0, 2), (1, 0)]
