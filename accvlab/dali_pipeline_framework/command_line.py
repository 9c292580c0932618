# SPDX-License-Identifier: Apache-2.0
"""Commands::

    python -m accvlab.dali_pipeline_framework ledger FILES                whether each sample was delivered once
    python -m accvlab.dali_pipeline_framework lint module:function        whether each sample can be loaded

``function`` takes no arguments and returns a `DataProvider`, a `PipelineDefinition`, a `DataLoader`, or a data set
of PyTorch; it may also be such an object itself, or a class. In place of the module, ``file.py`` names a file;
modules in the current folder are found, too. ``:function`` may be left out where there is only one object or
function, or else only one class. The exit status is 0; 1 where problems were found; and 2 where the command is not
valid.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from .checks import did_you_mean
from .errors import FrameworkError, SettingError
from .ledgers import certify

Say: TypeAlias = Callable[[str], None]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m accvlab.dali_pipeline_framework", description="Look at a data set, or at ledgers."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_ledger_command(commands)
    add_lint_command(commands)
    return run_command(parser.parse_args(arguments))


def run_command(options: argparse.Namespace) -> int:
    """Run ``options.run`` with the options and a function that prints a text; returns the exit status."""
    try:
        return int(options.run(options, _say))
    except (FrameworkError, AssertionError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)  # noqa: T201
        return 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def add_command(commands: Commands, name: str, help_text: str, more: str = "") -> argparse.ArgumentParser:
    """Add a command on a ``module:function``; ``more`` says what else its subject may be."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    forms = "module:name or file.py:name of a provider, definition or loader, or of a function that returns one"
    added.add_argument("subject", metavar="module:function", help=f"{forms}{more}")
    return added


def _add_ledger_command(commands: Commands) -> None:
    about = (
        "Certify from the ledgers of all ranks and restarts of a training that each sample was delivered exactly "
        "once in each epoch, or list what is missing or was delivered more often."
    )
    parser: argparse.ArgumentParser = commands.add_parser("ledger", help=about, description=about)
    parser.add_argument("files", metavar="FILES", nargs="+", type=Path, help="ledgers, or folders of them")
    parser.add_argument("--samples", type=int, help="samples of the data set, where the ledgers do not have it")
    parser.add_argument("--epochs", type=int, nargs="+", help="only these epochs")
    parser.set_defaults(run=_certify)


def _certify(options: argparse.Namespace, say: Say) -> int:
    certificate = certify(options.files, num_samples=options.samples, epochs=options.epochs)
    say(str(certificate))
    return 0 if certificate.is_exact else 1


def add_lint_command(commands: Commands) -> None:
    """Add the command ``lint``."""
    linting = add_command(commands, "lint", "Load each sample of a data set, and decode its images.")
    linting.add_argument("--output", type=Path, help="file to which a line is added for each sample that fails")
    linting.add_argument("--workers", type=int, help="number of processes; the usable cores if not given")
    linting.add_argument(  # a remote file is tried several times, for a minute each
        "--timeout", type=float, default=300.0, help="seconds after which a sample is one that does not end (300)"
    )
    linting.set_defaults(run=_lint)


def _lint(options: argparse.Namespace, say: Say) -> int:
    from .testing.data_set_lint import run_lint

    if os.path.isdir(options.subject):
        raise _folder_error(options.subject)
    _check_place(options.subject)  # here, where that takes no time; processes import DALI first
    run_lint(functools.partial(found, options.subject), options.output, options.workers, say, options.timeout)
    return 0


def found(subject: str, provider_of_folder: Callable[[Path], Any] | None = None) -> Any:
    """Get the provider, definition or loader that a text names.

    Args:
        subject: ``module:name`` or ``file.py:name``: an object, or a function or class without arguments that
            makes one. Without ``:name``, the only one that there is. Data sets of PyTorch are wrapped.
        provider_of_folder: Opens a folder of data; None: folders are refused.

    Raises:
        SettingError: It cannot be imported, has no such name, or is something else.
    """
    if os.path.isdir(subject):
        if provider_of_folder is None:
            raise _folder_error(subject)
        return provider_of_folder(Path(subject))
    place, _, name = subject.partition(":")
    module = _imported(subject)
    if not name:
        names = [each for each in vars(module) if _is_candidate(module, each)]
        names = names or [each for each in vars(module) if _is_class_of_user(module, each)]
        if len(names) != 1:
            which = f"one of {', '.join(f'{place}:{each}' for each in names)}" if names else _FORMS
            raise SettingError(f"{subject!r} must say what is meant, e.g. as module:function. Name {which}.")
        name = names[0]
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            owner = f"{place!r}" if value is module else f"{type(value).__name__} in {subject!r}"
            raise SettingError(f"{owner} has no function {part!r}.{did_you_mean(part, dir(value))}")
        value = getattr(value, part)
    return _usable(value, subject)


