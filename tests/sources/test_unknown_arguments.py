"""Arguments of DALI's readers and of PyTorch's loader: the error says what to use instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.loaders import make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs import (
    FileDataProvider,
    FrameDataProvider,
    FrameFolders,
    FrameSequenceDataProvider,
    SamplerInputCallable,
    SamplerInputIterable,
    ShuffledSampler,
    VideoDataProvider,
    VideoFrameDataProvider,
    Videos,
    VideoStreamInput,
)
from accvlab.dali_pipeline_framework.pipeline import DataLoader, PipelineDefinition
from accvlab.dali_pipeline_framework.unknown_arguments import (
    OF_DEFINITIONS,
    OF_INPUTS,
    OF_LOADER,
    OF_PROVIDERS,
    OF_STREAMS,
)

PROVIDERS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (FileDataProvider, {"files": ["a.jpg"]}),
    (FrameDataProvider, {"folders": "x"}),
    (FrameSequenceDataProvider, {"folders": "x", "sequence_length": 2}),
    (VideoDataProvider, {"videos": "x", "sequence_length": 2}),
    (VideoFrameDataProvider, {"videos": "x"}),
    (Videos, {"filenames": "x"}),
    (FrameFolders, {"file_root": "x"}),
]


@pytest.mark.parametrize(("provider", "arguments"), PROVIDERS)
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("random_shuffle", "SamplerInputCallable(provider, ShuffledSampler("),
        ("shuffle", "ShuffledSampler"),
        ("sampler", "SamplerInputCallable(provider"),
        ("drop_last", "Pass `last_batch` to the DataLoader"),
        ("num_workers", "Pass it to the DataLoader."),
        ("num_shards", "Pass shard=(shard_id, num_shards)"),
        ("fiel_root", ""),
    ],
)
def test_of_a_provider(provider: Callable[..., Any], arguments: Mapping[str, Any], name: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"`{name}` is not an argument of {provider.__name__}") as caught:
        provider(**arguments, **{name: 1})
    assert isinstance(caught.value, SettingError)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("shuffle", "ShuffledSampler"),
        ("sampler", "SamplerInputCallable(provider, sampler)"),
        ("drop_last", "Use `last_batch`"),
        ("pin_memory", "Use `device_id`"),
        ("num_worker", "Did you mean 'num_workers'?"),
        ("zzz", "in its documentation"),
    ],
)
def test_of_the_loader(name: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"`{name}` is not an argument of DataLoader") as caught:
        make_loader(SamplerInputCallable(IndexProvider(4), ShuffledSampler(4)), 2, **{name: 1})
    assert isinstance(caught.value, SettingError)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name", "advice"),
    [
        (SamplerInputCallable, "batch_size", "Pass it to the DataLoader."),
        (SamplerInputIterable, "shuffle", "a matter of the sampler"),
        (VideoStreamInput, "random_shuffle", "in the order in which they are fed"),
        (VideoStreamInput, "frame_name", "Did you mean 'frames_name'?"),
        (PipelineDefinition, "steps", "`preprocess_functors`"),
        (PipelineDefinition, "batch_size", "get_dali_pipeline"),
    ],
)
def test_of_inputs_and_definitions(make: Callable[..., Any], name: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"`{name}` is not an argument of {make.__name__}") as caught:
        make(IndexProvider(4), **{name: 1})
    assert advice in str(caught.value)


def test_what_is_an_argument_is_not_explained() -> None:
    more = [
        (DataLoader, OF_LOADER),
        (SamplerInputCallable, OF_INPUTS),
        (SamplerInputIterable, OF_INPUTS),
        (VideoStreamInput, OF_STREAMS),
        (PipelineDefinition, OF_DEFINITIONS),
    ]
    for made, advice in [*((provider, OF_PROVIDERS) for provider, _ in PROVIDERS), *more]:
        had_by_some = {"image_type", "sequence_length", "stride"}
        assert not advice.keys() - had_by_some & inspect.signature(made).parameters.keys(), made


def test_what_only_some_providers_have() -> None:
    with pytest.raises(
        TypeError, match=r"`sequence_length` is not an argument of FileDataProvider\. For sequences"
    ):
        FileDataProvider(files=["a.jpg"], sequence_length=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"`image_type` .* FrameSequenceDecoder\(image_type=\.\.\.\)"):
        FrameSequenceDataProvider("x", 2, image_type=1)  # type: ignore[call-arg]


class _OwnFiles(FileDataProvider):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)


def test_a_class_of_ones_own_is_named() -> None:
    with pytest.raises(TypeError, match="`shuffle` is not an argument of _OwnFiles"):
        _OwnFiles(files=["a.jpg"], shuffle=True)
    assert len(_OwnFiles(files=["a.jpg"]).labels) == 1


def test_a_missing_argument_is_told_by_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'sequence_length'"):
        VideoDataProvider("x")  # type: ignore[call-arg]
