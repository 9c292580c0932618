# SPDX-License-Identifier: Apache-2.0
"""What a sample is: named fields in a tree, their types, and the values in them.

The rooms, from the bottom up::

    names       names and paths of fields, and how they are written
    dtypes      DALI types and their NumPy counterparts
    mappings    labels to numbers
    formats     the format of a sample as an immutable value
    conversion  values of all kinds to arrays of a field's type
    strings     text to bytes and back
    equality    equality of values, for == between samples
    printing    samples as text for people
    random_draws  what a step declares to draw, and what the numbers depend on
    draw_records  the numbers that were drawn for a sample, to be kept and replayed
    format_errors, format_problems   messages about formats that do not fit
    format_queries      what can be asked about a sample without data: the base of
    sample_data_group   the class that users see: a format and the values that fill it
"""

from accvlab.dali_pipeline_framework.sample_data.conversion import FieldValue, as_numpy, converted
from accvlab.dali_pipeline_framework.sample_data.draw_records import (
    DrawRecord,
    record_from_json,
    record_to_json,
    records_of_batch,
)
from accvlab.dali_pipeline_framework.sample_data.dtypes import (
    get_dali_type_for_numpy_type,
    get_numpy_type_for_dali_type,
)
from accvlab.dali_pipeline_framework.sample_data.format_problems import (
    FormatProblem,
    describe_difference,
    format_error,
)
from accvlab.dali_pipeline_framework.sample_data.format_queries import FieldType
from accvlab.dali_pipeline_framework.sample_data.formats import (
    ChildFormat,
    GroupFormat,
    LeafFormat,
    leaf_format,
)
from accvlab.dali_pipeline_framework.sample_data.mappings import ValueMapping
from accvlab.dali_pipeline_framework.sample_data.names import (
    FieldPath,
    Name,
    Path,
    flat_name,
    format_path,
    normalized_path,
)
from accvlab.dali_pipeline_framework.sample_data.nesting import nested_dictionary
from accvlab.dali_pipeline_framework.sample_data.random_draws import (
    DrawKey,
    FieldKey,
    IntegerDraw,
    NormalDraw,
    PlannedDraw,
    RandomDraw,
    UniformDraw,
    is_shared,
)
from accvlab.dali_pipeline_framework.sample_data.sample_data_group import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.strings import decoded, encoded

__all__ = [
    "ChildFormat",
    "DrawKey",
    "DrawRecord",
    "FieldKey",
    "FieldPath",
    "FieldType",
    "FieldValue",
    "FormatProblem",
    "GroupFormat",
    "IntegerDraw",
    "LeafFormat",
    "Name",
    "NormalDraw",
    "Path",
    "PlannedDraw",
    "RandomDraw",
    "SampleDataGroup",
    "UniformDraw",
    "ValueMapping",
    "as_numpy",
    "converted",
    "decoded",
    "describe_difference",
    "encoded",
    "flat_name",
    "format_error",
    "format_path",
    "get_dali_type_for_numpy_type",
    "get_numpy_type_for_dali_type",
    "is_shared",
    "leaf_format",
    "nested_dictionary",
    "normalized_path",
    "record_from_json",
    "record_to_json",
    "records_of_batch",
]
