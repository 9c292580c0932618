"""The training loops that are killed and resumed, and the table of the docs that tells how they differ then.

Run this file, and it runs all of them and writes the table into `docs/dali_pipeline_framework/training_loops.md`.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import attrs
from kill_and_resume import NUM_EVALUATED, Difference, Part, TrainingLoop, difference, run
from support.page_tables import PageTable

TABLE = PageTable(
    "dali_pipeline_framework/training_loops.md",
    "dali_pipeline_framework/training_loops/loops.py",
    [
        "framework, example",
        "saved by",
        "ranks",
        "killed after step",
        "steps repeated",
        "loss",
        "other samples",
        "other pixels",
        "frames evaluated",
    ],
)

_SHARED = ("torch._dynamo", "tiny_drives", "tiny_model", "step_log")
_TORCH = (*_SHARED, "accelerate", "transformers.trainer", "pytorch_lightning", "mmengine.runner")
_JAX = ("tiny_drives", "step_log", "jax", "orbax.checkpoint")

# One row each. Those with the same imports share a server.
LOOPS = [
    TrainingLoop("PyTorch", "train_pytorch.py", "`torch.save`", (1, 1, 1), _SHARED),
    TrainingLoop("DistributedDataParallel", "train_ddp.py", "`torch.save`, rank 0", (2, 1, 2), _SHARED),
    TrainingLoop("Accelerate", "train_accelerate.py", "`Accelerator.save_state`", (2, 1, 2), _TORCH),
    TrainingLoop("Hugging Face Trainer", "train_hugging_face.py", "`trainer_state.json`", (2, 1, 2), _TORCH),
    TrainingLoop("Lightning", "train_lightning.py", "`ModelCheckpoint`", (2, 1, 2), _TORCH),
    TrainingLoop("MMEngine", "train_mmengine.py", "`CheckpointHook`", (2, 1, 2), _TORCH),
    TrainingLoop("JAX", "train_jax.py", "`orbax.checkpoint`", (2, 1, 2), _JAX),
]


@functools.cache
def undisturbed(is_jax: bool) -> Part:
    """What the first loop does on one rank where nothing disturbs it; that of JAX has other pixels and losses."""
    first = LOOPS[-1 if is_jax else 0]
    with tempfile.TemporaryDirectory() as folder:
        [part] = run(attrs.evolve(first, ranks=(1,)), Path(folder))
        return part


def row(loop: TrainingLoop, found: Difference) -> list[str]:
    """The row of the table that tells what was found."""
    return [
        f"{loop.name}, `{loop.script}`",
        loop.saved_by,
        " → ".join(map(str, loop.ranks)),
        ", ".join(map(str, loop.kills)),
        str(found.num_repeated),
        f"{found.loss:g}",
        f"{found.num_samples} of {found.num_compared}",
        f"{found.num_images} of {found.num_compared}",
        f"{NUM_EVALUATED} of {NUM_EVALUATED} once"
        if found.wrongly_evaluated == 0
        else f"{found.wrongly_evaluated} wrong",
    ]


def find_difference(loop: TrainingLoop, folder: Path) -> Difference:
    """Run a loop with kills, and compare it with the one that nothing disturbs."""
    return difference(undisturbed(loop.imports == _JAX), run(loop, folder))


def main() -> None:
    rows = []
    for loop in LOOPS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(loop, find_difference(loop, Path(folder))))
        print(rows[-1], file=sys.stderr)
    TABLE.write(rows)


if __name__ == "__main__":
    main()
