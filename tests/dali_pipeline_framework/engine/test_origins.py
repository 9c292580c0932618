"""Where operators were defined, looked up in less time: what DALI finds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn, pipeline_def
from nvidia.dali._utils import dali_trace
from nvidia.dali.ops import _OperatorInstance
from nvidia.dali.pipeline import Pipeline

from accvlab.dali_pipeline_framework.engine.dali.graph_definition import each_line_looked_up_once


@pytest.mark.parametrize("conditionals", [False, True])
def test_the_lines_are_those_of_dali(conditionals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    instances: Any = _OperatorInstance
    by_dali = instances._process_trace
    with each_line_looked_up_once():
        ours = instances._process_trace
    assert instances._process_trace is by_dali
    found: list[dict[str, Any]] = []

    def compared(instance: Any, arguments: dict[str, Any]) -> None:
        by_us: dict[str, Any] = {}
        ours(SimpleNamespace(_op=instance._op, spec=SimpleNamespace(AddArg=by_us.__setitem__)), {})
        before = {*arguments}
        by_dali(instance, arguments)
        assert by_us == {name: values for name, values in arguments.items() if name not in before}
        found.append(by_us)

    monkeypatch.setattr(instances, "_process_trace", compared)

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
    assert any("return values + 1 + 2" in origin["_origin_stack_line"] for origin in found)


def test_an_error_of_an_operator_tells_its_line() -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def graph() -> Any:
        return fn.reshape(fn.constant(idata=[1, 2]), shape=[3])  # this cannot be

    with each_line_looked_up_once():
        pipeline = graph()
    pipeline.build()
    with pytest.raises(RuntimeError, match="this cannot be"):
        pipeline.run()


def test_nothing_is_noted_while_tracing_is_off() -> None:
    dali_trace.set_tracing(enabled=False)
    try:
        pipeline = Pipeline(1, 1, None)
        with pipeline, each_line_looked_up_once():
            pipeline.set_outputs(fn.external_source(lambda: [np.zeros(1, np.int32)]) + 1)
    finally:
        dali_trace.set_tracing(enabled=True)
    pipeline.build()
    assert pipeline.run()[0].as_array().tolist() == [[1]]
