"""The examples in docstrings print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import inputs, sample_data

MODULES = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name.removeprefix(f"{package.__name__}."))
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
        *((inputs, name) for name in inputs.__all__ if name.endswith("Sampler")),
        *((inputs, name) for name in ("Clips", "ConcatDataProvider", "Shard", "class_balanced_weights")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_public_classes_have_an_example(room, name):
    assert ">>>" in getattr(room, name).__doc__


def test_all_modules_are_reached():
    assert {f"{package.__name__}.{name}" for name in ("sampling.plans.tracks", "loader.data_loader")} <= {*MODULES}
