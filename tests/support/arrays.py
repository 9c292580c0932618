"""A data provider over values that a test writes down, and encoded images."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from nvidia.dali import types
from PIL import Image

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup

DT = types.DALIDataType


class ArrayProvider(DataProvider):
    """Sample ``i`` holds value ``i`` of each field.

    The fields are a tree of dicts; a leaf is the type, and a list with one value per sample::

        ArrayProvider({"index": (DT.INT64, [0, 1]), "cameras": {0: {"gain": (DT.FLOAT, [0.5, 1.5])}}})
    """

    def __init__(self, fields: Mapping[str | int, Any], convert: bool = True) -> None:
        self.fields = fields
        self.convert = convert

    def get_number_of_samples(self) -> int:
        node: Any = self.fields
        while isinstance(node, Mapping):
            node = next(iter(node.values()))
        return len(node[1])

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return _blueprint(self.fields)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample.set_do_convert(self.convert)
        _fill(sample, self.fields, sample_index)
        return sample


def _blueprint(fields: Mapping[str | int, Any]) -> SampleDataGroup:
    group = SampleDataGroup()
    for name, field in fields.items():
        if isinstance(field, Mapping):
            group.add_data_group_field(name, _blueprint(field))
        else:
            group.add_data_field(name, field[0])
    return group


def _fill(sample: SampleDataGroup, fields: Mapping[str | int, Any], index: int) -> None:
    for name, field in fields.items():
        if isinstance(field, Mapping):
            _fill(sample[name], field, index)
        else:
            sample[name] = field[1][index]


def gradient(height: int, width: int, phase: int = 0) -> np.ndarray:
    """A smooth color image, ``(height, width, 3)`` uint8: what JPEG reproduces well."""
    y, x = np.mgrid[:height, :width]
    channels = [
        x * 255 / max(width - 1, 1),
        y * 255 / max(height - 1, 1),
        np.full((height, width), 40 + 30 * phase),
    ]
    return np.stack(channels, -1).clip(0, 255).astype(np.uint8)


def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """An RGB image with details of all sizes as in photographs: amplitudes fall with the frequency."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    spectrum = np.fft.rfft2(rng.normal(size=(3, height, width))) / np.maximum(frequency, 2 / width) ** 1.4
    image = np.moveaxis(np.fft.irfft2(spectrum, (height, width)), 0, -1)
    image = image.mean(axis=-1, keepdims=True) + 0.3 * image
    return np.uint8(np.clip(128 + 50 * image / image.std(), 0, 255))


def encoded_image(pixels: np.ndarray, kind: str = "JPEG", **options: Any) -> np.ndarray:
    """The bytes of an image file, ``(num_bytes,)`` uint8."""
    buffer = io.BytesIO()
    if kind == "JPEG":
        options = {"quality": 100, "subsampling": 0, **options}
    Image.fromarray(pixels).save(buffer, kind, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decoded_by_pillow(encoded: np.ndarray) -> np.ndarray:
    """The pixels, ``(height, width, 3)`` uint8, by another decoder."""
    return np.asarray(Image.open(io.BytesIO(encoded.tobytes())).convert("RGB"))
