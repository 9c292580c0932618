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
import importlib
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .checks import did_you_mean
from .errors import FrameworkError, SettingError
from .ledgers.ledger_command import add_ledger_command
from .loader.data_loader import DataLoader
from .loader.reports.report import LoaderReport
from .pipeline.pipeline import PipelineDefinition
from .providers.data_provider import DataProvider


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if hasattr(options, "run_alone"):  # a command about files, not about an object of yours
            return int(options.run_alone(options, _say))
        subject = found(options.subject)
        try:
            options.run(subject, options)
        finally:
            if isinstance(subject, DataLoader):
                subject.close()
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

    def command(name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_text, description=help_text)
        added.add_argument(
            "subject", metavar="module:function", help="returns a provider, a definition, or a loader"
        )
        added.set_defaults(run=run)
        return added

    command("describe", _describe, "Print the fields of the input, what each step changes, and what comes out.")
    showing = command("show", _show, "Draw a sample of a provider, or of a batch of a loader.")
    showing.add_argument(
        "--sample", type=int, default=0, help="number of the sample: in the data set, or in a batch"
    )
    showing.add_argument("--batch", type=int, default=0, help="number of the batch, of a loader")
    showing.add_argument("--frames", type=int, default=1, help="how many samples or batches, for an animation")
    showing.add_argument(
        "--output",
        type=Path,
        default=Path("sample.png"),
        help=".png; .gif or .webp for an animation; .rrd for rerun",
    )
    benching = command("bench", _bench, "Measure how fast it delivers.")
    benching.add_argument("--batches", type=int, default=50, help="how many to measure, or samples of a provider")
    linting = command("lint", _lint, "Load each sample of a data set, and decode its images.")
    linting.add_argument("--output", type=Path, help="file to which a line is added for each sample that fails")
    linting.add_argument("--workers", type=int, help="number of processes; the usable cores if not given")
    linting.add_argument(
        "--timeout", type=float, default=300.0, help="seconds after which a sample is one that does not end (300)"
    )
    command("check", _check, "Check the rules of providers and formats, and deliver once.")
    add_ledger_command(commands)
    return parser


