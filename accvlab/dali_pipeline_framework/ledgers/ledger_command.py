# SPDX-License-Identifier: Apache-2.0
"""The command ``ledger``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SettingError
from .certificate import certify


def add_ledger_command(commands: Any) -> None:
    """Add the command to a parser."""
    about = (
        "Certify from the ledgers of all ranks and restarts of a training that each sample was delivered exactly "
        "once in each epoch, or list what is missing or was delivered more often."
    )
    parser: argparse.ArgumentParser = commands.add_parser("ledger", help=about, description=about)
    parser.add_argument("files", metavar="FILES", nargs="+", type=Path, help="ledgers, or folders of them")
    parser.add_argument("--times", type=int, help="how often in all epochs together; else once in each epoch")
    parser.add_argument("--samples", type=int, help="samples of the data set, where the ledgers do not tell")
    parser.add_argument("--epochs", type=int, nargs="+", help="only these epochs")
    parser.add_argument(
        "--anew",
        action="store_true",
        help="a loader that began without a state has begun the training anew: what was before is void",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    for name, least in (("times", 0), ("samples", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise SettingError(f"`--{name}` must be at least {least}, got {value}.")
    certificate = certify(
        options.files,
        times=options.times,
        num_samples=options.samples,
        epochs=options.epochs,
        counts_anew=options.anew,
    )
    say(str(certificate))
    return 0 if certificate.is_exact else 1
