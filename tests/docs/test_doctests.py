"""The examples in docstrings print what they say."""

import doctest
import importlib
import pkgutil

import pytest

from accvlab import dali_pipeline_framework, driving_data
from accvlab.dali_pipeline_framework import providers, sample_data, sampling, sources

MODULES = [
    info.name
    for package in (dali_pipeline_framework, driving_data)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name.removeprefix("accvlab."))
def test_examples_run(name):
    runner = doctest.DocTestRunner()
    for docstring in doctest.DocTestFinder().find(importlib.import_module(name)):
        if docstring.examples:  # `doctest.testmod` would make a debugger for each of thousands without one
            runner.run(docstring)
    assert runner.summarize().failed == 0


@pytest.mark.parametrize(
    ("room", "name"),
    [
        *((sample_data, name) for name in ("SampleDataGroup", "GroupFormat", "LeafFormat", "ValueMapping")),
        *((sampling, name) for name in sampling.__all__ if name.endswith("Sampler")),
        (providers, "ConcatDataProvider"),
        (sources, "Shard"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_public_classes_have_an_example(room, name):
    assert ">>>" in getattr(room, name).__doc__


def test_all_modules_are_reached():
    names = "dali_pipeline_framework.sampling.plans.tracks", "driving_data.datasets.driving.driving_index"
    assert {f"accvlab.{name}" for name in names} <= {*MODULES}
