# SPDX-License-Identifier: Apache-2.0
"""How a failure in a worker process gets to the user.

DALI carries nothing but the text of an exception from a worker to the parent. So the worker writes a report
into that text: first what a person reads, then one line for `WorkerReport.find`.
"""

from __future__ import annotations

import builtins
import importlib
import json
import traceback

import attrs

from accvlab.dali_pipeline_framework.errors import SourceError, error_that_is_also

_MARK = "\n[dali_pipeline_framework report] "


class ReportedFailure(RuntimeError):
    """Raised in a worker; its text is an encoded `WorkerReport`."""


@attrs.frozen
class WorkerReport:
    """A failure while a sample was loaded."""

    message: str
    sample_index: int | None
    exception_types: tuple[tuple[str, str], ...]  # (module, qualified name), most derived first
    traceback: str

    @classmethod
    def of_exception(cls, error: BaseException, where: str, sample_index: int | None) -> WorkerReport:
        """Describe an exception that the user's code raised."""
        what = "a sample" if sample_index is None else f"sample {sample_index}"
        name = type(error).__name__
        text = str(error)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = (
            f"Loading {what} failed with {name}{': ' if text else ''}{text}\n"
            f"  where: {where}\n\nTraceback of the process that loads the data:\n{trace.rstrip()}"
        )
        types = tuple(
            (base.__module__, base.__qualname__)
            for base in type(error).__mro__
            if issubclass(base, Exception) and base is not Exception
        )
        return cls(message, sample_index, types, trace)

    @classmethod
    def of_problem(cls, message: str, sample_index: int | None) -> WorkerReport:
        """Describe data that broke a rule; the message says it all."""
        return cls(message, sample_index, (("builtins", "ValueError"), ("builtins", "TypeError")), "")

    def encode(self) -> str:
        """Text for the exception that crosses the process border."""
        return self.message + _MARK + json.dumps(attrs.asdict(self))

    @classmethod
    def find(cls, error: BaseException) -> WorkerReport | None:
        """Find the report behind an error that the engine raised, if there is one."""
        link: BaseException | None = error
        while link is not None:
            for text in link.args:
                if isinstance(text, str) and _MARK in text:
                    encoded = text.rsplit(_MARK, 1)[1].splitlines()[0]
                    fields = json.loads(encoded)
                    fields["exception_types"] = tuple(tuple(pair) for pair in fields["exception_types"])
                    return cls(**fields)
            link = link.__cause__
        return None

    def to_error(self) -> SourceError:
        """Make the error that the user gets; ``except`` clauses for the original type catch it."""
        resolved = [cls for cls in map(_resolve, self.exception_types) if cls is not None]
        also = resolved[:2] if self.traceback == "" else resolved[:1]
        error = error_that_is_also(SourceError, also, self.message)
        if not isinstance(error, SourceError):  # cannot be: the class is derived from SourceError
            raise TypeError(f"unexpected error class {type(error)}")
        error.sample_index = self.sample_index
        error.original_type = self.exception_types[0][1] if self.exception_types else None
        error.worker_traceback = self.traceback or None
        return error


def _resolve(name: tuple[str, str]) -> type[Exception] | None:
    module_name, qualified_name = name
    try:
        found: object = builtins if module_name == "builtins" else importlib.import_module(module_name)
        for part in qualified_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
