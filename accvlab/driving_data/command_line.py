# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a provider, a definition or a loader of yours::

    python -m accvlab.driving_data describe module:function    its fields, and what each step changes
    python -m accvlab.driving_data show module:function        a picture of a sample or batch
    python -m accvlab.driving_data bench module:function       how fast it delivers, and why
    python -m accvlab.driving_data check module:function       whether it keeps the rules
    python -m accvlab.driving_data lint module:function        whether each sample can be loaded

``function`` takes no arguments and returns a `DataProvider`, a `PipelineDefinition`, a `DataLoader`, or a data set
of PyTorch; it may also be such an object itself, or a class. In place of the module, ``file.py`` names a file, and
the folder of a data set may be given for its provider: ``describe /data/nuscenes``. With ``--recipe streampetr``
the command looks at the loader of this recipe for the data set. Modules in the current folder are found, too. The
exit status is 0; 1 where something is wrong with what was found; and 2 where the command is not valid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from accvlab.dali_pipeline_framework.command_line import add_command, add_lint_command, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m accvlab.driving_data",
        description="Describe, draw, measure or check a data provider, a pipeline definition or a loader.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    more = "; or the folder of a data set"
    add_command(commands, "describe", "Print the input fields, the changes by steps, and the output fields.", more)
    showing = add_command(commands, "show", "Draw a sample of a provider, or of a batch of a loader.", more)
    showing.add_argument(
        "--sample", type=int, default=0, help="number of the sample: in the data set, or in a batch"
    )
    showing.add_argument("--frame", type=int, help="number of the frame to draw of a clip; all if not given")
    showing.add_argument("--batch", type=int, default=0, help="number of the batch to draw, of a loader")
    showing.add_argument("--frames", type=int, default=1, help="samples or batches to save in a recording")
    showing.add_argument(
        "--output", type=Path, default=Path("sample.png"), help="file: .png, or .rrd for a recording of rerun"
    )
    benching = add_command(commands, "bench", "Measure how fast a provider or loader delivers.", more)
    benching.add_argument("--batches", type=int, default=50, help="batches to measure, or samples of a provider")
    add_command(commands, "check", "Check a provider and the steps, and that a loader delivers.", more)
    for command in commands.choices.values():
        command.add_argument("--recipe", metavar="NAME", help="take the loader of this recipe, e.g. streampetr")
        command.set_defaults(run=_look_at_object)
    add_lint_command(commands)
    return run_command(parser.parse_args(arguments))


def _look_at_object(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    from .object_commands import look_at_object  # it imports DALI

    look_at_object(options, say)
    return 0
