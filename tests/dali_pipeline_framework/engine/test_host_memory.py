"""DALI keeps the memory of batches of a few megabytes, unless the user wants it otherwise."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest
from support.child_processes import run_process

SCRIPT = """
    import os
    import resource
    import sys

    from nvidia.dali.types import DALIDataType
    from accvlab.dali_pipeline_framework import DataLoader, DataProvider, ImageRange01Normalizer, SampleDataGroup
    import numpy as np

    assert os.environ.get("DALI_MALLOC_POOL_THRESHOLD") == (sys.argv[1] or None)

    class Pictures(DataProvider):
        @property
        def sample_data_structure(self):
            sample = SampleDataGroup()
            sample.add_data_field("image", DALIDataType.UINT8, ndim=3)
            return sample

        def get_number_of_samples(self):
            return 80

        def get_data(self, sample_index):
            sample = self.sample_data_structure
            sample["image"] = np.full((256, 512, 3), sample_index, np.uint8)
            return sample

    def page_faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    steps = [ImageRange01Normalizer("image")]
    where = {"run": "graph", "num_workers": 0, "output_type": "numpy"}
    with DataLoader(Pictures(), batch_size=4, steps=steps, **where) as loader:
        batches = iter(loader)
        for _ in range(8):
            next(batches)
        before = page_faults()
        for _ in range(10):
            next(batches)
        print((page_faults() - before) / 10 * os.sysconf("SC_PAGE_SIZE"))
"""
BYTES_OF_BATCH = 4 * 256 * 512 * 3 * 4


def new_bytes_per_batch(threshold: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "DALI_MALLOC_POOL_THRESHOLD"}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)  # larger blocks always come from the system anew
    if threshold:
        environment["DALI_MALLOC_POOL_THRESHOLD"] = threshold
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), threshold]
    run = run_process(command, env=environment, timeout=100)
    assert run.returncode == 0, run.stderr
    return float(run.stdout)


@pytest.mark.parametrize(
    ("threshold", "is_kept"),
    [
        pytest.param("", True, id="by default"),
        pytest.param("1000M", False, marks=pytest.mark.wide, id="not wanted"),
    ],
)
def test_memory_of_batches_is_used_again(threshold: str, is_kept: bool) -> None:
    assert (new_bytes_per_batch(threshold) < 0.5 * BYTES_OF_BATCH) == is_kept
