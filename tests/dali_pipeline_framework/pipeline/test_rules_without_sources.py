"""Which rule is broken where an operator fails is told also where the package consists of compiled files only."""

from __future__ import annotations

import compileall
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
from support.array_samples import sample_of
from support.child_processes import run_process
from support.refusals import assert_refused

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework.errors import GraphError
from accvlab.dali_pipeline_framework.processing_steps import CoordinateCropper
from accvlab.dali_pipeline_framework.testing import run_step

ROOT = Path(package.__file__).parent
SCRIPT = """
    from pathlib import Path

    import numpy as np
    from nvidia.dali import types

    import accvlab.dali_pipeline_framework as package
    from accvlab.dali_pipeline_framework.errors import GraphError
    from accvlab.dali_pipeline_framework.processing_steps import CoordinateCropper, ImageResizer
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
    failure(ImageResizer(None, output_hw=[4, 4], hw_names="rows"), sample)
"""


def test_rules_are_told_without_sources(tmp_path: Path) -> None:
    copy = tmp_path / "accvlab" / "dali_pipeline_framework"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = run_process([sys.executable, str(script)], env={"PYTHONPATH": str(tmp_path)})
    assert run.stderr == ""
    too_small = "A size is below 1 pixel, or not finite (is the image decoded before?)"
    points = "Points must have one number for each limit"
    assert run.stdout.splitlines() == [
        f"  - sample 0, field rows: {points}, (N, 1), got (3, 5). [in step 0: CoordinateCropper]",
        f"  - sample 0, field rows: {too_small}. Sizes: {[[0.0] * 15]}. [in step 0: ImageResizer]",
    ]


def test_rules_are_told_with_conditionals() -> None:
    sample = sample_of({"rows": np.zeros((3, 5), np.float32)})
    words = "field rows: Points must have one number for each limit...[in step 0: CoordinateCropper]"
    step = CoordinateCropper("rows", [0], [1])
    assert_refused(lambda: run_step(step, sample, enable_conditionals=True), words, GraphError)
