"""The same definition with and without a GPU."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn
from nvidia.dali.tensors import TensorListCPU, TensorListGPU
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.child_processes import run_python
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.loaders import make_loader, pipeline_of
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.stand_in_driver import make_stand_in_driver, needs_compiler
from support.steps import Doubler, Renamer

from accvlab.dali_pipeline_framework.engine.dali import gpus
from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus
from accvlab.dali_pipeline_framework.errors import DeviceError
from accvlab.dali_pipeline_framework.faults import FaultPolicy
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, pipeline_arguments
from accvlab.dali_pipeline_framework.pipeline.pipeline_arguments import checked_device
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupInPathAppliedStep,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    LambdaStep,
)
from accvlab.dali_pipeline_framework.testing import run_step

needs_no_gpu = pytest.mark.skipif(num_usable_gpus() > 0, reason="is about a machine without a GPU")
EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def drawn_by(_: Any) -> Any:
    shift = fn.random.uniform(range=[1, 2], device="gpu").cpu()
    return fn.cast(fn.random.normal(mean=shift), dtype=DT.INT64)


# What may be done to a field that needs a GPU.
ON_GPU: dict[str, Callable[[Any], Any]] = {
    "moved": lambda value: value.gpu(),
    "computed": lambda value: value.gpu() + 1,
    "computed and back": lambda value: (value.gpu() + 1).cpu(),
    "drawn": lambda value: fn.random.uniform(range=[1, 2], device="gpu", dtype=DT.INT64),
    "named input": drawn_by,
    "read": lambda value: fn.external_source(lambda: [np.array(3)], device="gpu", dtype=DT.INT64),
}


def on_gpu(what: str, name: str = "index") -> LambdaStep:
    return LambdaStep(ON_GPU[what], input_names=name, output_types={name: DT.INT64})


def image_provider(num_samples: int = 4) -> ArrayProvider:
    images = [encoded_image(gradient(48, 64, phase)) for phase in range(num_samples)]
    return ArrayProvider({"index": (DT.INT64, [*range(num_samples)]), "image": (DT.UINT8, images)})


def defined(provider: Any, steps: Any = (), **arguments: Any) -> Any:
    """A pipeline of batches of four, for the first GPU unless told otherwise."""
    arguments = {"num_threads": 1, "py_num_workers": 0, "device_id": 0, **arguments}
    return PipelineDefinition(shuffled(provider), [*steps]).get_dali_pipeline(**arguments)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@needs_no_gpu
class TestWithoutGpu:
    def test_what_needs_none_runs_on_the_cpu_and_says_so_once(self, caplog: pytest.LogCaptureFixture) -> None:
        gpus.log_cpu_fallback_once.cache_clear()
        for device_id in (None, -1, 0, 0):
            pipeline = defined(NumberProvider(8), [Doubler("index")], device_id=device_id)
            assert pipeline.device_id is None
            outputs = pipeline.run()
            assert {type(output) for output in outputs} == {TensorListCPU}
            assert np.asarray(outputs[0].as_tensor()).tolist() == [0, 2, 4, 6]
            pipeline.close()
            assert len(warnings_of(caplog)) == (device_id == 0)
        assert warnings_of(caplog) == [
            "The pipeline has device_id=0, but no GPU is usable. No step needs one, so everything runs on the "
            "CPU. Pass device_id=None to choose the CPU."
        ]
        assert caplog.records[0].name.startswith("accvlab.dali_pipeline_framework")
        with make_loader(IndexProvider(8), 4, device_id=5) as loader:
            assert indices(loader) == EIGHT  # any number

    @pytest.mark.parametrize("what", ON_GPU)
    def test_the_step_that_needs_one_is_named(self, what: str, caplog: pytest.LogCaptureFixture) -> None:
        gpus.log_cpu_fallback_once.cache_clear()
        steps = [Renamer("index", "number"), on_gpu(what, "number"), Doubler("pair")]
        words = (
            "The pipeline has device_id=0, but no GPU is usable here...\n  - step 1 (LambdaStep)...device_id=None"
        )
        error = assert_refused(lambda: defined(NumberProvider(8), steps).build(), words, DeviceError)
        assert isinstance(error, RuntimeError)
        assert str(error).count("\n  - ") == 1
        assert warnings_of(caplog) == []

    def test_all_steps_are_named_a_wrapped_one_with_its_wrapper(self) -> None:
        provider = ArrayProvider({"front": {"image": (DT.UINT8, [[1]] * 4)}, "index": (DT.INT64, [0] * 4)})
        decoder = DataGroupInPathAppliedStep(ImageDecoder("image", use_device_mixed=True), "front")
        words = (
            "\n  - step 1 (LambdaStep): fn.random.uniform"
            "\n  - step 2 (DataGroupInPathAppliedStep of ImageDecoder): fn.decoders.image\nPass"
        )
        steps = [Doubler("index"), on_gpu("drawn"), decoder]
        assert_refused(lambda: defined(provider, steps), words, DeviceError)

    @pytest.mark.parametrize("device_id", [None, 0])
    def test_own_operators_on_a_gpu_are_named_however_the_pipeline_is_made(self, device_id: int | None) -> None:
        def decoded(image: Any) -> Any:
            return fn.decoders.image(image, device="mixed").cpu()

        steps = [Doubler("index"), LambdaStep(decoded, input_names="image", output_types={"image": DT.UINT8})]
        definition = PipelineDefinition(shuffled(image_provider()), steps)
        sample = image_provider().get_data(0)

        def in_a_loader() -> None:
            source = definition.data_input
            next(iter(DataLoader(source, steps=steps, run="graph", num_workers=0, device_id=device_id)))

        rule = "no GPU is usable here" if device_id == 0 else "No GPU"
        words = f"{rule}...\n  - step 1 (LambdaStep): fn.decoders.image\n"
        for make in (
            lambda: definition.get_dali_pipeline(num_threads=1, py_num_workers=0, device_id=device_id),
            in_a_loader,
            lambda: run_step(steps, sample, device_id=device_id),
        ):
            assert_refused(make, words, DeviceError)


# Once CUDA runs in a process, DALI does not fork workers from it.
HERE = {"py_num_workers": 0}


TORCH_ON_GPU: dict[str, Any] = {"iterator": {"output_type": "torch"}, "device_id": 0, **HERE}


@pytest.mark.parametrize(
    ("device", "number"),
    [
        *((device, None) for device in (None, -1, "cpu", torch.device("cpu"))),
        *((device, 1) for device in (1, np.int64(1), "cuda:1", torch.device("cuda", 1))),
        ("auto", 2),
    ],
    ids=repr,
)
def test_a_device_is_named_in_several_ways(
    device: Any, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, 4)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert defined(IndexProvider(8), device_id=device).device_id == number
    with make_loader(IndexProvider(8), 4, device_id=device) as loader:
        assert pipeline_of(loader).device_id == number


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:x", "gpu", torch.device("cuda"), True, 1.0, [0], -2, 2**16], ids=repr
)
def test_other_devices_are_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 4)
    words = "`device_id` must be None (the CPU) or the number of a GPU, got ...'auto'"
    assert_refused(lambda: checked_device(device), words)


@pytest.mark.parametrize("device", [2, "cuda:2", "auto"])
def test_a_gpu_that_is_not_there_is_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    words = f"device_id={device!r} asks for GPU 2 (counted from 0), but only 2 can be used here. Start"
    for make in (
        functools.partial(make_loader, IndexProvider(8), 4),
        functools.partial(defined, IndexProvider(8)),
    ):
        assert_refused(lambda make=make: make(device_id=device), words, DeviceError)


@pytest.mark.parametrize(
    ("variables", "num_gpus", "uses_torch", "expected"),
    [
        ({"LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 4, False, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "2"}, 4, False, 1),
        ({"SLURM_LOCALID": "2"}, 4, True, 2),
        ({}, 4, False, 0),
        ({"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "3"}, 1, False, 0),  # it sees only its own
        # Without a launcher that says more, that of PyTorch.
        ({"RANK": "3"}, 4, True, 2),
        ({"RANK": "3"}, 1, False, 0),
        ({"RANK": "3"}, 4, False, "its launcher has not set one (LOCAL_RANK). Give it: device_id="),
    ],
)
def test_auto_is_the_local_rank(
    variables: dict[str, str], num_gpus: int, uses_torch: bool, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pipeline_arguments, "detected_rank", lambda: int(variables.get("RANK", 0)))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: uses_torch)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    pretend_gpus(monkeypatch, num_gpus)
    if isinstance(expected, str):
        assert_refused(lambda: checked_device("auto"), expected, DeviceError)
    else:
        assert checked_device("auto") == expected


def test_forked_workers_do_not_go_with_a_gpu() -> None:
    given: dict[str, Any] = {"num_workers": 1, "device_id": 0, "start_method": "fork"}
    words = "start_method='fork' does not go with device_id=0: ... Use 'forkserver' or 'spawn'."
    for faults in (None, FaultPolicy(restarts=1)):
        assert_refused(functools.partial(DataLoader, IndexProvider(8), 4, faults=faults, **given), words)
    for accepted in (
        {"num_workers": 0},
        {"start_method": "forkserver"},
        {"device_id": None},
        {"device_id": "cpu"},
    ):
        DataLoader(IndexProvider(8), 4, **{**given, **accepted}).close()


NORMALIZING = [
    ImageDecoder("image", use_device_mixed=True),
    ImageMeanStdDevNormalizer("image", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
]


# Executors of DALI that cannot bring data from the GPU to the CPU.
LEGACY_EXECUTORS: list[dict[str, Any]] = [
    {"exec_dynamic": False},
    {"exec_async": False, "exec_pipelined": False},
    {"exec_async": False},
    {"prefetch_queue_depth": {"cpu_size": 2, "gpu_size": 2}},
]


@pytest.mark.parametrize("executor", LEGACY_EXECUTORS)
def test_for_other_executors_all_steps_that_need_the_way_back_are_named(
    executor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_iterator(shuffled(image_provider()), NORMALIZING, **HERE, **executor) as iterator:
        assert next(iter(iterator))["image"].shape == (4, 48, 64, 3)  # on the CPU nothing is lost
    pretend_gpus(monkeypatch)
    steps = [*NORMALIZING, on_gpu("computed and back"), Doubler("index")]
    words = (
        "only DALI's dynamic executor does:\n"
        "  - step 1 (ImageMeanStdDevNormalizer): fn._shape\n"
        "  - step 2 (LambdaStep): a transfer from the GPU\n"
        "Leave out `exec_dynamic`, `exec_async` and `exec_pipelined`, give `prefetch_queue_depth` as a number"
    )
    assert_refused(lambda: defined(image_provider(), steps, **executor), words)
    checked_by_dali(defined(image_provider(), steps))
    steps = [ImageDecoder("image", use_device_mixed=True), ImageMeanStdDevNormalizer("image", 1.0, 2.0)]
    assert checked_by_dali(defined(image_provider(), steps, **executor)).outputs == ["cpu", "gpu"]


@pytest.mark.parametrize(("what", "may_bind"), [("computed", True), ("computed and back", False)])
def test_the_host_waits_only_where_data_come_back_to_the_cpu(
    what: str, may_bind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch)
    assert defined(image_provider(), [*NORMALIZING, on_gpu(what)]).may_bind_outputs is may_bind


@pytest.mark.gpu
class TestWithGpu:
    def test_numpy_output_is_copied_to_the_host(self, caplog: pytest.LogCaptureFixture) -> None:
        steps = [ImageDecoder("image", use_device_mixed=True)]
        pipeline = defined(image_provider(), steps)
        assert pipeline.device_id == 0
        assert [type(output) for output in pipeline.run()] == [TensorListCPU, TensorListGPU]
        pipeline.close()
        assert warnings_of(caplog) == []
        with make_iterator(shuffled(image_provider()), steps, device_id=0, **HERE) as iterator:
            [on_gpu] = iterator
        with make_iterator(shuffled(image_provider()), steps, **HERE) as iterator:
            [on_cpu] = iterator
        assert isinstance(on_gpu["image"], np.ndarray)
        assert np.abs(on_gpu["image"].astype(int) - on_cpu["image"].astype(int)).max() <= 5

    @pytest.mark.parametrize("what", ["moved", "computed"])
    def test_a_step_may_move_data_to_the_gpu(self, what: str) -> None:
        with make_iterator(shuffled(IndexProvider(8)), [on_gpu(what)], **TORCH_ON_GPU) as iterator:
            batches = [*iterator]
        assert {batch["index"].device.type for batch in batches} == {"cuda"}
        shift = 1 if what == "computed" else 0
        assert [batch["index"].tolist() for batch in batches] == [[i + shift for i in row] for row in EIGHT]

    def test_outputs_are_bound_to_another_stream(self) -> None:
        provider = ArrayProvider({"index": (DT.INT64, [np.full(1 << 16, index) for index in range(40)])})
        stream = torch.cuda.Stream()
        with make_iterator(shuffled(provider, 1), [on_gpu("computed")], **TORCH_ON_GPU) as iterator:
            with torch.cuda.stream(stream):
                found = [batch["index"].sum() for batch in iterator]
            stream.synchronize()
        assert [int(each) >> 16 for each in found] == [*range(1, 41)]


_DECODING_IN_WORKERS = """
    import os
    from support.arrays import DT, ArrayProvider, encoded_image, gradient
    from accvlab.dali_pipeline_framework import DataLoader, GridMasker, ImageDecoder

    images = [encoded_image(gradient(48, 64, phase), kind) for phase, kind in enumerate(["JPEG", "PNG"] * 4)]
    steps = [ImageDecoder("image", True), GridMasker("image")]
    provider = ArrayProvider({"image": (DT.UINT8, images)})
    with DataLoader(provider, 2, steps=steps, run="workers", num_workers=2, start_method="fork") as loader:
        assert len([*loader]) == 4
    print(os.getpid())
"""


@pytest.mark.wide
@needs_compiler
def test_workers_do_not_initialise_cuda(tmp_path: Path) -> None:
    """Each would have a context of its own, of some hundred MB of the first GPU."""
    calls = tmp_path / "calls"
    driver = make_stand_in_driver(tmp_path / "driver", [])
    done = run_python(_DECODING_IN_WORKERS, env={**os.environ, **driver, "CUDA_CALLS": str(calls)}, check=True)
    callers = {tuple(line.split()) for line in calls.read_text().splitlines()}
    # DALI initialises it in the process of the pipeline, also for the CPU.
    assert callers == {(done.stdout.strip(), "cuInit"), (done.stdout.strip(), "cuDriverGetVersion")}
