import doctest
import importlib
import pkgutil

import pytest

from accvlab.dali_pipeline_framework import sample_data

MODULES = [info.name for info in pkgutil.iter_modules(sample_data.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(f"{sample_data.__name__}.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("cls", ["SampleDataGroup", "GroupFormat", "LeafFormat", "ValueMapping"])
def test_public_classes_have_an_example(cls):
    assert ">>>" in getattr(sample_data, cls).__doc__
