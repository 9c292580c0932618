"""Work grows in step with the number of data fields. Ratios, not times: other programs run here too."""

import gc
import time

import pytest
from nvidia.dali.types import DALIDataType
from support.laws import spread

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


def flat(count):
    return SampleDataGroup.create_data_field_array(DALIDataType.FLOAT, count)


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
@pytest.mark.parametrize("build", [flat, tree])
def test_linear_in_the_number_of_fields(build, operation):
    def cost(count):
        group, values = build(count), list(range(count))
        assert group.format.num_leaves == count
        group.set_data(values)
        return quickest(lambda: OPERATIONS[operation](group, values))

    # Linear is 10, quadratic 100. The constant keeps tiny times from deciding, the repetition a bad moment.
    assert any(cost(10_000) < 40 * cost(1_000) + 1e-3 for _ in range(3))


def test_samples_share_the_format_of_a_blueprint_also_after_an_edit():
    blueprint = SampleDataGroup.create_data_group_field_array(flat(2), 10)
    blueprint[3].add_data_field("more", DALIDataType.FLOAT)
    first, second = blueprint.get_empty_like_self(), blueprint.get_empty_like_self()
    first.set_data(range(21))
    assert first.format is second.format is blueprint.format
    assert first[2].format is second[7].format
