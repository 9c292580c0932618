"""Processing steps of the tests."""

from __future__ import annotations

from typing import Any

import nvidia.dali.fn as fn
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.sample_data import FormatProblem, SampleDataGroup, format_error


class KeepsFormat(PipelineStepBase):
    """Base of steps that change values only."""

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


class ImageUser(PipelineStepBase):
    """Wants UINT8 fields of a name, and leaves them as they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        paths = data_empty.find_all_occurrences(self.name)
        if not paths:
            raise KeyError("No occurrences of images found")
        problems = [
            FormatProblem(f"must be UINT8, got {data_empty.get_type_of_item_in_path(path).name}", path)
            for path in paths
            if data_empty.get_type_of_item_in_path(path) != DALIDataType.UINT8
        ]
        if problems:
            raise format_error(problems, "ImageUser:")
        return data_empty


class WrongTypeStep(PipelineStepBase):
    """Declares FLOAT and produces INT32."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        value = data[self.name]
        data.change_type_of_data_and_remove_data(self.name, DALIDataType.FLOAT)
        data[self.name] = fn.cast(value, dtype=DALIDataType.INT32)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.change_type_of_data_and_remove_data(self.name, DALIDataType.FLOAT)
        return data_empty


class Noise(PipelineStepBase):
    """Adds a number of a generator of DALI, which no draw declares."""

    def __init__(self, name: str = "noise") -> None:
        self.name = name

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data.add_data_field(self.name, DALIDataType.FLOAT)
        data[self.name] = fn.random.uniform(range=[0.0, 1.0])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field(self.name, DALIDataType.FLOAT)
        return data_empty


class Doubler(PipelineStepBase):
    """Doubles all fields of a name; the work may differ per sample through a conditional."""

    def __init__(self, name: str, above: float | None = None) -> None:
        self.name = name
        self.above = above

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self.name):
            value = data.get_item_in_path(path)
            if self.above is None:  # noqa: SIM114 (`value > above` is a node of the graph)
                result = value * 2
            elif value > self.above:
                result = value * 2
            else:
                result = value * 1
            data.set_item_in_path(path, result)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if not data_empty.find_all_occurrences(self.name):
            raise ValueError(f"no field {self.name!r}")
        return data_empty


class Renamer(PipelineStepBase):
    """Renames a field of the group that it is applied to."""

    def __init__(self, old: str, new: str) -> None:
        self.old = old
        self.new = new

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        value = data[self.old]
        data.add_data_field(self.new, data.get_type_of_field(self.old))
        data[self.new] = value
        data.remove_field(self.old)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field(self.new, data_empty.get_type_of_field(self.old))
        data_empty.remove_field(self.old)
        return data_empty


_PUBLISHED = {
    "image_names": "image_field_names",
    "hw_names": "image_hw_field_names",
    "projection_names": "projection_matrix_field_names",
    "point_names": "point_field_names",
    "on_gpu": "transform_image_on_gpu",
}


def as_published(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of steps that transform images, as `AffineTransformer` calls them."""
    return {_PUBLISHED.get(name, name): value for name, value in settings.items()}
