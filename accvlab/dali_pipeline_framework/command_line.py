# SPDX-License-Identifier: Apache-2.0
"""Commands::

    python -m accvlab.dali_pipeline_framework ledger FILES                whether each sample was delivered once
    python -m accvlab.dali_pipeline_framework lint module:function        whether each sample can be loaded

``function`` takes no arguments and returns a `DataProvider`, a `PipelineDefinition` or a `DataLoader`; it may also
be such an object itself. Modules in the current folder are found, too. The exit status is 0; 1 where problems were
found; and 2 where the command is not valid.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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


def add_command(commands: Commands, name: str, help_text: str) -> argparse.ArgumentParser:
    """Add a command on a ``module:function``."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    added.add_argument("subject", metavar="module:function", help="returns a provider, a definition, or a loader")
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
    linting.add_argument(
        "--timeout", type=float, default=300.0, help="seconds after which a sample is one that does not end (300)"
    )
    linting.set_defaults(run=_lint)


def _lint(options: argparse.Namespace, say: Say) -> int:
    from .testing.data_set_lint import run_lint

    run_lint(functools.partial(found, options.subject), options.output, options.workers, say, options.timeout)
    return 0


def found(subject: str) -> Any:
    """Get the object of a text ``module:function``: the result of the function, or the object of this name.

    Raises:
        SettingError: It is not of that form, the module cannot be imported, it has no such function, or the result
            is of another class.
    """
    from .loader.data_loader import DataLoader  # it imports DALI
    from .pipeline.pipeline import PipelineDefinition
    from .providers.data_provider import DataProvider

    module_name, _, name = subject.partition(":")
    if not module_name or not name:
        raise SettingError(f"The subject must be written module:function, got {subject!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, TypeError) as error:
        if isinstance(error, TypeError) and not module_name.startswith("."):  # "..": relative to nothing
            raise
        raise SettingError(f"The module of {subject!r} cannot be imported: {error}.") from error
    if not hasattr(module, name):
        raise SettingError(f"{module_name!r} has no function {name!r}.{did_you_mean(name, vars(module))}")
    result = getattr(module, name)
    if callable(result) and not isinstance(result, DataProvider | PipelineDefinition | DataLoader):
        result = result()
    if not isinstance(result, DataProvider | PipelineDefinition | DataLoader):
        raise SettingError(
            f"{subject!r} must return a DataProvider, a PipelineDefinition or a DataLoader, got "
            f"{type(result).__name__}."
        )
    return result
