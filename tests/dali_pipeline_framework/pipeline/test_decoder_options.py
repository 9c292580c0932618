"""Settings for all decoders of a pipeline with a GPU: of images, of regions of them, and of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.frame_trees import write_frames
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.loaders import pipeline_of
from support.pipelines import shuffled
from support.windows import frame_clips

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    ImageDecoder,
    ImageResizeCropFlipper,
)

OPTIONS = {"hw_decoder_load": 0.9, "preallocate_height_hint": 900, "preallocate_width_hint": 1600}
NONE_GIVEN = dict.fromkeys(OPTIONS)


def images() -> ArrayProvider:
    return ArrayProvider({"image": (DT.UINT8, [encoded_image(gradient(16, 24, phase)) for phase in range(4)])})


def settings_of_decoder(pipeline: Any) -> dict[str, Any]:
    """Those that the only decoder was given, after DALI has accepted them."""
    assert checked_by_dali(pipeline).num_decoders == 1
    (given,) = (
        each._op._init_args
        for each in pipeline._ops
        if getattr(each._op, "schema_name", "").startswith("decoders__")
    )
    return {name: given.get(name) for name in OPTIONS}


STEPS = {
    "decoder": lambda: ImageDecoder("image", True),
    "resizer": lambda: ImageResizeCropFlipper("image", output_hw=(8, 8), scale_range=None, is_encoded=True),
    "frames": lambda: ImageDecoder("frames", True),
}


@pytest.mark.parametrize("name", STEPS)
def test_all_decoders_have_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    provider: Any = images()
    if name == "frames":
        provider = frame_clips(write_frames(tmp_path, {"a": 5}), 2)
    definition = PipelineDefinition(shuffled(provider, 2), [STEPS[name]()])
    made = {"num_threads": 1, "py_num_workers": 0, "device_id": 0}
    assert settings_of_decoder(definition.get_dali_pipeline(**made)) == NONE_GIVEN
    assert settings_of_decoder(definition.get_dali_pipeline(**made, decoder_options=OPTIONS)) == OPTIONS


def test_of_a_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    loader = DataLoader(
        images(),
        2,
        steps=[ImageDecoder("image", True)],
        device_id=0,
        num_workers=0,
        pipeline_arguments={"decoder_options": OPTIONS},
    )
    assert settings_of_decoder(pipeline_of(loader)) == OPTIONS


def test_the_load_of_a_step_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    definition = PipelineDefinition(shuffled(images(), 2), [ImageDecoder("image", True, hw_decoder_load=0.25)])
    made: dict[str, Any] = {"num_threads": 1, "py_num_workers": 0, "device_id": 0}
    expected = {**NONE_GIVEN, "hw_decoder_load": 0.25}
    assert settings_of_decoder(definition.get_dali_pipeline(**made)) == expected
    expected = {**OPTIONS, "hw_decoder_load": 0.25}
    assert settings_of_decoder(definition.get_dali_pipeline(**made, decoder_options=OPTIONS)) == expected


def test_on_the_cpu_they_have_no_effect() -> None:
    definition = PipelineDefinition(shuffled(images(), 2, shuffle=False), [ImageDecoder("image", True)])
    made: dict[str, Any] = {"num_threads": 1, "py_num_workers": 0}
    found = [
        np.array(definition.get_dali_pipeline(**made, **options).run()[0][1])
        for options in ({}, {"decoder_options": OPTIONS})
    ]
    assert np.array_equal(*found)
