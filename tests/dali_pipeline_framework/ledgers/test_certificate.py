"""What ledgers prove: by files made by hand, against counting by hand."""

from __future__ import annotations

import itertools
import types
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import ledgers as ledger_module
from accvlab.dali_pipeline_framework.command_line import main
from accvlab.dali_pipeline_framework.ledgers import LedgerWriter, certify


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time is a millisecond later."""
    times_ns = itertools.count(1_000_000_000, 1_000_000)
    monkeypatch.setattr(ledger_module, "time", types.SimpleNamespace(time_ns=lambda: next(times_ns)))


NUM_SAMPLES = 12


def writer(folder: Path, shard: tuple[int, int] = (0, 1), state: Any = None, **settings: Any) -> LedgerWriter:
    """A ledger with a loop that has begun, which goes on from a state at a position."""
    ledger = LedgerWriter(str(folder), {"shard": shard, "num_samples": NUM_SAMPLES, "order": "o", **settings})
    ledger.begin_loop(state)
    return ledger


def note(ledgers: Iterable[LedgerWriter], batches: Iterable[tuple[int, int]]) -> None:
    """Deliver global batches of 4 samples of 12, in order, dealt to the shards."""
    ledgers = [*ledgers]
    for epoch, batch in batches:
        indices = np.arange(batch * 4, batch * 4 + 4).reshape(len(ledgers), -1)
        for ledger, own in zip(ledgers, indices, strict=True):
            ledger.note(epoch, batch, own.tolist())


def begun(folder: Path, num_shards: int, state: tuple[int, int] | None = None, **settings: Any) -> Any:
    return [writer(folder, (shard, num_shards), state, **settings) for shard in range(num_shards)]


EPOCH = [(0, 0), (0, 1), (0, 2)]


def test_each_sample_once(tmp_path: Path) -> None:
    note(begun(tmp_path, 2), [*EPOCH, (1, 0), (1, 1), (1, 2)])
    certificate = certify([tmp_path])
    assert certificate.is_exact
    assert str(certificate).splitlines() == [
        "2 ledgers: 12 batches count, 0 were superseded by restarts",
        "shard 0 of 2 began without a state at epoch 0, batch 0",
        "shard 1 of 2 began without a state at epoch 0, batch 0",
        "Each of the 12 samples was delivered exactly once in each of the epochs 0, 1.",
    ]
    assert certify([tmp_path], epochs=[1]).is_exact
    assert certify([tmp_path], epochs=[5]).problems == ("epoch 5: missing: " + ", ".join(map(str, range(12))),)


def test_what_a_restart_delivers_again_supersedes_what_was_delivered(tmp_path: Path) -> None:
    note(begun(tmp_path, 2), [(0, 0), (0, 1)])
    note(begun(tmp_path, 1, (0, 1)), [(0, 1), (0, 2), (1, 0)])
    note(begun(tmp_path, 2, (0, 2)), [(0, 2), (1, 0)])
    note(begun(tmp_path, 2, (1, 0)), [(1, 0), (1, 1), (1, 2)])
    assert certify([tmp_path]).problems == ()
    assert certify([tmp_path]).notes[0] == "7 ledgers: 11 batches count, 6 were superseded by restarts"
    assert certify([tmp_path]).notes[3] == "shard 0 of 1 went on from a state at epoch 0, batch 1"


def test_a_rank_that_ended_before_it_began_does_not_matter(tmp_path: Path) -> None:
    """At the second start only one rank has begun; then both are started again, the other one first."""
    note(begun(tmp_path, 2), [(0, 0), (0, 1)])
    alone = writer(tmp_path, (0, 2), (0, 1))
    alone.note(0, 1, [4, 5])
    second, first = writer(tmp_path, (1, 2), (0, 1)), writer(tmp_path, (0, 2), (0, 1))
    note([first, second], [(0, 1), (0, 2)])
    assert certify([tmp_path]).problems == ()
    assert certify([tmp_path]).notes[0] == "5 ledgers: 6 batches count, 3 were superseded by restarts"


@pytest.mark.parametrize("state", [None, (0, 0)])
def test_two_ranks_with_the_same_shard_are_no_restart(tmp_path: Path, state: Any) -> None:
    ranks = [*begun(tmp_path, 1, state), *begun(tmp_path, 1, state)]
    for batch in EPOCH:
        for ledger in ranks:
            note([ledger], [batch])
    assert certify([tmp_path]).problems == ("epoch 0: delivered twice: " + ", ".join(map(str, range(12))),)


def test_what_is_delivered_after_another_loader_went_on_counts_twice(tmp_path: Path) -> None:
    (first,) = begun(tmp_path, 1)
    note([first], EPOCH[:2])
    (second,) = begun(tmp_path, 1, (0, 1))
    note([first], EPOCH[2:])
    note([second], EPOCH[1:])
    assert certify([tmp_path]).problems == ("epoch 0: delivered twice: 8, 9, 10, 11",)


def test_later_loops_of_a_loader_make_nothing_void(tmp_path: Path) -> None:
    (ledger,) = begun(tmp_path, 1)
    note([ledger], EPOCH)
    ledger.begin_loop(None)
    note([ledger], EPOCH[:1])
    assert certify([tmp_path]).problems == ("epoch 0: delivered twice: 0, 1, 2, 3",)
    ledger.begin_loop((0, 0))
    note([ledger], EPOCH)
    assert certify([tmp_path]).is_exact


def test_a_batch_that_was_made_again_after_an_interrupt_counts_once(tmp_path: Path) -> None:
    (ledger,) = begun(tmp_path, 1)
    note([ledger], EPOCH[:1] * 2)
    ledger.note(0, 1, [4, 5, 6, 8])
    note([ledger], EPOCH[1:])  # the last one counts
    assert certify([tmp_path]).problems == ()
    assert certify([tmp_path]).notes[0] == "1 ledger: 3 batches count, 0 were superseded by restarts"


def test_a_rank_without_ledger_and_samples_that_were_replaced_are_missing(tmp_path: Path) -> None:
    ranks = begun(tmp_path / "ranks", 2)
    note(ranks, EPOCH)
    assert certify([ranks[0].path]).problems == ("epoch 0: missing: 2, 3, 6, 7, 10, 11",)
    ledger = writer(tmp_path, num_samples=6)
    ledger.note(0, 0, [0, 4, 2, 3, 4, 5], [[1, 4]])
    assert certify([ledger.path]).problems == (
        "epoch 0: missing: 1 (sample 4 in its place)",
        "epoch 0: delivered twice: 4",
    )


def test_many_are_named_in_part(tmp_path: Path) -> None:
    ledger = writer(tmp_path, num_samples=10**12)
    ledger.note(0, 0, [index // 2 for index in range(100)])
    (missing, twice) = certify([tmp_path]).problems
    assert missing == "epoch 0: missing: " + ", ".join(map(str, range(50, 70))) + f" and {10**12 - 50 - 20} more"
    assert twice == "epoch 0: delivered twice: " + ", ".join(map(str, range(20))) + " and 30 more"


def test_batches_of_unknown_samples_prove_nothing(tmp_path: Path) -> None:
    (ledger,) = begun(tmp_path, 1)
    note([ledger], EPOCH)
    ledger.note(1, 0, None)
    assert certify([tmp_path], epochs=[0]).is_exact
    assert certify([tmp_path]).problems[0] == "epoch 1: of 1 batches it is not known which samples they hold"


def test_refusals(tmp_path: Path) -> None:
    for order in "op":
        note(begun(tmp_path, 1, order=order), EPOCH)
    note(begun(tmp_path / "unknown", 1, num_samples=-1), EPOCH)
    for paths, words in (
        ([tmp_path], "belong to different trainings"),
        ([], "`paths` must be ledgers"),
        ([tmp_path / "unknown"], "Pass `--samples`"),
    ):
        assert_refused(lambda paths=paths: certify(paths), words)
    assert certify([tmp_path / "unknown"], num_samples=12).is_exact
    assert certify([tmp_path / "unknown"], num_samples=11).problems == (
        "epoch 0: not in the data set of 11 samples: 11",
    )


@given(st.data())
def test_any_history_of_restarts_is_certified_and_any_gap_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Against a replay: what a model that goes on from checkpoints has seen."""
    folder = tmp_path_factory.mktemp("history")
    order = [(epoch, batch) for epoch in range(2) for batch in range(3)]
    seen: list[tuple[int, int]] = []
    is_first = True
    for _ in range(data.draw(st.integers(0, 4))):
        begin = 0 if is_first else data.draw(st.integers(0, len(seen)))
        if data.draw(st.integers(0, 5)) == 0:  # a restart that goes on at a wrong place
            begin = data.draw(st.integers(0, len(order)))
        end = data.draw(st.integers(begin, len(order)))
        at = order[begin] if begin < len(order) else (2, 0)
        num_shards = data.draw(st.sampled_from([1, 2, 4]))
        note(begun(folder, num_shards, None if is_first else at), order[begin:end])
        if end > begin:
            seen = [each for each in seen if each < at] + order[begin:end]
        is_first = False
    note(begun(folder, 1, None if is_first else (2, 0)), [(2, 0), (2, 1), (2, 2)])
    counts = Counter(seen)
    expected = all(counts[each] == 1 for each in order)
    assert certify([folder], epochs=[0, 1]).is_exact == expected


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note(begun(tmp_path, 2), EPOCH)
    assert main(["ledger", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("exactly once in each of the epochs 0.\n")
    assert main(["ledger", *map(str, tmp_path.iterdir()), "--epochs", "0", "1"]) == 1
    assert "epoch 1: missing: 0, 1, 2" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path), "--samples", "13"]) == 1
    assert "missing: 12" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path), "--samples", "-1"]) == 1
    assert main(["ledger", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["ledger"])
