# SPDX-License-Identifier: Apache-2.0
"""The commands that look at a provider, a definition or a loader."""

from __future__ import annotations

import argparse
import functools
import itertools
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, PipelineDefinition, Windows
from accvlab.dali_pipeline_framework.checks import did_you_mean, whole_number
from accvlab.dali_pipeline_framework.command_line import found
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.loader import LoaderReport

from .contract.step_geometry import where_boxes_part
from .datasets import DrivingProvider
from .datasets.recognition import provider_of_folder

Subject: TypeAlias = DataProvider | PipelineDefinition | DataLoader
Say: TypeAlias = Callable[[str], None]


def look_at_object(options: argparse.Namespace, say: Say) -> None:
    """Run the requested command.

    Raises:
        FrameworkError: Something is wrong with what the command looks at.
    """
    subject = found(options.subject, provider_of_folder) if options.recipe is None else _loader_of_recipe(options)
    try:
        _COMMANDS[options.command](subject, options, say)
    finally:
        if isinstance(subject, DataLoader):
            subject.close()


def _loader_of_recipe(options: argparse.Namespace) -> DataLoader:
    """The loader of a recipe, of batches of one, for the data set that is the subject."""
    from . import recipes

    names = sorted(
        name for name in vars(recipes)["__dir__"]() if isinstance(getattr(recipes, name), recipes.Recipe)
    )
    name = options.recipe.upper()
    if name not in names:
        hint = did_you_mean(name, names)
        raise SettingError(f"There is no recipe {options.recipe!r}.{hint} Recipes: {', '.join(names)}.")
    recipe: recipes.Recipe = getattr(recipes, name)
    settings = recipe.settings()
    fields: Any = settings.provider_fields()
    if isinstance(settings, recipes.TransFuserSettings):
        fields |= {"sensors": settings.sensors()}
    provider = found(options.subject, functools.partial(provider_of_folder, **fields))
    if not isinstance(provider, DataProvider):
        problem = (
            f"`--recipe` makes a loader of a data set, but {options.subject!r} is a {type(provider).__name__}"
        )
        raise SettingError(f"{problem}. Name a folder or a function that returns a provider, or leave it out.")
    return recipe.loader(provider, 1, num_workers=0)


def _describe(subject: Subject, options: argparse.Namespace, say: Say) -> None:
    from accvlab.dali_pipeline_framework import SamplerInputCallable, SequentialSampler

    if isinstance(subject, DataLoader):
        say(subject.describe())
        return
    if isinstance(subject, DataProvider):
        order = SequentialSampler(subject.get_number_of_samples(), 1)
        definition = PipelineDefinition(SamplerInputCallable(subject, order), [])
    else:
        definition = subject
    say(f"{subject!r}\n\n{definition.describe()}")


def _with_samples(subject: Subject) -> DataProvider | DataLoader:
    if isinstance(subject, PipelineDefinition):
        raise SettingError(
            "A definition has no batches of its own: let the function return a DataLoader of its input and steps."
        )
    return subject


def _show(subject: Subject, options: argparse.Namespace, say: Say) -> None:
    from .viewing.pictures import save_recording, show

    subject = _with_samples(subject)
    whole_number(options.frames, "--frames", at_least=1)
    provider = subject if isinstance(subject, DataProvider) else subject.dataset
    class_names = getattr(provider, "class_names", None) or getattr(provider, "category_names", ())
    settings: dict[str, Any] = {"class_names": class_names, "sample": options.sample}
    settings |= {"windows": provider if isinstance(provider, Windows) else None}
    shown_data, is_recording = _delivered(subject, options), options.output.suffix == ".rrd"
    if is_recording and options.frame is not None:
        raise SettingError("`--frame` is for pictures.")
    if not is_recording and options.frames > 1:
        rule = "`--frames` is for recordings: `--output` must end with .rrd"
        raise SettingError(f"{rule}, got {str(options.output)!r}.")
    if is_recording:
        save_recording(shown_data, options.output, **settings)
    else:
        show(next(shown_data), frame=options.frame, **settings).save(options.output)
    say(f"{options.output}")


def _delivered(subject: DataProvider | DataLoader, options: argparse.Namespace) -> Iterator[Any]:
    if isinstance(subject, DataProvider):
        last = min(options.sample + options.frames, subject.get_number_of_samples())
        yield from map(subject.get_data, range(options.sample, max(last, options.sample + 1)))
        return
    batch = None
    for batch in itertools.islice(subject, options.batch, options.batch + options.frames):
        yield batch if subject.recipe_settings is None else _views_of_recipe(subject, batch, options)
    if batch is None:
        raise SettingError(f"There is no batch {options.batch} in the epoch.")


def _views_of_recipe(loader: DataLoader, batch: Any, options: argparse.Namespace) -> Any:
    from .recipes.batch_views import batch_view, count_frames

    number = count_frames(batch, options.sample)
    frames = [-1] if not number else [options.frame] if options.frame is not None else [*range(number)]
    names = getattr(loader.dataset, "camera_names", ())
    settings = loader.recipe_settings
    views = [batch_view(batch, settings, options.sample, frame=frame, camera_names=names) for frame in frames]
    return views[0] if options.output.suffix == ".rrd" or len(views) == 1 else views


