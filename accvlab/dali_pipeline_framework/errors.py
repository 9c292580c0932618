# SPDX-License-Identifier: Apache-2.0
"""All errors that this package raises on purpose.

Each class also derives from the builtin exception that code for the published accvlab catches in the same
situation, so ``except KeyError`` and the like keep working::

    FrameworkError
    ├── NameTypeError            (TypeError, AssertionError)      a name or path of an unsupported Python type
    ├── FieldNotFoundError       (KeyError)                       no such field
    ├── DuplicateFieldError      (KeyError)                       the name is taken
    ├── FieldKindError           (TypeError, ValueError, AssertionError, AttributeError)
    │                                                             a leaf where a group is needed, or the reverse
    ├── GroupFormatMismatchError (KeyError)                       a group of another format was assigned
    ├── FieldValueError          (ValueError, TypeError)          a value that does not fit its field
    ├── SettingError             (ValueError, AssertionError)     an argument that breaks a stated rule
    │   ├── UnknownArgumentError (TypeError)                      an argument that does not exist
    │   └── MissingPackageError  (ModuleNotFoundError)            a package that is needed is not installed
    ├── FormatError              (ValueError)                     one or more problems found in a sample format
    ├── StepOutputError          (AssertionError)                 a step did not produce the format it declared
    ├── ContractError            (AssertionError)                 a step or provider of one's own breaks a rule
    ├── SourcePicklingError      (TypeError)                      an input cannot be sent to a spawned worker
    ├── SourceError              (RuntimeError)                   a sample could not be loaded
    ├── WorkerDiedError          (RuntimeError)                   a worker process ended unexpectedly
    ├── WorkerStartError         (RuntimeError)                   the worker processes could not be started
    ├── GraphError               (RuntimeError)                   an operator failed on a batch, or a step treated
    │                                                             nodes of the graph as arrays
    ├── OutputError              (RuntimeError)                   a batch cannot be returned as requested
    ├── DeviceError              (RuntimeError)                   a GPU is requested and not usable, or has failed
    ├── TooManyFailedError       (RuntimeError)                   more samples have failed than allowed
    ├── QuarantineError          (ValueError)                     a list of failed samples cannot be used
    ├── StateError               (ValueError)                     the state of a loader cannot be used
    ├── FileError                (OSError)                        a file or folder cannot be read or written
    ├── VideoError               (ValueError, RuntimeError)       a file is not a video, or is damaged
    ├── NothingFedError          (RuntimeError)                   an input has delivered all that it was fed
    ├── ClosedError              (RuntimeError)                   the pipeline, iterator or stream was closed
    └── NotSupportedError        (AttributeError, RuntimeError)   a step, sampler or provider cannot do this
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs


class FrameworkError(Exception):
    """Base class of all errors that this package raises on purpose, except the TypeError of ``len``."""

    def __str__(self) -> str:
        # KeyError would print the `repr` of its argument: one long line with escaped line breaks.
        return str(self.args[0]) if self.args else ""


class NameTypeError(FrameworkError, TypeError, AssertionError):
    """A field name or path is of an unsupported Python type."""


class FieldNotFoundError(FrameworkError, KeyError):
    """A field does not exist."""


class DuplicateFieldError(FrameworkError, KeyError):
    """A field of that name exists already."""


class FieldKindError(FrameworkError, TypeError, ValueError, AssertionError, AttributeError):
    """A data field (leaf) was found where a group is needed, or a group where a leaf is needed."""


class GroupFormatMismatchError(FrameworkError, KeyError):
    """A group was assigned whose format differs from the format of the field."""


class FieldValueError(FrameworkError, ValueError, TypeError):
    """A value does not fit the field that it is meant for."""


class SettingError(FrameworkError, ValueError, AssertionError):
    """An argument breaks a rule that is stated in the message."""


class UnknownArgumentError(SettingError, TypeError):
    """A class or method was given an argument that it does not have."""


class MissingPackageError(SettingError, ModuleNotFoundError):
    """A package that is needed cannot be imported; the message says how to install it.

    It never counts as a fault of a sample: it ends the run, also where failing samples are skipped.
    """


def is_of_missing_package(error: BaseException | None) -> bool:
    """Whether an error, or an error that it was raised from, is an `ImportError`."""
    return any(isinstance(link, ImportError) for link in causes_of(error))


@attrs.frozen
class FormatProblem:
    """One thing that is wrong with a sample format.

    Attributes:
        message: The rule, the value that was got, and a remedy.
        path: The field, as a tuple of names; None for a problem of several fields.
        step: The processing step that found it; None if it is not known.
        error_type: Class of which the raised `FormatError` is also an instance because of this problem, so that
            ``except`` of this class catches it.
    """

    message: str
    path: tuple[str | int, ...] | None = None
    step: str | None = None
    error_type: type[Exception] = ValueError


class FormatError(FrameworkError, ValueError):
    """One or more problems were found in a sample format; the message lists all of them.

    Attributes:
        problems: The problems one by one.
    """

    problems: tuple[FormatProblem, ...] = ()


class StepOutputError(FrameworkError, AssertionError):
    """A processing step produced another format than it declared."""


class ContractError(FrameworkError, AssertionError):
    """A step or provider breaks rules that all of them must keep; the message lists each broken rule."""


class SourcePicklingError(FrameworkError, TypeError):
    """An input object cannot be pickled, so it cannot be sent to a spawned worker process."""


class SourceError(FrameworkError, RuntimeError):
    """Loading a sample failed, in a worker or in this process.

    Attributes:
        sample_index: Index of the sample in the data set; None if it is not known.
        original_type: Name of the exception's type as raised in the worker, e.g. ``"FileNotFoundError"``.
        worker_traceback: The traceback as formatted in the worker.
        worker: Number of the worker process, from 0; None if it happened in this process.
    """

    sample_index: int | None = None
    original_type: str | None = None
    worker_traceback: str | None = None
    worker: int | None = None


class WorkerDiedError(FrameworkError, RuntimeError):
    """A worker process ended unexpectedly (killed, out of memory, crashed), or hung and was ended.

    Attributes:
        loading: The samples that the lost workers were loading, as far as known: (epoch, batch, slot) -> index in
            the data set, None where it is not known.
        is_repeated: Whether these samples have ended several workers already.
    """

    loading: Mapping[tuple[int, int, int], int | None] = MappingProxyType({})
    is_repeated: bool = False

    @property
    def sample_indices(self) -> tuple[int, ...]:
        """Indices of the samples that the lost workers were loading, as far as they are known."""
        return tuple(index for index in self.loading.values() if index is not None)


class WorkerStartError(FrameworkError, RuntimeError):
    """The worker processes could not be started.

    Attributes:
        was_killed: Whether a signal has ended one of them, so that another attempt may succeed.
    """

    was_killed: bool = False


class GraphError(FrameworkError, RuntimeError):
    """An operator of the graph failed on a batch, or a step failed because it treated nodes of the graph as
    arrays.

    Attributes:
        sample_indices: Indices in the data set of the samples that caused it, as far as known.
    """

    sample_indices: tuple[int, ...] = ()


class TooManyFailedError(FrameworkError, RuntimeError):
    """More samples have failed than the `FaultPolicy` of the loader allows; the message sums them up.

    Attributes:
        failed_samples: The samples, see `FailedSample`.
    """

    failed_samples: tuple[object, ...] = ()


class QuarantineError(FrameworkError, ValueError):
    """A list of failed samples cannot be read, or cannot be written when the loader is made."""


class OutputError(FrameworkError, RuntimeError):
    """A batch cannot be returned in the form that was requested."""


class DeviceError(FrameworkError, RuntimeError):
    """A GPU is requested and is not usable; or it has failed, e.g. its memory ran out.

    It never counts as a fault of a sample: it is raised also where failing samples are skipped.
    """


class StateError(FrameworkError, ValueError):
    """The state of a loader cannot be used: it is damaged, or belongs to other data or another order.

    Attributes:
        differences: The differences, one line each; empty if the state cannot be read, or if nothing differs but
            the numbers of batches, of shards, or of samples per batch.
    """

    differences: tuple[str, ...] = ()


class FileError(FrameworkError, OSError):
    """A file or folder cannot be read or written.

    The error is also an instance of the builtin class of its cause, e.g. `FileNotFoundError`.
    """


class VideoError(FrameworkError, ValueError, RuntimeError):
    """A file is not a video, is damaged or incomplete, or does not match its header."""


class NothingFedError(FrameworkError, RuntimeError):
    """An input that the user feeds has delivered all data; feed it again, then repeat the request."""


class ClosedError(FrameworkError, RuntimeError):
    """The pipeline, iterator or stream has been closed."""


class NotSupportedError(FrameworkError, AttributeError, RuntimeError):
    """A step, sampler, provider or loader does not support a request, e.g. a feature of PyTorch's DataLoader."""


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Get an error, and the errors that it was raised from; each once, also where they refer to each other."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def readable(error: BaseException) -> BaseException:
    """Get an error that can be examined without failing: the same one, or a `RuntimeError` with its text.

    Properties and metaclasses of the user's exceptions may fail, and would hide the original error.
    """
    try:
        for link in causes_of(error):
            _ = [(cls.__module__, cls.__name__, cls.__qualname__) for cls in type(link).__mro__]
            _ = isinstance(link, OSError) and (link.errno, link.strerror, link.filename)
    except Exception as failure:
        name = type.__dict__["__name__"].__get__(type(error))
        text = f"{name}: {text_of(error)} (it cannot be read: it raised {type(failure).__name__})"
        replaced = RuntimeError(text).with_traceback(BaseException.__dict__["__traceback__"].__get__(error))
        with contextlib.suppress(Exception):
            vars(replaced).update(vars(error))
        return replaced
    return error


