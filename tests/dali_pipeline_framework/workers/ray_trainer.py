"""A training that does not end: writes which actors load for it, and goes on until it is killed."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

from ray_providers import SignedProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster import RayWorkers


def main() -> None:
    address, ready = sys.argv[1:]
    pids: set[int] = set()
    workers = RayWorkers(num_actors=2, num_cpus=0.1, address=address)
    with DataLoader(SignedProvider(40, 0.01), 4, output_type="numpy", workers=workers) as loader:
        for _ in itertools.count():
            for batch in loader:
                pids.update(batch["loaded_by"].tolist())
                if len(pids) == 2 and not os.path.exists(ready):
                    Path(f"{ready}.part").write_text(json.dumps(sorted(pids)))
                    os.rename(f"{ready}.part", ready)


if __name__ == "__main__":
    main()
