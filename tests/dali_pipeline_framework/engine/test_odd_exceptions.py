"""Exceptions that cannot be printed or pickled still name their sample."""

from __future__ import annotations

import builtins
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.loaders import answers, make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import DeviceError, SourceError, causes_of, error_that_is_also, text_of


def raising(make: Callable[[], BaseException]) -> Callable[..., Any]:
    def call(*_: object) -> None:
        raise make()

    return call


def odd_error(name: str, *bases: type[Exception], **methods: Callable[..., Any]) -> Any:
    """A class of exceptions with some methods of its own."""
    return type(name, bases or (Exception,), {"__module__": __name__, **methods})


def _init_with_lock(self: Any, text: str) -> None:
    Exception.__init__(self, text)
    self.lock, self.function = threading.Lock(), lambda: 1


def _init_with_two(self: Exception, one: int, two: int) -> None:
    Exception.__init__(self, f"one={one} two={two}")


NoTextError = odd_error("NoTextError", __str__=raising(lambda: RuntimeError("no text")))
NoReprError = odd_error("NoReprError", __repr__=raising(lambda: RuntimeError("no repr")))
NoTextOfArgumentsError = odd_error("NoTextOfArgumentsError", NoReprError, NoTextError)
UnpicklableError = odd_error("UnpicklableError", __init__=_init_with_lock)
ExitingPickleError = odd_error("ExitingPickleError", __reduce__=lambda self: (os._exit, (3,)))
TwoArgumentsError = odd_error("TwoArgumentsError", __init__=_init_with_two)


def group() -> None:
    kind: Any = getattr(builtins, "ExceptionGroup", None)  # of Python 3.11
    raise NoTextError if kind is None else kind("needle", [NoTextError(), OSError(2, "inner", "a.jpg")])


def of_no_text() -> None:
    try:
        raise NoTextError("inner")
    except NoTextError as error:
        raise ValueError("needle") from error


SHOWN = r"\(its text cannot be shown: `__str__` raised "
ODD: dict[str, tuple[Callable[[], None], str]] = {
    "text": (raising(lambda: NoTextError("a", 1)), rf"NoTextError: {SHOWN}RuntimeError\) a 1"),
    "neither": (raising(lambda: NoTextOfArgumentsError(NoReprError())), rf"NoTextOfArgumentsError: {SHOWN}Runt"),
    "unpicklable": (raising(lambda: UnpicklableError("needle")), "UnpicklableError: needle"),
    "pickle": (raising(lambda: ExitingPickleError("needle")), "ExitingPickleError: needle"),
    "arguments": (raising(lambda: TwoArgumentsError(1, 2)), "TwoArgumentsError: one=1 two=2"),
    "group": (group, "ExceptionGroup: needle" if sys.version_info >= (3, 11) else "NoTextError: "),
    "cause": (of_no_text, "ValueError: needle"),
    "long": (
        raising(lambda: ValueError("needle" + "x" * 5_000_000)),
        r"ValueError: needlex{15994} \[... 4980006 characters left out ...\] x{4000}\n",
    ),
    "surrogate": (raising(lambda: ValueError("needle \udcff\ud800")), r"ValueError: needle \\udcff\\ud800"),
}


class OddProvider(IndexProvider):
    """Sample 5 raises an exception."""

    def __init__(self, name: str) -> None:
        super().__init__(8)
        self.name = name

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index == 5:
            ODD[self.name][0]()
        return super().get_data(sample_index)


@pytest.mark.parametrize("name", ODD)
def test_the_error_names_the_sample(name: str) -> None:
    with make_loader(OddProvider(name), 2, num_workers=1) as loader:
        found = [*answers(loader)]
    errors = [answer for answer in found if isinstance(answer, SourceError)]
    received = [answer["index"].tolist() for answer in found if not isinstance(answer, SourceError)]
    assert received == [[0, 1], [2, 3], [6, 7]]
    assert [error.sample_index for error in errors] == [5]
    message = str(errors[0])
    assert re.search(f"sample 5 failed with {ODD[name][1]}", message)
    assert len(message.encode()) < 200_000
    copied = pickle.loads(pickle.dumps(errors[0]))
    assert (str(copied), copied.sample_index) == (message, 5)


def test_the_text_of_an_exception_always_exists() -> None:
    assert text_of(KeyError("a")) == "'a'"
    assert text_of(ValueError("")) == ""
    assert text_of(NoTextOfArgumentsError("a")) == ("(its text cannot be shown: `__str__` raised RuntimeError) a")


def test_errors_that_refer_to_each_other_are_visited_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert [*causes_of(one)] == [one, other]


def test_an_error_of_two_classes_is_pickled() -> None:
    error = error_that_is_also(SourceError, [DeviceError, KeyError], "text")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert issubclass(type(copied), KeyError)
    assert (isinstance(copied, SourceError), str(copied)) == (True, "text")