_LONGEST_TEXT = 20_000  # of an exception: a value that somebody has put into a message may be a whole array


def text_of(error: BaseException) -> str:
    """Get the text of any exception in a form that can be printed, sent and written; it never fails.

    If ``__str__`` of the class fails, the arguments are shown. Characters that cannot be encoded are escaped, and
    the middle of a text of more than 20,000 characters is left out.
    """
    try:
        text = str.__str__(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        problem = f"(its text cannot be shown: `__str__` raised {type(failure).__name__})"
        text = f"{problem} {_shown_arguments(error)}".rstrip()
    return printable(text)


def _shown_arguments(error: BaseException) -> str:
    try:
        arguments: tuple[object, ...] = error.args
        return " ".join(value if type(value) is str else repr(value) for value in arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def printable(text: str, most: int = _LONGEST_TEXT) -> str:
    """Get a text that can be encoded as UTF-8; the middle of a text of over ``most`` characters is left out."""
    if len(text) > most:
        end = most // 5
        text = f"{text[: most - end]} [... {len(text) - most} characters left out ...] {text[-end:]}"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


_OF_SYSTEM = ("errno", "strerror", "filename")  # what an OSError has
_NUMBERS: dict[type[BaseException], int] = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}
_combined_classes: dict[tuple[type[FrameworkError], type[Exception]], type[FrameworkError]] = {}


def _combined_class(error_class: type[FrameworkError], also: type[Exception]) -> type[FrameworkError]:
    if issubclass(error_class, also):
        return error_class
    if (error_class, also) in _combined_classes:
        return _combined_classes[error_class, also]

    def __init__(self: FrameworkError, *args: object) -> None:  # noqa: N807
        # The other class's own __init__ may want arguments that nobody has here.
        self.args = args

    def __new__(cls: type[FrameworkError], *args: object) -> FrameworkError:  # noqa: N807
        # Python accepts only the __new__ of the base with the largest memory layout (e.g. OSError's).
        return also.__new__(cls)

    name = f"{error_class.__name__}[{also.__name__}]"

    def __reduce__(self: FrameworkError) -> tuple[object, ...]:  # noqa: N807
        # Pickle would look for the class by its name; and the other class may have a `__reduce__` that fails.
        others = [name for name in _OF_SYSTEM if isinstance(getattr(self, name, None), int | str)]
        state = {**self.__dict__, **{name: getattr(self, name) for name in others}}
        return error_that_is_also, (parts[0], parts[1:], str(self)), state

    parts: tuple[Any, ...] = (*vars(error_class).get("_parts", (error_class,)), also)
    methods = {"__init__": __init__, "__new__": __new__, "__reduce__": __reduce__}
    namespace = {**methods, "_parts": parts, "__module__": error_class.__module__}
    combined = type(name, (error_class, also), namespace)
    _combined_classes[error_class, also] = combined
    return combined


def error_that_is_also(
    error_class: type[FrameworkError], also: Iterable[type[BaseException] | BaseException], message: str
) -> FrameworkError:
    """Make an ``error_class`` that ``except`` clauses for each class in ``also`` catch too.

    Classes that cannot be combined (an exotic memory layout, or not an ordinary exception) are left out. Where
    one in ``also`` is an OSError and no class, the error has its number and file name, too.
    """
    combined = error_class
    also = list(also)
    classes = [type(each) if isinstance(each, BaseException) else each for each in also]
    for cls in dict.fromkeys(classes):
        if not issubclass(cls, Exception):
            continue
        try:
            combined = _combined_class(combined, cls)
        except Exception:  # also what an `__init_subclass__` of the user raises
            continue
    try:
        error = combined(message)
    except Exception:  # an exotic __new__: the message matters more than the second type
        error = error_class(message)
    if isinstance(error, OSError):
        error.errno = next((_NUMBERS[cls] for cls in classes if cls in _NUMBERS), None)
        for cause in also:
            if isinstance(cause, OSError):
                for name in _OF_SYSTEM:
                    with contextlib.suppress(AttributeError):  # PyAV's errors are given theirs by their arguments
                        setattr(error, name, getattr(cause, name))
    return error


def reason_of(error: BaseException) -> str:
    """Get the text of an error; the text of an OSError comes without its number and path."""
    return (error.strerror if isinstance(error, OSError) else None) or text_of(error) or type(error).__name__


def file_error(what: str, error: Exception, error_class: type[FrameworkError] = FileError) -> FrameworkError:
    """Make an ``error_class`` with the text ``what: reason.``; of an OSError, it has the class as well."""
    also = [error] if isinstance(error, OSError) else []
    return error_that_is_also(error_class, also, f"{what}: {reason_of(error).rstrip('.')}.")
