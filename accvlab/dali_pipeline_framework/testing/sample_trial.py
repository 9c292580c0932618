# SPDX-License-Identifier: Apache-2.0
"""Tries samples in one process: loads them, checks them, and decodes their images, many at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from ..draws.keyed_draws import SamplePlace
from ..errors import SettingError
from ..faults.fault_policy import FailedSample
from ..limits.image_limits import jpeg_damage
from ..loader.data_loader import DataLoader, run_of
from ..pipeline.chain import ArraySteps
from ..pipeline.pipeline import PipelineDefinition
from ..providers.data_provider import DataProvider
from ..sample_data import GroupFormat
from ..sampling.samplers import SequentialSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from ..sources.sampler_inputs import SamplerInputCallable
from ..workers.loading import description_of
from ..workers.process_setup import pass_on_interrupt
from ..workers.samples import SampleChecker, of_step

MOST_AT_ONCE = 32
"""How many images are decoded at a time."""

SEVERAL = -1
"""In place of an index: several samples at a time."""

_LONGEST_REASON = 500
# JPEG, PNG, BMP, GIF, RIFF (WebP), TIFF, JPEG 2000, PNM
_MAGIC = (
    *(b"\xff\xd8\xff", b"\x89PNG", b"BM", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP", b"\xff\x4f\xff"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"),
)


@attrs.frozen
class Subject:
    """What is tried.

    Attributes:
        source: The input; only its data provider counts, and its context.
        steps: Steps on arrays, which decode there; None where none run in the workers.
    """

    source: PlannedInput
    steps: ArraySteps | None

    def describe(self, index: int) -> str:
        """Say where a sample comes from, as far as the provider knows."""
        return description_of(self.source, index)

    @property
    def num_samples(self) -> int:
        """Number of samples of the data set."""
        return int(self.source.provider.get_number_of_samples())


def subject_of(found: DataProvider | PipelineDefinition | DataLoader) -> Subject:
    """Get what is to be tried of a provider, a definition or a loader.

    Raises:
        SettingError: Its samples come from no data provider.
    """
    if isinstance(found, DataProvider):
        return Subject(SamplerInputCallable(found, SequentialSampler(found.get_number_of_samples(), 1)), None)
    if isinstance(found, DataLoader):
        run = run_of(found)
        definition = run.definition.with_input(found.bound_input)
        has_gpu = run.pipeline.device_id is not None
    else:
        definition, has_gpu = found, False
    planned = InputAdapter(definition.data_input).planned
    if planned is None:
        got = type(definition.data_input).__name__
        raise SettingError(f"lint needs a data provider, to load samples one by one; the input is a {got}.")
    return Subject(planned, definition.array_steps(has_gpu))


class SampleTrial:
    """Tries samples in one process.

    Attributes:
        holds_images: Positions of the fields that hold image files: in a field where one begins like an image, all
            must be images.
        undecided: Positions of the fields that may do so, of the samples tried last: none began like an image yet.
    """

    def __init__(self, subject: Subject, note: Callable[[int], object] = lambda index: None) -> None:
        """Prepare the checks; ``note`` gets each index when it is begun, `SEVERAL` for images of several."""
        self._note = note
        self._subject, self._source, self._steps = subject, subject.source, subject.steps
        blueprint = self._source.used_sample_data_structure.format
        self._checker = SampleChecker(blueprint, type(self._source).__name__)
        sent = blueprint if self._steps is None else self._steps.output_format
        self._image_fields = _image_fields(sent)
        self._paths = sent.flat_paths
        self._decoder = _Decoder()
        self.holds_images: set[int] = set()
        self.undecided: set[int] = set()

    def failures(self, indices: Sequence[int]) -> list[FailedSample]:
        """Try samples."""
        failed: dict[int, FailedSample] = {}
        images: list[tuple[int, int, Any]] = []
        for index in indices:
            stage: Any = "loading"
            self._note(index)
            try:
                flat: Any = self._source.load_in_place(SamplePlace(0, 0, 0, index), index)
                stage = "checks"
                flat = self._checker.check(flat)
                stage = "steps"
                if self._steps is not None:
                    flat = self._steps.try_on(flat)
            except BaseException as error:
                pass_on_interrupt(error)
                origin = of_step(error)
                reason = " ".join(f"{type(origin).__name__}: {origin}".split())[:_LONGEST_REASON]
                failed[index] = self._failed(index, reason, stage)
                continue
            images += [(index, field, flat[field]) for field in self._image_fields]
        self._note(indices[0] if len(indices) == 1 else SEVERAL)
        for index, field, reason in self._decoder.failures(self._files(images)):
            name = ".".join(map(str, self._paths[field]))
            if index not in failed:
                failed[index] = self._failed(index, f"{name}: {reason}", "graph")
        return [failed[index] for index in sorted(failed)]

    def _files(self, images: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
        """Those of fields that hold image files."""
        fields = {field for _, field, _ in images}
        if not fields <= self.holds_images:
            self.holds_images.update(field for _, field, array in images if array[:8].tobytes().startswith(_MAGIC))
        self.undecided = fields - self.holds_images
        return [image for image in images if image[1] in self.holds_images]

    def _failed(self, index: int, reason: str, stage: Any) -> FailedSample:
        return FailedSample(index, reason, stage, "found by lint", self._subject.describe(index))


class _Decoder:
    """Decodes images by DALI, many at a time."""

    def __init__(self) -> None:
        self._pipelines: dict[int, Any] = {}
        self._can_check = importlib.util.find_spec("simplejpeg") is not None

    def failures(self, images: list[tuple[int, int, Any]]) -> list[tuple[int, int, str]]:
        """Decode images, each with two numbers; get those of images that fail, and why."""
        failed, whole = [], []
        for index, field, array in images:
            damage = jpeg_damage(array) if self._can_check else ""
            if damage:
                failed.append((index, field, damage))
            else:
                whole.append((index, field, array))
        images = whole
        for start in range(0, len(images), MOST_AT_ONCE):
            batch = images[start : start + MOST_AT_ONCE]
            if self._failure([array for _, _, array in batch], MOST_AT_ONCE) is None:
                continue
            for index, field, array in batch:
                reason = self._failure([array], 1)
                if reason is not None:
                    failed.append((index, field, reason))
        return failed

    def _failure(self, arrays: list[Any], size: int) -> str | None:
        from ..engine.dali.texts import dali_reason

        if size not in self._pipelines:
            self._pipelines[size] = _decoding_pipeline(size)
        pipeline = self._pipelines[size]
        try:
            pipeline.feed_input("files", [np.ascontiguousarray(array) for array in arrays])
            pipeline.run()
        except Exception as error:
            del self._pipelines[size]  # it cannot be used any more
            return dali_reason(error).replace("sample #0", "the image")
        return None


def _decoding_pipeline(size: int) -> Any:
    import nvidia.dali.fn as fn
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(
        size, 1, None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False, exec_dynamic=False
    )
    with pipeline:
        files = fn.external_source(name="files", no_copy=True, batch=True)
        pipeline.set_outputs(fn.decoders.image(files, device="cpu"))
    pipeline.build()
    return pipeline


def _image_fields(blueprint: GroupFormat) -> list[int]:
    """Positions of the fields that may be image files."""
    return [
        position
        for position, leaf in enumerate(blueprint.flat_leaves)
        if leaf.numpy_dtype == np.uint8
        and not leaf.is_string
        and leaf.ndim in (None, 1)
        and leaf.content.is_encoded is not False
    ]
