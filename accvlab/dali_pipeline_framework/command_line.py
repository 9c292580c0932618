# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a provider, a definition or a loader of yours::

    python -m accvlab.dali_pipeline_framework describe module:function    its fields, and what each step changes
    python -m accvlab.dali_pipeline_framework show module:function        a picture of a sample or batch
    python -m accvlab.dali_pipeline_framework bench module:function       how fast it delivers, and why
    python -m accvlab.dali_pipeline_framework check module:function       whether it keeps the rules
    python -m accvlab.dali_pipeline_framework ledger FILES                whether each sample was delivered once
    python -m accvlab.dali_pipeline_framework lint module:function        whether each sample can be loaded

``function`` takes no arguments and returns a `DataProvider`, a `PipelineDefinition` or a `DataLoader`; it may also
be such an object itself. Modules are looked for in the current folder, too. The exit status is 0, 1 where
something is wrong with what was found, and 2 where the command cannot be understood.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import FrameworkError
from .ledgers.ledger_command import add_ledger_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if hasattr(options, "run_alone"):  # a command that does not look at an object of yours in this process
            return int(options.run_alone(options, _say))
        from .object_commands import run_command  # it imports DALI

        run_command(options)
    except (FrameworkError, AssertionError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m accvlab.dali_pipeline_framework",
        description="Look at a data provider, a pipeline definition, or a loader.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, help_text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_text, description=help_text)
        added.add_argument(
            "subject", metavar="module:function", help="returns a provider, a definition, or a loader"
        )
        return added

    command("describe", "Print the fields of the input, what each step changes, and what comes out.")
    showing = command("show", "Draw a sample of a provider, or of a batch of a loader.")
    showing.add_argument(
        "--sample", type=int, default=0, help="number of the sample: in the data set, or in a batch"
    )
    showing.add_argument("--frame", type=int, help="number of the frame of a clip; all of them if not given")
    showing.add_argument("--batch", type=int, default=0, help="number of the batch, of a loader")
    showing.add_argument("--frames", type=int, default=1, help="how many samples or batches, for a recording")
    showing.add_argument(
        "--output", type=Path, default=Path("sample.png"), help=".png; .rrd for a recording of rerun"
    )
    benching = command("bench", "Measure how fast it delivers.")
    benching.add_argument("--batches", type=int, default=50, help="how many to measure, or samples of a provider")
    linting = command("lint", "Load each sample of a data set, and decode its images.")
    linting.add_argument("--output", type=Path, help="file to which a line is added for each sample that fails")
    linting.add_argument("--workers", type=int, help="number of processes; the usable cores if not given")
    linting.add_argument(
        "--timeout", type=float, default=300.0, help="seconds after which a sample is one that does not end (300)"
    )
    linting.set_defaults(run_alone=_lint)
    command("check", "Check the rules of providers and formats, and deliver once.")
    add_ledger_command(commands)
    return parser


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _lint(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    from .testing.data_set_lint import run_lint

    run_lint(functools.partial(_found, options.subject), options.output, options.workers, say, options.timeout)
    return 0


def _found(subject: str) -> Any:
    """Get what a text ``module:function`` names, in any process."""
    from .object_commands import found

    return found(subject)
