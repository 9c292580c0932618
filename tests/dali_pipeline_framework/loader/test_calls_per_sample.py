"""What a batch costs beside the work on its data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import calls_per_sample
import pytest


def calls_of_a_batch(batch_size: int, **settings: Any) -> Counter[tuple[str, str]]:
    calls = calls_per_sample.calls_of_a_batch(calls_per_sample.Images(), batch_size, **settings)
    return calls_per_sample.of_package(calls)


def test_one_sample_takes_few_calls() -> None:
    calls = calls_of_a_batch(1)
    # 86 when this was written. Each is a hop that a reader makes, and a microsecond in one process.
    assert sum(calls.values()) <= 92, calls.most_common()
    of_eight = calls_of_a_batch(8)
    assert sum(of_eight.values()) <= 240, of_eight.most_common()


@pytest.mark.parametrize("settings", [{"faults": "replace"}, {"faults": "skip"}, {"ledger": "."}])
def test_policies_and_ledgers_take_few_calls_per_batch_and_none_per_sample(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = {"last_batch": "partial"}
    calls, more = (
        calls_of_a_batch(size, **plain, **settings) - calls_of_a_batch(size, **plain) for size in (4, 8)
    )
    assert sum(calls.values()) <= (12 if "ledger" in settings else 2), calls.most_common()
    assert more == calls
