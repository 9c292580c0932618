"""Work grows in step with the number of data fields. Ratios, not times: other programs run here too."""

import gc
import time

import numpy as np
import pytest
from nvidia.dali.types import DALIDataType
from support.laws import spread

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


def flat(count):
    return SampleDataGroup.create_data_field_array(DALIDataType.FLOAT, count)


def groups_of_ten(count):
    return SampleDataGroup.create_data_group_field_array(flat(10), count // 10)


def tree(count):
    group = flat(10)
    while group.format.num_leaves < count:
        group = SampleDataGroup.create_data_group_field_array(group, 10)
    return group


def quickest(action, repetitions=7):
    """CPU time of this thread, so that what else runs on the machine hardly counts."""
    times = []
    gc.disable()
    try:
        for _ in range(repetitions):
            start = time.thread_time()
            action()
            times.append(time.thread_time() - start)
    finally:
        gc.enable()
    return min(times)


OPERATIONS = {
    "get_data": lambda group, values: group.get_data(),
    "set_data": lambda group, values: group.set_data(values),
    "get_empty_like_self": lambda group, values: group.get_empty_like_self(),
    "get_copy": lambda group, values: group.get_copy(),
    "format": lambda group, values: group.format,
    "to_dictionary": lambda group, values: group.to_dictionary(),
    "compare": lambda group, values: group == group.get_copy(),
    "flat_names": lambda group, values: (
        SampleDataGroup.from_format(type(group.format)(group.format.names, group.format.children)).field_names_flat
    ),
}


@spread("operation", OPERATIONS, 6)
@pytest.mark.parametrize("build", [flat, groups_of_ten, tree])
def test_linear_in_the_number_of_fields(build, operation):
    def cost(count):
        group, values = build(count), list(range(count))
        assert group.format.num_leaves == count
        group.set_data(values)
        return quickest(lambda: OPERATIONS[operation](group, values))

    # Linear is 10, quadratic 100. The constant keeps tiny times from deciding, the repetition a bad moment.
    assert any(cost(10_000) < 40 * cost(1_000) + 1e-3 for _ in range(3))


def test_samples_share_the_format_of_their_blueprint():
    blueprint = groups_of_ten(100)
    first, second = blueprint.get_empty_like_self(), blueprint.get_empty_like_self()
    first.set_data(range(100))
    assert first.format is second.format is blueprint.format
    assert first[3].format is second[7].format


def test_samples_share_the_format_of_a_blueprint_that_was_edited():
    blueprint = groups_of_ten(100)
    blueprint[3].add_data_field("more", DALIDataType.FLOAT)
    first, second = blueprint.get_empty_like_self(), blueprint.get_empty_like_self()
    assert first.format is second.format


@pytest.mark.parametrize("dtype", [DALIDataType.UINT8, DALIDataType.FLOAT])
def test_arrays_of_the_fields_type_are_copied_and_not_looked_at(dtype):
    group = SampleDataGroup()
    group.add_data_field("x", dtype)
    array = np.zeros(4_000_000, group.format.at(("x",)).numpy_dtype)

    def assign():
        group["x"] = array

    # A check of the values would take as long as the copy once more.
    assert any(quickest(assign) < 1.5 * quickest(array.copy) + 1e-4 for _ in range(5))
