# SPDX-License-Identifier: Apache-2.0
"""How the loader of a model is made: a `Recipe` says what one model has in place of another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import attrs

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    PipelineDefinition,
    PipelineStepBase,
    RandomAccessSampler,
    SampleDataGroup,
    SamplerInputCallable,
    SequentialSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    Windows,
)
from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import format_paths

from ..datasets import DrivingProvider
from .recipe_parts import (
    NAMES,
    PLACE,
    Batch,
    Chain,
    DetectorSettings,
    RecipeSettings,
    Request,
    StreamedSettings,
    extra_names,
)
from .scene_sampler import SceneSampler, split_lengths


def driving_provider(provider: DataProvider) -> DrivingProvider:
    """The `DrivingProvider` that a recipe was given, or `Windows` of one, which have its attributes.

    Raises:
        SettingError: It is none.
    """
    frames = provider
    while isinstance(frames, Windows):
        frames = frames.data_provider
    if not isinstance(frames, DrivingProvider):
        raise SettingError(
            f"A recipe takes a DrivingProvider, got {type(provider).__name__}. Open the data with one, or write a "
            "reader that makes a DrivingIndex."
        )
    return cast(DrivingProvider, provider)


class FrameQueues(DataProvider):
    """Base of providers whose samples are made of several frames."""

    def __init__(self, provider: DrivingProvider, extra_fields: Sequence[str] = ()) -> None:
        """Wrap the provider of the frames; samples have these fields of their last frame as well."""
        self._provider = provider
        self._kept = (*NAMES, *extra_names(extra_fields))

    @property
    def provider(self) -> DrivingProvider:
        """The frames."""
        return self._provider

    @abstractmethod
    def frames_of(self, sample_index: int) -> list[int]:
        """Numbers of the frames of a sample, the oldest first."""

    def get_number_of_samples(self) -> int:
        """Get the number of frames, each of which is the last one of a sample."""
        return self._provider.get_number_of_samples()

    def describe_sample(self, sample_index: int) -> str:
        """Say where the frames of a sample come from."""
        return ", ".join(map(self._provider.describe_sample, dict.fromkeys(self.frames_of(sample_index))))

    def _loaded(self, frames: Sequence[int]) -> dict[int, SampleDataGroup]:
        """Load frames, each once, also where it is repeated."""
        return {frame: self._provider.get_data(frame) for frame in dict.fromkeys(frames)}

    def for_frames(self, step: PipelineStepBase) -> PipelineStepBase:
        """Get a step for single frames as one for samples."""
        return step


@attrs.frozen(kw_only=True)
class ExtraSteps:
    """Steps of your own in a recipe.

    Attributes:
        before: The first steps of all, on each frame as the provider delivers it. They may add fields, which
            ``extra_fields`` passes to the batch. For BEVFormer and EgoStatusMLP, they run on samples of
            `BEVFormerQueues` and `EgoStatusSamples`.
        after: After the augmentation of the images, before they are normalized: on images of RGB, channels last.
    """

    before: Sequence[PipelineStepBase] = ()
    after: Sequence[PipelineStepBase] = ()


def _shuffled(settings: RecipeSettings, source: DataProvider, seed: int) -> RandomAccessSampler:
    return ShuffledSampler(source.get_number_of_samples(), seed=seed)


def _sequential(settings: RecipeSettings, source: DataProvider, seed: int) -> RandomAccessSampler:
    return SequentialSampler(source.get_number_of_samples(), last_batch="pad")


def streaming_order(settings: StreamedSettings, source: DrivingProvider, seed: int) -> RandomAccessSampler:
    """One frame per slot and step, in the order of time, of scenes that are cut into pieces."""
    return StreamingSequenceSampler(split_lengths(source.sequence_lengths, settings.split), seed=seed)


def scene_order(settings: RecipeSettings, source: Any, seed: int) -> RandomAccessSampler:
    """Each frame once, scene by scene."""
    return SceneSampler(source.sequence_lengths)


def _frames(frames: DrivingProvider, settings: RecipeSettings, **of_samples: Any) -> DataProvider:
    return frames


@attrs.frozen(kw_only=True)
class Recipe:
    """Parts of which `loader` makes the loader of a model. Change a recipe with ``attrs.evolve``.

    Attributes:
        settings: Class of the settings.
        chain: Function that makes the steps.
        as_batch: Function that converts a batch with stacked cameras to the names and axes of the model.
        listed: Names of fields whose shapes differ between samples; the batch has a list of arrays for each that
            exists.
        unchecked: Names of settings in ``provider_fields`` that the provider need not have.
        labels_any_boxes: Whether there are labels wherever the provider has boxes, also in evaluation.
        needs_cameras: Whether the provider must have cameras.
        can_reduce: Whether JPEGs can be decoded at less than their size (``reduced_decoding``).
        source: Function ``(frames, settings, is_training, extra_fields, seed)`` that returns the provider of
            samples, e.g. of queues of frames.
        training_order: Function ``(settings, provider of samples, seed)`` that returns the sampler for training.
        evaluation_order: Function with the same arguments that returns the sampler for evaluation.
    """

    settings: type[RecipeSettings]
    chain: Callable[[Request], Chain]
    as_batch: Callable[[Batch], Batch]
    listed: Collection[str] = ()
    unchecked: Collection[str] = ()
    labels_any_boxes: bool = False
    can_reduce: bool = True
    needs_cameras: bool = True
    source: Callable[..., DataProvider] = _frames
    training_order: Callable[..., RandomAccessSampler] = _shuffled
    evaluation_order: Callable[..., RandomAccessSampler] = _sequential

    def checked_settings(self, settings: RecipeSettings | None) -> Any:
        """The settings, or their defaults.

        Raises:
            SettingError: They are those of another recipe.
        """
        if settings is not None and not isinstance(settings, self.settings):
            raise SettingError(f"`settings` must be {self.settings.__name__}, got {type(settings).__name__}.")
        return settings or self.settings()

    def _has_labels(self, frames: DrivingProvider, is_training: bool) -> bool:
        is_detector = issubclass(self.settings, DetectorSettings)
        return is_detector and (bool(frames.fields.boxes) if self.labels_any_boxes else is_training)

    def checked_frames(self, given: DataProvider, settings: RecipeSettings, is_training: bool) -> DrivingProvider:
        """The `DrivingProvider` that a recipe was given, if its samples hold what the model needs.

        Raises:
            SettingError: It is another provider, or something is missing; the message lists all of it.
        """
        provider, model = driving_provider(given), settings.model
        fields = settings.provider_fields(is_training)
        wanted = {name: value for name, value in fields.items() if name not in self.unchecked}
        problems = []
        for name, value in wanted.items():
            has = getattr(provider.fields, name)
            if name in ("min_points", "num_sweeps"):
                if has < value:
                    problems.append(f"{name}: must be at least {value}, is {has}")
            elif name != "classes" and value is not False and has != value:
                problems.append(f"{name}: must be {value!r}, is {has!r}")
        has_base = provider.fields.reference == provider.base
        if self.needs_cameras and not has_base and not {"reference"} & {*wanted, *self.unchecked}:
            problems.append(
                f"reference: must be {provider.base!r}, as in the data set, is {provider.fields.reference!r}"
            )
        if self.needs_cameras and not provider.camera_names:
            problems.append("cameras: there must be at least one")
        classes = getattr(settings, "classes", ())
        problems += [
            f"classes: {model} has no class {shown(name)}.{did_you_mean(name, classes)} It has: "
            f"{listed(classes)}. Give the provider `classes`, or the recipe its own"
            for name in provider.class_names
            if self._has_labels(provider, is_training) and name not in classes
        ]
        if problems:
            advice = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
            raise SettingError(
                f"{model} needs other samples than {provider!r} delivers:\n{bullets(problems)}\n"
                f"Create the provider with: {advice}"
            )
        return provider

    def steps(
        self,
        provider: DataProvider,
        settings: RecipeSettings | None = None,
        *,
        is_training: bool = True,
        reduced_decoding: bool = False,
        extra_fields: Sequence[str] = (),
        extra_steps: ExtraSteps | None = None,
    ) -> list[PipelineStepBase]:
        """Make the steps for the samples that `loader` loads.

        Args:
            provider: The provider of the frames, or of queues of them.
            settings: The settings; None for the defaults.
            is_training: Whether there are labels and random changes.
            reduced_decoding: As for `PlannedImageAugmenter`: faster, but not the same pixels.
            extra_fields: Fields and groups of the frames that batches have as well.
            extra_steps: Steps of your own.

        Raises:
            SettingError: The provider lacks required fields; the message lists them.
        """
        settings, extra = self.checked_settings(settings), extra_steps or ExtraSteps()
        if reduced_decoding and not self.can_reduce:
            raise SettingError(f"{settings.model} takes no `reduced_decoding`: leave it out.")
        source = self._source(provider, settings, is_training=is_training, extra_fields=extra_fields, seed=0)
        queues = source if isinstance(source, FrameQueues) else None
        frames = self.checked_frames(queues.provider if queues else source, settings, is_training)
        class_names = frames.class_names if self._has_labels(frames, is_training) else ()
        chain = self.chain(Request(settings, frames, class_names, is_training, extra_fields, reduced_decoding))
        of_frames = [*extra.before, *chain.frames]
        if queues:
            of_frames = [queues.for_frames(step) for step in of_frames]
        return [*of_frames, *chain.images, *extra.after, *chain.last]

    def _source(self, provider: DataProvider, settings: RecipeSettings, **of_samples: Any) -> DataProvider:
        if isinstance(provider, FrameQueues):
            return provider
        of_samples["extra_fields"] = extra_names(of_samples["extra_fields"])
        windows = provider.windows if isinstance(provider, Windows) else ()
        taken = [path for path in windows if path[0] not in of_samples["extra_fields"]]
        if taken:
            raise SettingError(
                f"The windows of a recipe are those of fields in `extra_fields`; {settings.model} takes others as "
                f"they are at the frame, and has no use for a window of {format_paths(taken)}."
            )
        return self.source(driving_provider(provider), settings, **of_samples)

    def format(
        self,
        provider: DataProvider,
        settings: RecipeSettings | None = None,
        *,
        is_training: bool = True,
        **of_steps: Any,
    ) -> SampleDataGroup:
        """Get the format of the samples that the model expects, before `as_batch` gives a batch its names.

        For arguments and errors, see `steps`.

        Example::

            print(STREAMPETR.format(provider, settings, is_training=False))
        """
        settings = self.checked_settings(settings)
        extra_fields = of_steps.get("extra_fields", ())
        source = self._source(provider, settings, is_training=is_training, extra_fields=extra_fields, seed=0)
        format = source.sample_data_structure
        for step in self.steps(source, settings, is_training=is_training, **of_steps):
            format = step.check_input_data_format_and_set_output_data_format(format)
        return format

    def loader(
        self,
        provider: DataProvider,
        batch_size: int = 1,
        settings: RecipeSettings | None = None,
        *,
        is_training: bool = True,
        sampler: RandomAccessSampler | None = None,
        seed: int = 0,
        run: Any = "auto",
        reduced_decoding: bool = False,
        extra_fields: Sequence[str] = (),
        extra_steps: ExtraSteps | None = None,
        ragged: Any = None,
        **arguments: Any,
    ) -> DataLoader:
        """Make the loader for training, or for evaluation.

        Batches have the keys that the model takes, see its settings, and ``token``, ``scene`` and ``place``, the
        position of each sample: ``is_first`` where a scene, or a piece of it, begins, so that nothing may be
        carried over; ``is_padding`` for samples that only fill a batch, so that all ranks have the same number of
        batches, and which are not to be counted; and ``sample_index``, by which the results of all ranks are
        gathered.

        In evaluation each frame comes once, without randomness: scene by scene, by time, if the model remembers
        earlier frames, else in the order of the provider.

        Args:
            provider: The provider of the frames, or of queues of them.
            batch_size: Samples per batch, on this rank; where scenes are played, how many of them side by side.
            settings: The settings; None for the defaults.
            is_training: Whether there are labels and random changes.
            sampler: Another order, e.g. a `WeightedSampler` of `class_balanced_weights`.
            seed: Seed of the order and the draws.
            run: Where steps run, see `PipelineDefinition`.
            reduced_decoding: As for `steps`.
            extra_fields: As for `steps`.
            extra_steps: As for `steps`.
            ragged: As for `DataLoader`; a dict is for fields that the recipe does not have.
            **arguments: Other arguments of `DataLoader`.

        Raises:
            SettingError: The provider lacks required fields, an argument is out of its range, or an argument has
                the name of a setting of the recipe.
        """
        settings = self.checked_settings(settings)
        for name in arguments.keys() & attrs.fields_dict(type(settings)).keys():
            meant = f"{type(settings).__name__}({name}=...)"
            raise SettingError(f"`{name}` is a setting of the recipe, not an argument of its loader. Use {meant}.")
        source = self._source(provider, settings, is_training=is_training, extra_fields=extra_fields, seed=seed)
        extra = {"extra_fields": extra_fields, "extra_steps": extra_steps, "reduced_decoding": reduced_decoding}
        steps = self.steps(source, settings, is_training=is_training, **extra)  # type: ignore[arg-type]
        order = self.training_order if is_training else self.evaluation_order
        sampler = sampler or order(settings, source, seed)
        if ragged is None or isinstance(ragged, Mapping):
            definition = PipelineDefinition(SamplerInputCallable(source, sampler), steps)
            paths = definition.check_and_get_output_data_structure().format.flat_paths
            listed = {name for path in paths for name in path if name in self.listed}
            ragged = {**dict.fromkeys(listed, "list"), **(ragged or {})} or "raise"
        given = {"post_process_func": self.as_batch, "steps": steps, "sampler": sampler, "run": run, **arguments}
        loader = DataLoader(
            source, batch_size, context_name=PLACE, stack_arrays=True, seed=seed, ragged=ragged, **given
        )
        loader.recipe_settings = settings
        return loader