def found(subject: str) -> Any:
    """Get what a text ``module:function`` names: what the function returns, or the object.

    Raises:
        SettingError: It is not of that form, the module cannot be imported, it has no such function, or what it
            returns is something else.
    """
    module_name, _, name = subject.partition(":")
    if not module_name or not name:
        raise SettingError(f"The subject must be written module:function, got {subject!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
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


# --- commands -------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _describe(subject: Any, options: argparse.Namespace) -> None:
    if isinstance(subject, DataProvider):
        _say(f"{subject!r}\n\n{PipelineDefinition(_input_of(subject), []).describe()}")
    elif isinstance(subject, PipelineDefinition):
        _say(f"{subject!r}\n\n{subject.describe()}")
    else:
        _say(subject.describe())


def _input_of(provider: DataProvider) -> Any:
    from .sampling.shuffled_sampler import SequentialSampler
    from .sources.sampler_input_callable import SamplerInputCallable

    return SamplerInputCallable(provider, SequentialSampler(provider.get_number_of_samples(), 1))


def _show(subject: Any, options: argparse.Namespace) -> None:
    from .viewing.animations import save_animation
    from .viewing.pictures import show
    from .viewing.recordings import save_recording

    if isinstance(subject, PipelineDefinition):
        raise SettingError("A definition has no batches of its own: let the function return a DataLoader of it.")
    if options.frames < 1:
        raise SettingError(f"`--frames` must be at least 1, got {options.frames}.")
    provider = subject if isinstance(subject, DataProvider) else subject.dataset
    class_names = getattr(provider, "class_names", None) or getattr(provider, "category_names", ())
    settings: dict[str, Any] = {"class_names": class_names}
    if isinstance(subject, DataLoader):
        settings["sample"] = options.sample
    shown_data = _delivered(subject, options)
    if options.output.suffix == ".rrd":
        save_recording(shown_data, options.output, **settings)
    elif options.frames > 1:
        save_animation(shown_data, options.output, **settings)
    else:
        show(next(shown_data), **settings).save(options.output)
    _say(f"{options.output}")


def _delivered(subject: Any, options: argparse.Namespace) -> Iterator[Any]:
    if isinstance(subject, DataProvider):
        last = min(options.sample + options.frames, subject.get_number_of_samples())
        for sample_index in range(options.sample, max(last, options.sample + 1)):
            yield subject.get_data(sample_index)
        return
    count = 0
    for batch in islice(subject, options.batch, options.batch + options.frames):
        yield batch
        count += 1
    if not count:
        raise SettingError(f"There is no batch {options.batch} in the epoch.")


def _bench(subject: Any, options: argparse.Namespace) -> None:
    if isinstance(subject, PipelineDefinition):
        raise SettingError("A definition has no batches of its own: let the function return a DataLoader of it.")
    if options.batches < 1:
        raise SettingError(f"`--batches` must be at least 1, got {options.batches}.")
    is_loader = isinstance(subject, DataLoader)
    reports: list[LoaderReport] = []
    delivered = _endless_batches(subject, reports) if is_loader else _endless_samples(subject)
    start_s = time.perf_counter()
    next(delivered)
    first_s = time.perf_counter() - start_s
    cpu_s, durations_s = _processor_time_s(), []
    start_s = last_s = time.perf_counter()
    for _ in islice(delivered, options.batches):
        now_s = time.perf_counter()
        durations_s.append(now_s - last_s)
        last_s = now_s
    passed_s = last_s - start_s
    num_samples = options.batches * (subject.batch_size if is_loader else 1)
    what = "batch" if is_loader else "sample"
    least_ms, median_ms, most_ms = 1e3 * np.percentile(durations_s, [5, 50, 95])
    _say(f"first {what}: {first_s:.2f} s")
    _say(f"samples/s: {num_samples / passed_s:.1f}")
    _say(f"ms per {what}: median {median_ms:.1f}, 5 % {least_ms:.1f}, 95 % {most_ms:.1f}")
    own_s = _processor_time_s() - cpu_s
    _say(f"processor time of this process per sample: {1e3 * own_s / num_samples:.2f} ms")
    if is_loader:
        longest = max([*reports, subject.report()], key=lambda report: report.num_batches)
        _say(f"\n{longest}\n\n{subject!r}\n\n{subject.plan}")


def _processor_time_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _endless_batches(loader: DataLoader, reports: list[LoaderReport]) -> Iterator[Any]:
    while True:
        count = 0
        for batch in loader:
            yield batch
            count += 1
        if not count:
            raise SettingError("The loader delivers no batch in an epoch.")
        reports.append(loader.report())


def _endless_samples(provider: DataProvider) -> Iterator[Any]:
    while True:
        for sample_index in range(provider.get_number_of_samples()):
            yield provider.get_data(sample_index)


def _lint(subject: Any, options: argparse.Namespace) -> None:
    from .testing.data_set_lint import run_lint

    run_lint(functools.partial(found, options.subject), options.output, options.workers, _say, options.timeout)


def _check(subject: Any, options: argparse.Namespace) -> None:
    from .testing.provider_contract import check_provider

    provider = subject if isinstance(subject, DataProvider) else getattr(subject, "dataset", None)
    if isinstance(provider, DataProvider):
        check_provider(provider)
        _say(f"The provider keeps the rules: {provider!r}")
    if isinstance(subject, PipelineDefinition):
        subject.check_and_get_output_data_structure()
        _say("The steps fit the data.")
    if isinstance(subject, DataLoader):
        if next(iter(subject), None) is None:
            raise SettingError("The loader delivers no batch in an epoch.")
        _say("The loader delivers.")
