"""DALI keeps the memory of batches of a few megabytes, unless the user wants it otherwise."""

from __future__ import annotations

import os

from support.child_processes import run_python

SCRIPT = """
    import os
    import resource

    import numpy as np
    from support.arrays import DT, ArrayProvider
    from accvlab.dali_pipeline_framework import DataLoader, ImageRange01Normalizer

    images = [np.full((256, 512, 3), number, np.uint8) for number in range(80)]
    pictures = ArrayProvider({"image": (DT.UINT8, images)})

    def page_faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    steps = [ImageRange01Normalizer("image")]
    where = {"run": "graph", "num_workers": 0, "output_type": "numpy"}
    with DataLoader(pictures, batch_size=4, steps=steps, **where) as loader:
        batches = iter(loader)
        for _ in range(8):
            next(batches)
        before = page_faults()
        for _ in range(10):
            next(batches)
        print((page_faults() - before) / 10 * os.sysconf("SC_PAGE_SIZE"))
"""
BYTES_OF_BATCH = 4 * 256 * 512 * 3 * 4


def test_memory_of_batches_is_used_again() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DALI_MALLOC_POOL_THRESHOLD"}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)  # larger blocks always come from the system anew
    new_bytes_per_batch = float(run_python(SCRIPT, env=environment, check=True).stdout)
    assert new_bytes_per_batch < 0.5 * BYTES_OF_BATCH