_FORMS = "module:function or file.py:function, which returns a DataProvider, a PipelineDefinition or a DataLoader"


def _folder_error(subject: str) -> SettingError:
    return SettingError(f"{subject!r} is a folder. Name {_FORMS}.")


def _check_place(subject: str) -> str:
    """Return the module or file that a text names, if there is one. Nothing is imported."""
    place = subject.partition(":")[0]
    is_file = place.endswith(".py")
    if os.path.isfile(place) and not is_file:
        raise SettingError(f"{place!r} is no file of Python. Write a function that opens it, and name {_FORMS}.")
    if is_file and not os.path.isfile(place):
        raise SettingError(f"There is no file {place!r}. Name {_FORMS}.")
    if os.sep in place and not is_file:
        raise SettingError(f"There is no folder {place!r}. Name {_FORMS}.")
    folder = os.path.dirname(os.path.abspath(place)) if is_file else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)  # where workers look, too
    if not is_file:
        first = place.partition(".")[0]
        if not place:
            raise _import_error(subject, "Empty module name")
        if not all(part.isidentifier() for part in place.split(".")):
            raise _import_error(subject, f"{place!r} is no name of a module")
        if first not in sys.modules and importlib.util.find_spec(first) is None:
            nor = "" if ":" in subject else ", nor is there such a folder"
            raise _import_error(subject, f"No module named {first!r}{nor}")
    return place


def _import_error(subject: str, reason: object) -> SettingError:
    return SettingError(f"The module of {subject!r} cannot be imported: {reason}. Name {_FORMS}.")


def _imported(subject: str) -> ModuleType:
    place = _check_place(subject)
    is_file = place.endswith(".py")
    try:
        module = importlib.import_module(Path(place).stem if is_file else place)
    except ModuleNotFoundError as error:
        raise _import_error(subject, error) from error
    if is_file and not os.path.samefile(module.__file__ or "", place):
        raise SettingError(
            f"{place!r} cannot be imported: its name is that of {module.__file__!r}. Rename the file."
        )
    return module


def _is_candidate(module: ModuleType, name: str) -> bool:
    """Whether a name of a module may be meant: an object, or a function of it without arguments."""
    value = vars(module)[name]
    if isinstance(value, _classes()):
        return True
    is_own = isinstance(value, FunctionType) and value.__module__ == module.__name__
    return is_own and not name.startswith("_") and name != "main" and not _arguments_of(value)


def _is_class_of_user(module: ModuleType, name: str) -> bool:
    """Whether a name of a module is a class of it that may be meant where the module makes no object."""
    value = vars(module)[name]
    is_own = isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
    return is_own and issubclass(value, _classes()) and not inspect.isabstract(value)


def _arguments_of(function: Any) -> list[str]:
    """Names of the arguments that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of an extension
        return []
    return [each.name for each in parameters if each.default is each.empty and each.kind not in (2, 4)]


def _classes() -> tuple[type, ...]:
    from .loader.data_loader import DataLoader  # it imports DALI
    from .pipeline.pipeline import PipelineDefinition
    from .providers.data_provider import DataProvider

    return (DataProvider, PipelineDefinition, DataLoader)


def _usable(value: Any, subject: str) -> Any:
    classes = _classes()
    if callable(value) and not isinstance(value, classes):
        arguments = _arguments_of(value)
        if arguments:
            problem = f"{subject!r} takes arguments ({', '.join(arguments)}), and is called without any"
            raise SettingError(f"{problem}. Name a function without arguments that returns what it makes.")
        value = value()
    if isinstance(value, classes):
        return value
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, _OF_PYTHON):
        from .providers.torch_dataset_provider import TorchDatasetProvider

        return TorchDatasetProvider(value)
    advice = (
        " A recipe makes a loader of a provider: name a function that returns recipe.loader(...), or, with the "
        "command of the package that has the recipe, a data set and --recipe."
    )
    raise SettingError(
        f"{subject!r} must return a DataProvider, a PipelineDefinition or a DataLoader, or a data set of PyTorch, "
        f"got {type(value).__name__}.{advice if hasattr(value, 'loader') else ''}"
    )


_OF_PYTHON = (str, bytes, list, tuple, dict, set)
