"""Comments that state which rule is broken where an operator fails."""

from __future__ import annotations

import ast
from pathlib import Path

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework.engine.failure_texts import _RULE

ROOT = Path(package.__file__).parent


def test_stand_at_statements_of_one_line() -> None:
    """DALI quotes the line on which an operator is defined, not the last one of a statement."""
    found = 0
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        lines = enumerate(text.splitlines(), 1)
        rules = {number for number, line in lines if _RULE in line and "_RULE" not in line}
        if not rules:
            continue
        alone = {
            node.lineno
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.lineno == node.end_lineno
        }
        assert rules <= alone, f"{path}: {sorted(rules - alone)}"
        found += len(rules)
    assert found > 0
