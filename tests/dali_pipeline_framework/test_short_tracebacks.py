"""Tracebacks of errors about settings: the user's lines, one line of the package, and the message."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.providers import IndexProvider

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import (
    DALIStructuredOutputIterator,
    DataLoader,
    FileDataProvider,
    ImageDecoder,
    ImageResizeCropFlipper,
    PipelineDefinition,
    SampleDataGroup,
    SamplerInputCallable,
    ShuffledSampler,
)
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.processing_steps import LambdaStep, PipelineStepBase

PACKAGE = str(Path(package.__file__).parents[1])
PROVIDER = IndexProvider(8)


def definition(*steps: PipelineStepBase) -> PipelineDefinition:
    return PipelineDefinition(SamplerInputCallable(PROVIDER, ShuffledSampler(8, 4)), steps)


MISTAKES: dict[str, Callable[[], object]] = {
    "batch size": lambda: DataLoader(PROVIDER, 0),
    "no batch size": lambda: DataLoader(PROVIDER),
    "unknown argument": lambda: DataLoader(PROVIDER, 4, num_worker=2),  # type: ignore[call-arg]
    "missing argument": lambda: ImageResizeCropFlipper("image"),  # type: ignore[call-arg]
    "number of workers": lambda: DataLoader(PROVIDER, 4, num_workers=-1),
    "field name": lambda: DataLoader(PROVIDER, 4, steps=[ImageDecoder("imaeg", True)]),
    "provider": lambda: DataLoader([1, 2], 4),
    "step": lambda: DataLoader(PROVIDER, 4, steps=[str]),  # type: ignore[list-item]
    "sampler of other data": lambda: DataLoader(PROVIDER, sampler=ShuffledSampler(100, 4)),
    "sampler": lambda: ShuffledSampler(8, -4),
    "shard": lambda: DataLoader(PROVIDER, 4, shard=(3, 2)),
    "argument of the pipeline": lambda: DataLoader(PROVIDER, 4, pipeline_arguments={"prefetch": 3}),
    "folder": lambda: FileDataProvider("/there/is/none"),
    "pipeline": lambda: definition().get_dali_pipeline(batch_size=3),
    "format": lambda: definition(ImageDecoder("no", True)).check_and_get_output_data_structure(),
    "iterator": lambda: DALIStructuredOutputIterator(None, definition().get_dali_pipeline(), output_type="tf"),
}


def frames_of(error: BaseException) -> list[str]:
    """Files of all frames that are printed, those of causes included; of the package only that."""
    text = "".join(traceback.format_exception(error))
    paths = [line.split('"')[1] for line in text.splitlines() if line.startswith('  File "')]
    return ["package" if path.startswith(PACKAGE) else path for path in paths if "pytest" not in path]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_shows_the_user_s_line_one_of_the_package_and_the_message(mistake: str) -> None:
    with pytest.raises((FrameworkError, TypeError)) as caught:
        MISTAKES[mistake]()
    assert frames_of(caught.value) == [__file__, __file__, "package"]


class Foul(IndexProvider):
    """Its format is wrong, which a line of the user's code is to blame for."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = super().sample_data_structure
        sample.add_data_field("index", sample.get_type_of_field("index"))
        return sample


def no_key(node: Any) -> Any:
    return {}["no such key"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Foul(), 4),
        lambda: DataLoader(PROVIDER, 4, steps=[LambdaStep(no_key, input_names="index", output_types=INDEX)]),
    ],
)
def test_lines_of_the_user_that_the_package_calls_are_kept(make: Callable[[], object]) -> None:
    with pytest.raises(KeyError) as caught:
        make()
    assert frames_of(caught.value) == [__file__, __file__, "package", __file__]


INDEX = {"index": PROVIDER.sample_data_structure.get_type_of_field("index")}


def test_an_error_of_the_package_itself_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PipelineDefinition, "with_input", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        DataLoader(PROVIDER, 4)
    assert len(frames_of(caught.value)) > 4


def test_the_whole_traceback_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "accvlab.dali_pipeline_framework.short_tracebacks"),
        pytest.raises(FrameworkError),
    ):
        DataLoader(PROVIDER, 0)
    assert "in whole_number" in caplog.text
