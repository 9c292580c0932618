"""What the parent has left for its garbage collector does not hurt forked workers."""

from __future__ import annotations

import gc
import os
from typing import Any

from support.child_processes import run_python
from support.loaders import make_loader
from support.pipelines import indices, shuffled
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup


class CollectingProvider(IndexProvider):
    """Runs the garbage collector while it loads."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        gc.collect()
        return super().get_data(sample_index)


class Witness:
    """Fails the process that destroys it, unless that is the one that made it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.me: Any = self

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            os._exit(17)


def test_garbage_of_the_parent_is_not_destroyed_in_a_worker() -> None:
    gc.disable()
    try:
        pipeline = PipelineDefinition(shuffled(IndexProvider(20))).get_dali_pipeline(
            num_threads=2, py_num_workers=0
        )
        pipeline.run()
        pipeline.me = pipeline  # only the garbage collector can find out that it is dead
        del pipeline
        Witness()
        with make_loader(shuffled(CollectingProvider(20)), num_workers=2, start_method="fork") as loader:
            assert len(indices(loader)) == 5
    finally:
        gc.enable()
        gc.collect()


_COLLECTS_FIRST = """
import gc, os, sys
from support.loaders import make_loader
from support.pipelines import indices, shuffled
from support.providers import IndexProvider

class Witness:
    def __init__(self):
        self.pid, self.me = os.getpid(), self
    def __del__(self):
        if os.getpid() != self.pid:
            os._exit(17)

os.register_at_fork(after_in_child=lambda: gc.collect() if gc.isenabled() else None)
gc.set_threshold(1_000_000)
Witness()
with make_loader(shuffled(IndexProvider(8)), num_workers=1, start_method="fork") as loader:
    print(indices(loader), gc.isenabled())
"""


def test_nor_before_the_worker_runs_code_of_this_library() -> None:
    ended = run_python(_COLLECTS_FIRST)
    assert ended.stdout == "[[0, 1, 2, 3], [4, 5, 6, 7]] True\n", ended.stderr
