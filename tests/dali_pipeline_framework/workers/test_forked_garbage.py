"""What the parent has left for its garbage collector does not hurt forked workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scripts import run_script


def assert_loads(folder: Path, source: str, *arguments: str) -> None:
    script = folder / "script.py"
    script.write_text(source)
    done = run_script(script, *arguments, timeout=100)
    assert done.stdout == "[[0, 1, 2, 3], [4, 5, 6, 7]] True\n", done.stderr


_COLLECTS = """
import gc, os, sys
from support.loaders import make_loader
from support.pipelines import indices, shuffled
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

if sys.argv[1] == "first":  # before the worker runs code of this library
    os.register_at_fork(after_in_child=lambda: gc.collect() if gc.isenabled() else None)
gc.set_threshold(1_000_000)
pipeline = PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(num_threads=2, py_num_workers=0)
pipeline.run()
pipeline.me = pipeline  # only the garbage collector can find out that it is dead
del pipeline
Witness()
provider = IndexProvider(8) if sys.argv[1] == "first" else CollectingProvider(8)
with make_loader(shuffled(provider), num_workers=1, start_method="fork") as loader:
    print(indices(loader), gc.isenabled())
"""


@pytest.mark.parametrize("moment", ["first", "while it loads"])
def test_garbage_of_the_parent_is_not_destroyed_in_a_worker(moment: str, tmp_path: Path) -> None:
    assert_loads(tmp_path, _COLLECTS, moment)


_PLAIN = """
import gc, os, sys
from nvidia.dali import fn, pipeline_def
from support.loaders import make_loader
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider

class CollectingProvider(IndexProvider):
    def get_data(self, sample_index):
        gc.collect()
        return super().get_data(sample_index)

@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def plain():
    return fn.random.uniform(range=[0.0, 1.0], shape=[3])

gc.set_threshold(1_000_000)
pipeline = plain()
pipeline.build()
pipeline.run()
pipeline.me = pipeline
del pipeline
if sys.argv[1] == "DALI":
    with make_iterator(shuffled(CollectingProvider(8)), py_num_workers=1, py_start_method="fork") as iterator:
        print(indices(iterator), gc.isenabled())
elif sys.argv[1] == "loader":
    with make_loader(shuffled(CollectingProvider(8)), num_workers=1, start_method="fork") as loader:
        print(indices(loader), gc.isenabled())
else:
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(not gc.isenabled())
    assert os.waitpid(child, 0)[1] == 0
    print([[0, 1, 2, 3], [4, 5, 6, 7]], gc.isenabled())
"""


@pytest.mark.parametrize("forked", ["DALI", "loader", "program"])
def test_nor_is_a_pipeline_of_dali_that_is_not_ours(forked: str, tmp_path: Path) -> None:
    assert_loads(tmp_path, _PLAIN, forked)
