"""What loaders and definitions say of themselves."""

from __future__ import annotations

from pathlib import Path

from nvidia.dali import fn
from support.arrays import DT
from support.inputs import NumberCallable
from support.loaders import by_sampler, make_loader
from support.providers import IndexProvider
from support.reader_data import numbered_files

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, LambdaStep
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.data_provider import summary
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

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


def test_is_short_also_where_there_is_much_to_say() -> None:
    steps = [LambdaStep(fn.copy, input_names="index", output_types={"index": DT.INT32}) for _ in range(20)]
    with make_loader(IndexProvider(6), 2, steps=steps) as loader:
        *_, last = repr(loader).splitlines()
    assert last == f"  steps in the graph: {', '.join(['LambdaStep'] * 8)} and 12 more"
    assert summary("a\n  b") == "'a\\n b'"
    assert len(summary("x" * 500)) == 400
    assert repr(PipelineDefinition(NumberCallable(8, 4))) == "PipelineDefinition\n  input: NumberCallable"