def _bench(subject: Subject, options: argparse.Namespace, say: Say) -> None:
    subject = _with_samples(subject)
    whole_number(options.batches, "--batches", at_least=1)
    reports: list[LoaderReport] = []
    delivered = _endless(subject, reports)
    start_s = time.perf_counter()
    next(delivered)
    first_s = time.perf_counter() - start_s
    cpu_s, moments_s = _processor_time_s(), [time.perf_counter()]
    moments_s += [time.perf_counter() for _ in itertools.islice(delivered, options.batches)]
    what, num_samples = "sample", options.batches
    if isinstance(subject, DataLoader):
        what, num_samples = "batch", options.batches * subject.batch_size
    least_ms, median_ms, most_ms = 1e3 * np.percentile(np.diff(moments_s), [5, 50, 95])
    say(f"first {what}: {first_s:.2f} s")
    say(f"samples/s: {num_samples / (moments_s[-1] - moments_s[0]):.1f}")
    say(f"ms per {what}: median {median_ms:.1f}, 5 % {least_ms:.1f}, 95 % {most_ms:.1f}")
    own_s = _processor_time_s() - cpu_s
    say(f"processor time of this process per sample: {1e3 * own_s / num_samples:.2f} ms")
    if isinstance(subject, DataLoader):
        longest = max([*reports, subject.report()], key=lambda report: report.num_batches)
        say(f"\n{longest}\n\n{subject!r}\n\n{subject.plan}")


def _processor_time_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])  # of the user and of the system


def _endless(subject: DataProvider | DataLoader, reports: list[LoaderReport]) -> Iterator[Any]:
    """Samples of a provider, or batches of a loader, whose report of each epoch is kept."""
    if isinstance(subject, DataProvider):
        yield from map(subject.get_data, itertools.cycle(range(subject.get_number_of_samples())))
        raise SettingError("The provider has no samples.")
    while True:
        batch = None
        for batch in subject:
            yield batch
        if batch is None:
            raise SettingError("The loader delivers no batch in an epoch.")
        reports.append(subject.report())


def _check(subject: Subject, options: argparse.Namespace, say: Say) -> None:
    from accvlab.dali_pipeline_framework.testing import check_provider

    provider = subject if isinstance(subject, DataProvider) else getattr(subject, "dataset", None)
    if isinstance(provider, DataProvider):
        figures = check_provider(provider)
        say(f"{figures}\n" * bool(figures) + f"The provider keeps the rules: {provider!r}")
    if isinstance(subject, PipelineDefinition):
        subject.check_and_get_output_data_structure()
        say("The steps fit the data.")
    if isinstance(subject, DataLoader):
        if next(iter(subject), None) is None:
            raise SettingError("The loader delivers no batch in an epoch.")
        say("The loader delivers.")
        say(_measured_geometry(subject))


def _measured_geometry(loader: DataLoader) -> str:
    """Say whether boxes stay on their objects, before and after the steps; or why that is not measured."""
    provider = inner = loader.dataset
    while isinstance(inner, Windows):
        inner = inner.data_provider
    not_measured = "Whether the steps keep boxes on their objects was not measured"
    if loader.recipe_settings is not None:
        return f"{not_measured}: the loader is that of a recipe."
    if not isinstance(provider, DataProvider) or not isinstance(inner, DrivingProvider):
        return f"{not_measured}: the data set is a {type(inner).__name__}, no DrivingProvider or Windows of one."
    lacks = {"boxes": not inner.fields.boxes, "images": not inner.camera_names}
    missing = [f"samples have no {name}" for name, is_missing in lacks.items() if is_missing]
    missing += ["there are no steps"] * (not loader.steps)
    if missing:
        return f"{not_measured}: {missing[0]}."
    last = provider.get_number_of_samples() - 1
    numbers = np.unique(np.linspace(0, last, _SAMPLES_OF_GEOMETRY).astype(int)).tolist()
    measured = where_boxes_part(map(provider.get_data, numbers), loader.steps)
    if measured.problem:
        raise SettingError(f"The steps part boxes and images, {measured.problem}")
    failures = f" of {len(measured.failures)} of {len(numbers)} samples" * bool(measured.count)
    why = [*measured.failures, "no box is seen whole in an image before and after them."][0]
    told = [f"The steps keep boxes on their objects: {measured.count} images."] * bool(measured.count)
    told += [f"{not_measured}{failures}: {why}"] * bool(measured.failures or not measured.count)
    return "\n".join(told)


_SAMPLES_OF_GEOMETRY = 12
_COMMANDS: Final[Mapping[str, Callable[[Subject, argparse.Namespace, Say], None]]] = {
    "describe": _describe,
    "show": _show,
    "bench": _bench,
    "check": _check,
}
