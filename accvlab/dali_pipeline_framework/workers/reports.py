# SPDX-License-Identifier: Apache-2.0
"""Transport of a failure from a worker process to the user.

DALI carries nothing but the text of an exception from a worker to the parent. So the worker writes a report
into that text: first what a person reads, then one line for `WorkerReport.find`.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import traceback
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import cast

import attrs

from ..engine.dali.texts import is_about_device
from ..errors import (
    DeviceError,
    FieldValueError,
    FileError,
    FrameworkError,
    MissingPackageError,
    SourceError,
    causes_of,
    error_that_is_also,
    is_of_missing_package,
    printable,
    readable,
    text_of,
)
from ..sample_data.names import FieldPath, format_path
from ..sample_data.sample_data_group import SampleDataGroup, place_of
from .process_setup import decorating

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_NAMESPACE = os.path.join(os.path.dirname(_PACKAGE), "")  # with the packages on top of this one
# Rooms and modules through which every call of a provider or step goes.
_ON_THE_WAY = tuple(
    os.path.join(_PACKAGE, *parts)
    for parts in (
        ("engine", ""),
        ("workers", ""),
        ("sources", ""),
        ("pipeline", ""),
        ("providers", "sample_loading.py"),
        ("processing_steps", "pipeline_step_base.py"),
    )
)
# Names by which modules are installed, where they are others.
_INSTALLED_AS = {"cv2": "opencv-python-headless", "PIL": "pillow", "yaml": "pyyaml", "fsspec": "'fsspec[http]'"}
_LONGEST_TRACEBACK = 100_000
_MARK = "\n[dali_pipeline_framework report] "


class ReportedFailure(RuntimeError):  # noqa: N818 (a messenger, not an error that users meet)
    """Raised in a worker; its text is the encoded report, which is all that DALI carries to the main process."""

    def __init__(self, report: WorkerReport) -> None:
        """Set what is reported."""
        super().__init__(report.encode())
        self.report = report


@attrs.frozen
class WorkerReport:
    """A failure while a sample was loaded."""

    message: str
    sample_index: int | None
    exception_types: tuple[tuple[str, str], ...]  # (module, qualified name), most derived first
    traceback: str
    worker: int | None = None
    is_of_missing_package: bool = False
    is_about_device: bool = False
    errno: int | None = None  # of an OSError

    @classmethod
    def of_exception(
        cls,
        error: BaseException,
        where: str,
        sample_index: int | None,
        what: str | None = None,
        details: Sequence[str] = (),
        worker: int | None = None,
    ) -> WorkerReport:
        """Describe an exception of the user's code; ``what`` has failed (None: loading the sample).

        ``worker`` is the number of its process; None for the main process.
        """
        error = readable(error)
        what = what or f"Loading {'a sample' if sample_index is None else f'sample {sample_index}'}"
        text = f": {text}" if (text := text_of(error)) else ""
        group = whole = trace = ""
        with decorating():
            group = _group_that_refused(error)
        with decorating():
            whole, trace = _tracebacks_of_user_code(error)
        text += f"\n  group: {group}" if group else ""
        message = f"{what} failed with {type(error).__name__}{text}\n  where: {where}"
        message += "".join(f"\n{line}" for line in details)
        is_of_package = is_of_missing_package(error)
        if is_of_package and not isinstance(error, FrameworkError):
            message += f"\n  A package is missing, whatever the sample. Install it{_command_for(error)}."
        is_of_device = is_about_device(error)
        if is_of_device:
            message += "\n  The GPU has failed, or its memory has run out, whatever the sample."
        if trace:
            message += f"\n\nTraceback of the process that loads the data:\n{trace}"
        types = tuple(
            (base.__module__, base.__qualname__)
            for base in type(error).__mro__
            if issubclass(base, BaseException) and base not in (Exception, BaseException)
        )
        number = error.errno if isinstance(error, OSError) and isinstance(error.errno, int) else None
        return cls(message, sample_index, types, whole, worker, is_of_package, is_of_device, number)

    @classmethod
    def of_problem(cls, message: str, sample_index: int | None, worker: int | None = None) -> WorkerReport:
        """Describe data that broke a rule; the message says it all."""
        types = ((FieldValueError.__module__, FieldValueError.__qualname__),)
        return cls(message, sample_index, types, "", worker)

    def with_note(self, note: str) -> WorkerReport:
        """Get a report that begins with a note."""
        return attrs.evolve(self, message=f"{note}\n{self.message}")

    def encode(self) -> str:
        """Text for the exception that crosses the process border."""
        return self.message + _MARK + json.dumps(attrs.asdict(self))

    @classmethod
    def find(cls, error: BaseException) -> WorkerReport | None:
        """Find the report in an error that the engine raised, if there is one."""
        for link in causes_of(error):
            for text in link.args:
                if isinstance(text, str) and _MARK in text:
                    encoded = text.rsplit(_MARK, 1)[1].splitlines()[0]
                    fields = json.loads(encoded)
                    fields["exception_types"] = tuple(tuple(pair) for pair in fields["exception_types"])
                    return cls(**fields)
        return None

    def to_error(self) -> SourceError:
        """Make the error that the user gets; ``except`` clauses for the original type catch it."""
        resolved = [cls for cls in map(_resolve, self.exception_types) if cls is not None]
        known = {MissingPackageError: self.is_of_missing_package, DeviceError: self.is_about_device}
        also = [cls for cls, is_one in known.items() if is_one] + resolved[:1]
        error = cast(SourceError, error_that_is_also(SourceError, also, self.message))
        vars(error).update(  # which a class of the user may refuse otherwise
            sample_index=self.sample_index,
            original_type=self.exception_types[0][1] if self.exception_types else None,
            worker_traceback=self.traceback or None,
            worker=self.worker,
        )
        if isinstance(error, OSError):
            error.errno = self.errno
        return error


def _command_for(error: BaseException) -> str:
    """How to install the package of a module that cannot be imported: ``: pip install ...``; empty if unknown."""
    link = next((link for link in causes_of(error) if isinstance(link, ImportError)), None)
    given = getattr(link, "name", None)
    name = given.partition(".")[0] if isinstance(given, str) else ""
    return f": pip install {_INSTALLED_AS.get(name, name)}" if name else ""


def names_its_file(error: BaseException) -> bool:
    """Whether an error says itself which file it is about."""
    return isinstance(error, FileError) or (isinstance(error, OSError) and error.filename is not None)


def _tracebacks_of_user_code(error: BaseException) -> tuple[str, str]:
    """The traceback from the first frame on that is not of what leads to the user's code; empty for none.

    Returns:
        All of it, and what of it belongs after a message that has the text of the error: without that text, and
        without the cause of a `FileError`, whose text has the reason. Of one that no code of the user leads to,
        nothing.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_ON_THE_WAY):
        trace = trace.tb_next
    if trace is None and error.__cause__ is None:
        return "", ""
    whole = traceback.TracebackException(type(error), error, trace)
    is_of_file = isinstance(error, FileError)
    lines = [*whole.format(chain=not is_of_file)]
    end = len(lines) - len([*whole.format_exception_only()])
    notes = [f"{note}\n" for note in getattr(error, "__notes__", ())]
    frames = traceback.extract_tb(trace)
    if is_of_file and all(frame.filename.startswith(_NAMESPACE) for frame in frames):
        return _readable(whole.format()), ""
    return _readable(whole.format()), _readable([*lines[:end], *notes])


