"""What the parent has left for its garbage collector does not hurt forked workers, or other children."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scripts import run_script

SCRIPT = """
import gc, os, sys
from nvidia.dali import fn, pipeline_def
from support.loaders import make_loader
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition

class Witness:
    def __init__(self):
        self.pid, self.me = os.getpid(), self
    def __del__(self):
        if os.getpid() != self.pid:
            os._exit(17)

class CollectingProvider(IndexProvider):
    def get_data(self, sample_index):
        gc.collect()
        return super().get_data(sample_index)

@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def plain():
    return fn.random.uniform(range=[0.0, 1.0], shape=[3])

what, where = sys.argv[1:]
if where == "first":  # before the worker runs code of this library
    os.register_at_fork(after_in_child=lambda: gc.collect() if gc.isenabled() else None)
gc.set_threshold(1_000_000)
if what == "ours":
    pipeline = PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(num_threads=2, py_num_workers=0)
    Witness()
else:
    pipeline = plain()
pipeline.run()
pipeline.me = pipeline  # only the garbage collector can find out that it is dead
del pipeline
source = shuffled(IndexProvider(8) if where == "first" else CollectingProvider(8))
if where == "child":
    if not (child := os.fork()):
        gc.collect()
        os._exit(not gc.isenabled())
    assert os.waitpid(child, 0)[1] == 0
elif where == "DALI":
    with make_iterator(source, py_num_workers=1, py_start_method="fork") as iterator:
        print(indices(iterator), gc.isenabled())
else:
    with make_loader(source, num_workers=1, start_method="fork") as loader:
        print(indices(loader), gc.isenabled())
"""


@pytest.mark.parametrize(
    ("what", "where"),
    [("ours", "first"), ("ours", "get_data"), ("plain", "get_data"), ("plain", "DALI"), ("plain", "child")],
)
def test_garbage_of_the_parent_is_not_destroyed_in_a_child(what: str, where: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_script(script, what, where, timeout=100)
    expected = "" if where == "child" else "[[0, 1, 2, 3], [4, 5, 6, 7]] True\n"
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr
