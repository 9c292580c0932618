"""Settings for all decoders of a pipeline with a GPU: of images, of regions of them, and of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.frame_trees import write_frames
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.loaders import make_loader, pipeline_of
from support.pipelines import shuffled
from support.windows import frame_clips

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, ImageResizeCropFlipper

OPTIONS = {"hw_decoder_load": 0.9, "preallocate_height_hint": 900, "preallocate_width_hint": 1600}


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


def given(monkeypatch: pytest.MonkeyPatch, step: Any, provider: Any = None, **options: Any) -> dict[str, Any]:
    """What the decoder of a step is given in a pipeline for a GPU."""
    pretend_gpus(monkeypatch)
    definition = PipelineDefinition(shuffled(provider or images(), 2), [step])
    made = definition.get_dali_pipeline(num_threads=1, py_num_workers=0, device_id=0, **options)
    return settings_of_decoder(made)


@pytest.mark.parametrize("name", ["decoder", "resizer", "frames"])
def test_all_decoders_have_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step: Any = ImageDecoder("frames" if name == "frames" else "image", True)
    if name == "resizer":
        step = ImageResizeCropFlipper("image", output_hw=(8, 8), scale_range=None, is_encoded=True)
    provider = frame_clips(write_frames(tmp_path, {"a": 5}), 2) if name == "frames" else None
    assert given(monkeypatch, step, provider) == dict.fromkeys(OPTIONS)
    assert given(monkeypatch, step, provider, decoder_options=OPTIONS) == OPTIONS


def test_the_load_of_a_step_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ImageDecoder("image", True, hw_decoder_load=0.25)
    assert given(monkeypatch, step) == {**dict.fromkeys(OPTIONS), "hw_decoder_load": 0.25}
    assert given(monkeypatch, step, decoder_options=OPTIONS) == {**OPTIONS, "hw_decoder_load": 0.25}


def test_of_a_loader_which_ignores_them_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, how = [ImageDecoder("image", True)], {"pipeline_arguments": {"decoder_options": OPTIONS}}
    with make_loader(images(), 2, steps=steps, **how) as loader:
        assert next(iter(loader))["image"].shape == (2, 16, 24, 3)
    pretend_gpus(monkeypatch)
    assert settings_of_decoder(pipeline_of(make_loader(images(), 2, steps=steps, device_id=0, **how))) == OPTIONS
