"""What the tests take for the origins of operators is what DALI finds."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from nvidia.dali import fn, pipeline_def
from nvidia.dali._utils import dali_trace
from support import origins


def texts(stack: list[Any]) -> list[tuple[str, int, str, str]]:
    return [(each.filename, each.lineno, each.name, each.line) for each in stack]


@pytest.mark.parametrize("conditionals", [False, True])
def test_the_lines_are_those_of_dali(conditionals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("nvidia.dali._utils.dali_trace")
    original: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(original)
    found: list[list[tuple[str, int, str, str]]] = []

    def compared(start_frame: int = 0, end_frame: int | None = None) -> list[Any]:
        by_dali, ours = [each(start_frame, end_frame) for each in (original.extract_stack, origins.extract_stack)]
        assert texts(ours) == texts(by_dali)
        found.append(texts(ours))
        return by_dali

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
