"""Messages that list several fields."""

import pytest

from accvlab.dali_pipeline_framework.sample_data import FormatProblem, format_error
from accvlab.dali_pipeline_framework.sample_data.names import alike_paths, format_paths


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], ""),
        ([("time",), ("cameras", 0, "image")], "time, cameras[0].image"),
        ([("cameras", i, "image") for i in (5, 1, 0, 3)], "cameras[0..1, 3, 5].image"),
        ([("frames", t, "cameras", c) for t in (0, 1) for c in (0, 2)], "frames[0..1].cameras[0, 2]"),
        ([("frames", 0, 1), ("frames", 1, 0)], "frames[0][1], frames[1][0]"),
        ([("a", 0, "x"), ("b", 0, "x"), ("a", 1, "x")], "a[0..1].x, b[0].x"),
        ([("a", 0), ("a", "0")], "a[0], a.0"),
        ([(0, "x"), (1, "x"), (0, "x")], "[0..1].x"),
    ],
)
def test_paths_that_differ_in_indices_are_written_together(paths, text):
    assert format_paths(paths) == text
    assert sorted(map(repr, set(paths))) == sorted(repr(path) for group in alike_paths(paths) for path in group)


def test_equal_problems_of_array_elements_share_a_line():
    def of_cameras(message, numbers, field, step):
        return [FormatProblem(message, ("cameras", i, field), step) for i in numbers]

    problems = [
        FormatProblem("no field has the name 'x'", None, "step 0 (A)"),
        *of_cameras("must be UINT8,\ngot FLOAT", range(6), "image", "step 0 (A)"),
        *of_cameras("must be UINT8,\ngot INT32", [6], "image", "step 0 (A)"),
        *of_cameras("must be FLOAT", [0, 1], "scale", "step 0 (A)"),
        FormatProblem("must be FLOAT", ("time",), "step 0 (A)"),
        *of_cameras("must be UINT8,\ngot FLOAT", [0, 2], "image", "step 1 (B)"),
    ]
    error = format_error(problems, "The steps do not fit:")
    assert error.problems == tuple(problems)
    assert str(error).splitlines() == [
        "The steps do not fit:",
        "  step 0 (A):",
        "    - no field has the name 'x'",
        "    - cameras[0..5].image: must be UINT8,",
        "      got FLOAT",
        "    - cameras[6].image: must be UINT8,",
        "      got INT32",
        "    - cameras[0..1].scale: must be FLOAT",
        "    - time: must be FLOAT",
        "  step 1 (B):",
        "    - cameras[0, 2].image: must be UINT8,",
        "      got FLOAT",
    ]
