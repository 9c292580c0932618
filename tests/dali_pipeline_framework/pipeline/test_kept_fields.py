"""A program that keeps a field of each batch keeps its bytes, and not those of the other fields."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
from support.arrays import DT, ArrayProvider
from support.laws import some

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.processing_steps import ImageRange01Normalizer, LambdaStep

NUM_BATCHES, MIB = 16, 1 << 20
SETTINGS: dict[str, Any] = {"num_workers": 0, "output_type": "numpy", "ragged": {"boxes": "list"}}


def arrays_of(shape: tuple[int, ...]) -> list[np.ndarray]:
    return [np.full(shape, index) for index in range(4 * NUM_BATCHES)]


NUMBERS = range(4 * NUM_BATCHES)
# Per sample two clouds and two cameras of 256 KiB each, and some small fields.
LARGE = ArrayProvider(
    {
        "label": (DT.INT64, NUMBERS),
        "cloud": (DT.FLOAT, arrays_of((1 << 14, 4))),
        "image": (DT.UINT8, arrays_of((2, 2, 3))),
        "token": (DT.STRING, [f"sample {index}" for index in NUMBERS]),
        "boxes": (DT.FLOAT, [np.full((index % 3, 4), index) for index in NUMBERS]),
        "other": (DT.FLOAT, arrays_of((1 << 14, 4))),
        "cameras": {
            number: {
                "pixels": (DT.UINT8, arrays_of((MIB // 4,))),
                "gain": (DT.FLOAT, [index + number / 2 for index in NUMBERS]),
            }
            for number in range(2)
        },
    }
)


TAKEN: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    # What is kept of a batch, and what it must be for a sample.
    "label": (lambda batch: batch["label"], lambda index: index),
    "text": (lambda batch: batch["token"], lambda index: f"sample {index}"),
    "list": (lambda batch: batch["boxes"], lambda index: np.full((index % 3, 4), index)),
    "element": (lambda batch: batch["cameras"][1]["gain"], lambda index: index + 0.5),
    "stacked": (lambda batch: batch["cameras"]["gain"], lambda index: [index, index + 0.5]),
    "large": (lambda batch: batch["cloud"], lambda index: np.full((1 << 14, 4), index)),
    "large element": (lambda batch: batch["cameras"][0]["pixels"], lambda index: np.full(MIB // 4, index)),
}


def kept_mib(batches: Any, names: Sequence[str]) -> tuple[float, list[list[Any]]]:
    """Iterate over all batches; get the MiB per batch that are kept, and what is kept of each."""
    kept: list[list[Any]] = []
    process = psutil.Process()
    for number, batch in enumerate(batches):
        if number == 4:
            del batch
            gc.collect()
            before = process.memory_info().rss
            continue
        kept.append([TAKEN[name][0](batch) for name in names])
    del batch
    gc.collect()
    return (process.memory_info().rss - before) / MIB / (NUM_BATCHES - 5), kept


def assert_kept(kept: list[list[Any]], names: Sequence[str]) -> None:
    numbers = [number for number in range(NUM_BATCHES) if number != 4]
    for number, of_batch in zip(numbers, kept, strict=True):
        for name, values in zip(names, of_batch, strict=True):
            for slot, value in enumerate(values):
                np.testing.assert_array_equal(value, TAKEN[name][1](4 * number + slot))


STEPS: list[Any] = [
    LambdaStep(lambda value: value + 0, input_names="label", output_types={"label": DT.INT64}),
    ImageRange01Normalizer("image"),
]


@some(
    ("names", "settings"),
    [
        (["label", "text", "list", "element"], {}),
        (["large"], {}),
        (["large element"], {}),
        (["label", "list"], {"output_type": "torch"}),
        (["large"], {"output_type": "torch"}),
        *((["label"], {"steps": STEPS, "run": run}) for run in ("workers", "graph")),
        (["stacked"], {"stack_arrays": True}),
    ],
    {0, 1, 3, 7},
)
def test_a_kept_field_keeps_its_own_bytes(names: list[str], settings: dict[str, Any]) -> None:
    with DataLoader(LARGE, 4, **{**SETTINGS, **settings}) as loader:
        kept_mib(loader, names)
        mib, kept = kept_mib(loader, names)
    assert_kept(kept, names)
    assert mib < ("large" in names[0]) + 1  # a large field of a batch has 1 MiB
