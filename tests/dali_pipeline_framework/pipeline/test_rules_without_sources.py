"""Which rule is broken where an operator fails is told also where the package consists of compiled files only."""

from __future__ import annotations

import ast
import compileall
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support.arrays import DT
from support.child_processes import run_process

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework.errors import GraphError
from accvlab.dali_pipeline_framework.processing_steps import CoordinateCropper
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import run_step

ROOT = Path(package.__file__).parent
SCRIPT = """
    from pathlib import Path

    import numpy as np
    from nvidia.dali import types

    import accvlab.dali_pipeline_framework as package
    from accvlab.dali_pipeline_framework.errors import GraphError
    from accvlab.dali_pipeline_framework.processing_steps import (
        CoordinateCropper,
        ImageDecoder,
        ImageResizer,
        PointsInRangeCheck,
    )
    from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
    from accvlab.dali_pipeline_framework.testing import run_step

    assert not [*Path(package.__path__[0]).rglob("*.py")]

    def failure(step, sample):
        try:
            run_step(step, sample)
        except GraphError as error:
            print(next(line for line in str(error).splitlines() if "sample 0" in line))

    sample = SampleDataGroup()
    sample.add_data_field("rows", types.DALIDataType.FLOAT)
    sample["rows"] = np.zeros((3, 5))
    failure(CoordinateCropper("rows", [0], [1]), sample)
    failure(PointsInRangeCheck("rows", "is_inside", [0], [1]), sample)
    failure(ImageResizer(None, output_hw=[4, 4], hw_names="rows"), sample)

    frames = SampleDataGroup()
    frames.add_data_field_array("encoded", types.DALIDataType.UINT8, 2)
    sample = SampleDataGroup()
    sample.add_data_group_field("frames", frames)
    for number, height in enumerate((1, 2)):
        pixels = bytes(3 * height)
        sample["frames"]["encoded"][number] = np.frombuffer(b"P6 1 %d 255\\n" % height + pixels, np.uint8)
    failure(ImageDecoder("frames", False), sample)
"""


def test_rules_are_told_without_sources(tmp_path: Path) -> None:
    copy = tmp_path / "accvlab" / "dali_pipeline_framework"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = run_process(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert run.stderr == ""
    too_small = "A size is below 1 pixel, or not finite (is the image decoded before?)"
    points = "Points must have one number for each limit"
    assert run.stdout.splitlines() == [
        f"  - sample 0, field rows: {points}, (N, 1), got (3, 5). [in step 0: CoordinateCropper]",
        f"  - sample 0, field is_inside: {points}, (N, 1), got (3, 5). [in step 0: PointsInRangeCheck]",
        f"  - sample 0, field rows: {too_small}. Sizes: {[[0.0] * 15]}. [in step 0: ImageResizer]",
        "  - sample 0, field frames: the frames of a window must have the same size, and these have not "
        "[in step 0: ImageDecoder]",
    ]


def test_rules_are_told_with_conditionals() -> None:
    sample = SampleDataGroup()
    sample.add_data_field("rows", DT.FLOAT)
    sample["rows"] = np.zeros((3, 5))
    told = r"field rows: Points must have one number for each limit.* \[in step 0: CoordinateCropper\]"
    with pytest.raises(GraphError, match=told):
        run_step(CoordinateCropper("rows", [0], [1]), sample, enable_conditionals=True)


def test_rules_are_written_where_they_hold() -> None:
    rules = [
        node.args[0]
        for path in ROOT.rglob("*.py")
        if "failing_with" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "failing_with"
    ]
    assert len(rules) > 10
    for rule in rules:
        assert isinstance(rule, ast.Constant | ast.Name)
        assert not isinstance(rule, ast.Constant) or "\n" not in rule.value