def _readable(lines: Iterable[str]) -> str:
    return printable("".join(lines).rstrip(), _LONGEST_TRACEBACK)


def _group_that_refused(error: BaseException) -> str:
    """Path of the group that has refused a value, in its sample, ``cameras[1]``; empty if it is not known.

    A group does not know what it is in, so its error names only the field. The sample is a variable of the code
    that has set the field.
    """
    if not isinstance(error, FrameworkError):
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    groups = [group for frame in frames for group in _groups_in(frame)]
    refused = next((found for frame in reversed(frames) for found in _groups_in(frame)), None)
    places: list[FieldPath] = [] if refused is None else [place_of(refused, group) for group in groups]
    path = format_path(max(places, key=lambda place: len([*place]), default=()))
    return "" if path in text_of(error) else path


def _groups_in(frame: FrameType) -> list[SampleDataGroup]:
    return [value for value in frame.f_locals.values() if isinstance(value, SampleDataGroup)]


def _resolve(name: tuple[str, str]) -> type[Exception] | None:
    module_name, qualified_name = name
    try:
        found: object = builtins if module_name == "builtins" else importlib.import_module(module_name)
        for part in qualified_name.split("."):
            found = getattr(found, part)
    except Exception:  # whatever a module does when it is imported: only the second type of the error is lost
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
