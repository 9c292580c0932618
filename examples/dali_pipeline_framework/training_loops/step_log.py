"""A log of what a training has received and lost, step by step, for comparing one run with another."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["StepLog"]


class StepLog:
    """Appends a line of JSON per step and per batch of an evaluation to ``log_rank<rank>.jsonl``.

    Each line is there as soon as it is written, also where the process is killed then.

    Args:
        folder: Where the file is.
        rank: Number of this rank.
        num_ranks: How many there are.
    """

    def __init__(self, folder: Path, rank: int = 0, num_ranks: int = 1) -> None:
        """Open the file."""
        self._file = os.open(folder / f"log_rank{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._ranks = {"rank": rank, "num_ranks": num_ranks}

    def write_step(self, step: int, batch: Any, losses: Any) -> None:
        """Write the ids of the samples, a hash of the pixels of each, and its loss.

        Args:
            step: Number of the step, from 1, over all epochs.
            batch: What the loader has delivered.
            losses: (B,), per sample.
        """
        pixels = [hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest() for image in _array(_images(batch))]
        losses = [float(loss).hex() for loss in _array(losses)]
        self._write("step", step, ids=_ids(batch), pixels=pixels, losses=losses)

    def write_evaluation(self, epoch: int, batch: Any) -> None:
        """Write the ids of the samples of a batch of an evaluation, without padding."""
        is_padding = _array(batch["context"]["is_padding"])
        ids = [number for number, is_left_out in zip(_ids(batch), is_padding, strict=True) if not is_left_out]
        self._write("evaluation", epoch, ids=ids)

    def _write(self, kind: str, number: int, **values: Any) -> None:
        line = json.dumps({kind: number, **self._ranks, **values})
        os.write(self._file, f"{line}\n".encode())


def _ids(batch: Any) -> list[int]:
    return [int(number) for number in _array(batch["context"]["sample_index"])]


def _images(batch: Any) -> Any:
    return batch["cameras"]["image"]


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
