"""Samples of arrays from what a test writes down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import get_dali_type_for_numpy_type


def sample_of(tree: Mapping[Any, Any]) -> SampleDataGroup:
    """Make a sample of dicts (groups), lists of dicts (arrays of groups), and arrays or numbers (fields)."""
    sample = SampleDataGroup()
    for name, value in tree.items():
        if isinstance(value, Mapping):
            group = sample_of(value)
            sample.add_data_group_field(name, group.get_empty_like_self())
            sample[name] = group
        elif isinstance(value, list):
            groups = [sample_of(element) for element in value]
            sample.add_data_group_field_array(name, groups[0].get_empty_like_self(), len(groups))
            for number, group in enumerate(groups):
                sample[name][number] = group
        else:
            array = np.asarray(value)
            sample.add_data_field(name, get_dali_type_for_numpy_type(array.dtype))
            sample[name] = array
    return sample


def group_of(**fields: Any) -> SampleDataGroup:
    """Group with the given fields: a DALI type, a blueprint, or of an array its blueprint and number of elements.

    Further arguments of a data field stand behind its type: ``image=(DT.UINT8, {"ndim": 1})``.
    """
    group = SampleDataGroup()
    for name, field in fields.items():
        given, more = field if isinstance(field, tuple) else (field, {})
        if not isinstance(given, SampleDataGroup):
            group.add_data_field(name, given, **more)
        elif isinstance(more, int):
            group.add_data_group_field_array(name, given, more)
        else:
            group.add_data_group_field(name, given)
    return group
