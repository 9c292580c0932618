"""Where operators were defined, looked up in less time: what DALI finds."""

from __future__ import annotations

from typing import Any

import pytest
from nvidia.dali import fn, pipeline_def
from nvidia.dali._utils import dali_trace

from accvlab.dali_pipeline_framework.engine.dali.origins import each_line_looked_up_once


def texts(stack: list[Any]) -> list[tuple[str, int, str, str]]:
    return [(each.filename, each.lineno, each.name, each.line) for each in stack]


@pytest.mark.parametrize("conditionals", [False, True])
def test_the_lines_are_those_of_dali(conditionals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    by_dali = dali_trace.extract_stack
    with each_line_looked_up_once():
        ours = dali_trace.extract_stack
    assert dali_trace.extract_stack is by_dali
    found: list[list[tuple[str, int, str, str]]] = []

    def compared(start_frame: int = 0, end_frame: int | None = None) -> list[Any]:
        stacks = [each(start_frame, end_frame) for each in (by_dali, ours)]
        assert texts(stacks[1]) == texts(stacks[0])
        found.append(texts(stacks[1]))
        return stacks[0]

    monkeypatch.setattr(dali_trace, "extract_stack", compared)

    def sum_of(values: Any) -> Any:
        return values + 1 + 2

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, enable_conditionals=conditionals)
    def graph() -> Any:
        values = fn.constant(idata=[1, 2])
        if conditionals and fn.constant(idata=[1]) > 0:
            values = values - 1
        return sum_of(values)

    graph()
    assert len(found) >= 3
    assert any(line == "return values + 1 + 2" for stack in found for *_, line in stack)
