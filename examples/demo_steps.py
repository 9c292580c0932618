"""Two processing steps of one's own: one that changes a type, one that adds a field.

A step answers "which format comes out for this format?" before anything is built, and "do it" once, while
the graph is defined: the values are DALI nodes then, and are read and set as if they were data.
"""

from collections.abc import Mapping, Sequence

from nvidia.dali import fn, types

from accvlab.dali_pipeline_framework import PipelineStepBase, SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data import FieldPath, FormatProblem, format_error
from accvlab.dali_pipeline_framework.sample_data.names import Name

__all__ = ["BoxPadder", "ImageResizer"]


class ImageResizer(PipelineStepBase):
    """Brings every image field of a name to one size, ready for a network.

    Input: (height, width, 3) ``UINT8``, from `ImageDecoder`; sizes may differ from sample to sample.
    Output, in the same field: (3, height_px, width_px) ``FLOAT`` in [0, 1]. The picture is stretched where
    its aspect ratio is another one.

    Matrices that project to pixels, next to the image in the same group, are scaled along, so that they fit
    the new picture: rows 0 and 1 of (3, M) ``FLOAT`` or ``FLOAT64``. (0, 0) is the top-left corner of the
    top-left pixel, so there is no shift by half a pixel.

    Args:
        image_name: Name of the image fields.
        height_px: Height of the output.
        width_px: Width of the output.
        matrix_names: Names of the matrices; groups that lack some of them are fine.

    Raises:
        ValueError: The size is not positive.
    """

    def __init__(self, image_name: Name, height_px: int, width_px: int, matrix_names: Sequence[Name] = ()) -> None:
        """Take the settings."""
        if height_px < 1 or width_px < 1:
            raise ValueError(f"`height_px` and `width_px` must be at least 1, got {height_px} and {width_px}.")
        self._image_name = image_name
        self._height_px = height_px
        self._width_px = width_px
        self._matrix_names = tuple(matrix_names)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        paths = data_empty.find_all_occurrences(self._image_name)
        problems = _problems_of_selection(data_empty, self._image_name, paths)
        for path in paths:
            problems += _problems_of_type(data_empty, path, (types.DALIDataType.UINT8,), "a decoded image")
            for matrix_path in self._matrix_paths(data_empty, path):
                dtypes = (types.DALIDataType.FLOAT, types.DALIDataType.FLOAT64)
                problems += _problems_of_type(data_empty, matrix_path, dtypes, "a matrix")
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot resize:")
        for path in paths:
            data_empty.change_type_of_data_and_remove_data(path, types.DALIDataType.FLOAT)
        return data_empty

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._image_name):
            image = data.get_item_in_path(path)
            old_shape = fn.cast(image.shape(), dtype=types.DALIDataType.FLOAT)  # height, width, channels
            scale = fn.stack(self._width_px / old_shape[1], self._height_px / old_shape[0], 1.0)
            for matrix_path in self._matrix_paths(data, path):
                matrix = data.get_item_in_path(matrix_path)
                data.set_item_in_path(matrix_path, matrix * fn.reshape(scale, shape=[3, 1]))
            resized = fn.resize(image, size=(self._height_px, self._width_px), antialias=False)
            data.change_type_of_data_and_remove_data(path, types.DALIDataType.FLOAT)
            data.set_item_in_path(
                path,
                fn.crop_mirror_normalize(
                    resized, dtype=types.DALIDataType.FLOAT, output_layout="CHW", mean=[0.0] * 3, std=[255.0] * 3
                ),
            )
        return data

    def _matrix_paths(self, data: SampleDataGroup, image_path: FieldPath) -> list[FieldPath]:
        return [
            (*image_path[:-1], name) for name in self._matrix_names if name in data.get_parent_of_path(image_path)
        ]


class BoxPadder(PipelineStepBase):
    """Pads groups whose data fields have one row per object, where samples have different numbers of them.

    Each data field (N, ...) of the group becomes (largest N of the batch, ...), filled up at the end. The new
    field with the name ``count_name``, a scalar ``INT32``, keeps N.

    Args:
        group_name: Name of the groups, anywhere in the sample.
        fill_values: Value for the rows behind the last object, by field name; 0 for the others.
        count_name: Name of the new field.
    """

    def __init__(
        self, group_name: Name, fill_values: Mapping[Name, float] | None = None, count_name: Name = "count"
    ) -> None:
        """Take the settings."""
        self._group_name = group_name
        self._fill_values = dict(fill_values or {})
        self._count_name = count_name

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        paths = data_empty.find_all_occurrences(self._group_name)
        problems = _problems_of_selection(data_empty, self._group_name, paths)
        for path in paths:
            problems += self._problems_of_group(data_empty, path)
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot pad:")
        for path in paths:
            data_empty.get_item_in_path(path).add_data_field(self._count_name, types.DALIDataType.INT32)
        return data_empty

    def _problems_of_group(self, data: SampleDataGroup, path: FieldPath) -> list[FormatProblem]:
        if not data.path_exists_and_is_data_group_field(path):
            return [FormatProblem("must be a group with one data field per property, is a data field", path)]
        group = data.get_item_in_path(path)
        problems = [
            FormatProblem("must be a data field with one row per object, is a group", (*path, name))
            for name in group
            if group.is_data_group_field(name)
        ]
        problems += [
            FormatProblem("must have one row per object, is text", (*path, name))
            for name in group
            if group.get_type_of_field(name) == types.DALIDataType.STRING
        ]
        problems += [
            FormatProblem("must exist, as it has a fill value", (*path, name), error_type=KeyError)
            for name in self._fill_values
            if name not in group
        ]
        if not len(group):
            problems.append(FormatProblem("must have at least one data field", path))
        if self._count_name in group:
            message = "the name must be free for the number of objects; choose another `count_name`"
            problems.append(FormatProblem(message, (*path, self._count_name)))
        return problems

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._group_name):
            group = data.get_item_in_path(path)
            names = group.keys()
            count = fn.cast(group[names[0]].shape()[0], dtype=types.DALIDataType.INT32)
            for name in names:
                group[name] = fn.pad(group[name], axes=(0,), fill_value=self._fill_values.get(name, 0))
            group.add_data_field(self._count_name, types.DALIDataType.INT32)
            group[self._count_name] = count
        return data


def _problems_of_selection(data: SampleDataGroup, name: Name, paths: Sequence[FieldPath]) -> list[FormatProblem]:
    if paths:
        return []
    fields = ", ".join(data.field_names_flat) or "none"
    return [FormatProblem(f"nothing has the name {name!r}. Fields: {fields}", error_type=KeyError)]


def _problems_of_type(
    data: SampleDataGroup, path: FieldPath, dtypes: Sequence[types.DALIDataType], meaning: str
) -> list[FormatProblem]:
    if data.path_exists_and_is_data_group_field(path):
        return [FormatProblem(f"must be {meaning}, is a group", path)]
    got = data.get_type_of_item_in_path(path)
    names = " or ".join(dtype.name for dtype in dtypes)
    return [] if got in dtypes else [FormatProblem(f"must be {names} ({meaning}), got {got.name}", path)]
