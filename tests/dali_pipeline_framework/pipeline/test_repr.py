"""What loaders and definitions say of themselves."""

from __future__ import annotations

from pathlib import Path

from nvidia.dali import fn
from support.arrays import DT
from support.inputs import NumberCallable
from support.loaders import by_sampler, make_loader
from support.providers import IndexProvider
from support.reader_data import numbered_files

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, LambdaStep
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.data_provider import summary
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.sources import FileReader

SAMPLER = "ShuffledSampler(num_samples=6, seed=3, shuffle=True, total_batch_size=None, last_batch='drop')"


def test_of_a_definition_and_its_loader(tmp_path: Path) -> None:
    root = numbered_files(tmp_path / "root", {"a": 6})
    data_input = SamplerInputCallable(FileDataProvider(root), ShuffledSampler(6, seed=3))
    step = ImageDecoder("data", use_device_mixed=True)
    chain = f"\n  input: SamplerInputCallable({FileDataProvider(root)!r}, {SAMPLER})\n  step 0: {step!r}"
    assert repr(PipelineDefinition(data_input, [None, step])) == f"PipelineDefinition{chain}"
    chain = chain.replace("total_batch_size=None", "total_batch_size=4")
    order = by_sampler(ShuffledSampler(6, seed=3), FileDataProvider(root), None)
    with make_loader(order, 2, steps=[step], shard=(1, 2)) as loader:
        head = "DataLoader(batch_size=2, num_workers=0, device=CPU, shard=1 of 2, epoch="
        rest = f"\n  input: {FileDataProvider(root)!r}, ShuffledSampler\n  steps in the graph: ImageDecoder"
        assert repr(loader) == f"{head}0){rest}"
        assert loader.describe().startswith(f"{head}0){chain}\n\n")
        loader.set_epoch(4)
        assert repr(loader) == f"{head}4){rest}"
    assert repr(loader) == f"{head}4, closed){rest}"


def test_many_steps_are_named_in_a_short_line() -> None:
    steps = [LambdaStep(fn.copy, input_names="index", output_types={"index": DT.INT32}) for _ in range(20)]
    with make_loader(IndexProvider(6), 2, steps=steps) as loader:
        lines = repr(loader).splitlines()
    assert len(lines) == 3
    assert lines[2] == f"  steps in the graph: {', '.join(['LambdaStep'] * 8)} and 12 more"


def test_of_inputs(tmp_path: Path) -> None:
    root = numbered_files(tmp_path / "root", {"a": 6})
    reader = FileReader(file_root=root)
    iterable = SamplerInputIterable(IndexProvider(6), ShuffledSampler(6, seed=3))
    assert repr(iterable) == f"SamplerInputIterable(IndexProvider(6 samples), {SAMPLER})"
    assert repr(PipelineDefinition(reader)) == f"PipelineDefinition\n  input: {reader!r}"
    assert repr(PipelineDefinition(NumberCallable(8, 4))) == "PipelineDefinition\n  input: NumberCallable"


def test_a_summary_is_one_line_that_is_not_too_long() -> None:
    assert summary("a\n  b") == "'a\\n b'"
    assert len(summary("x" * 500)) == 400
