"""GPUs that are there and cannot be used, and what becomes of tensors and pipelines on one."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import nvidia.dali
import pytest
import torch
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline
from support.array_samples import group_of
from support.child_processes import run_python
from support.gpu_definitions import pretend_gpus
from support.laws import each_value, some
from support.loaders import make_loader, pipeline_of
from support.pipelines import shuffled
from support.providers import IndexProvider
from support.refusals import assert_refused
from support.stand_in_driver import make_stand_in_driver, needs_compiler

from accvlab.dali_pipeline_framework.engine.dali import gpus
from accvlab.dali_pipeline_framework.engine.dali.gpus import GpuFacts, why_gpu_is_unusable
from accvlab.dali_pipeline_framework.engine.transport import Delivery, FieldPlace
from accvlab.dali_pipeline_framework.errors import DeviceError, OutputError
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    output_conversion,
)

DT = types.DALIDataType


# --- why one cannot be used --------------------------------------------------------------------------------


def defined(**arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(IndexProvider(8)))
    return definition.get_dali_pipeline(**{"py_num_workers": 0, **arguments})


UNUSABLE = "The pipeline has device_id=0, but this GPU cannot be used: "


@pytest.mark.parametrize(
    ("version", "machine", "capability", "expected"),
    [
        (12986, "x86_64", (7, 0), ""),
        (12986, "x86_64", (13, 0), ""),  # translated
        (12986, "aarch64", (11, 0), "and this GPU has 11.0: install nvidia-dali-cuda130 instead"),
        (13048, "x86_64", (7, 0), "and this GPU has 7.0: install nvidia-dali-cuda120 instead"),
        (13048, "aarch64", (11, 0), ""),
        (12986, "x86_64", (3, 5), "and this GPU has 3.5"),
        (12986, "riscv64", (3, 5), ""),  # nothing is known
    ],
)
def test_wheels_are_for_some_gpus(
    version: int, machine: str, capability: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability=capability)
    monkeypatch.setattr(nvidia.dali, "__cuda_version__", version)
    monkeypatch.setattr(gpus.platform, "machine", lambda: machine)
    why = why_gpu_is_unusable(0)
    assert why.endswith(expected)
    assert bool(why) == bool(expected)
    for make in (lambda: make_loader(IndexProvider(8), 4, device_id=0), lambda: defined(device_id=0)):
        if why:
            assert_refused(make, UNUSABLE + "nvidia-", DeviceError)
        else:
            make()


def test_a_pytorch_that_cannot_use_the_gpu_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, driver_cuda=12040)
    for cuda, why in (
        (None, "without CUDA: install one with it, or take output_type='numpy'"),
        ("13.0", "for CUDA 13.0, and the driver is for 12.4: update it, or install another PyTorch"),
    ):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert why_gpu_is_unusable(0) == ""
        for make in (
            lambda: DataLoader(IndexProvider(8), 4, num_workers=0, device_id=0),
            lambda: DALIStructuredOutputIterator(None, defined(device_id=0)),
        ):
            words = f"{UNUSABLE}PyTorch {torch.__version__} is built {why}."
            assert str(assert_refused(make, "", DeviceError)) == words
        make_loader(IndexProvider(8), 4, device_id=0)  # with arrays of NumPy
    monkeypatch.setattr(torch.version, "cuda", "12.8")  # of the same major version as the driver
    assert why_gpu_is_unusable(0, uses_torch=True) == ""


def test_what_is_not_there_or_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 2, has_video=False)
    assert why_gpu_is_unusable(1) == ""
    assert why_gpu_is_unusable(2) == "2 GPUs can be used here (counted from 0)"
    assert why_gpu_is_unusable(1, decodes_videos=True).startswith("libnvcuvid, with which a GPU decodes videos,")
    pretend_gpus(monkeypatch, 0)
    assert why_gpu_is_unusable(0) == "no CUDA driver, or no GPU, is here"
    pretend_gpus(monkeypatch, driver_cuda=11080)
    why = "nvidia-dali-cuda120 needs a driver for CUDA 12, and this one is for 11.8: update it"
    assert why_gpu_is_unusable(0) == why
    monkeypatch.setattr(nvidia.dali, "__cuda_version__", 13048)
    monkeypatch.setattr(gpus.platform, "machine", lambda: "x86_64")
    why = "nvidia-dali-cuda130 needs a driver for CUDA 13, and this one is for {}: update it"
    for driver, capability, expected in (
        (11080, (9, 0), why.format("11.8")),
        (12040, (9, 0), why.format("12.4") + ", or install nvidia-dali-cuda120"),
        (12040, (11, 0), why.format("12.4")),  # for which DALI for CUDA 12 has no code
        (11080, (7, 0), "this GPU has 7.0"),  # neither wheel runs with this driver
    ):
        pretend_gpus(monkeypatch, capability=capability, driver_cuda=driver)
        assert why_gpu_is_unusable(0).endswith(expected)


NOT_LISTED = "The GPUs could not be listed, so none is used: "


@pytest.mark.parametrize(
    ("printed", "expected", "warned"),
    [
        ("hello\naccvlab-gpus: [[[8, 9], [9, 0]], 12080, true]\n", GpuFacts(((8, 9), (9, 0)), 12080, True), []),
        ("12\n\naccvlab-gpus: [[], 12080, false]\nbye", GpuFacts((), 12080, False), []),
        ("", GpuFacts(), ["Segmentation fault"]),
        (PermissionError(13, "no permission", ""), GpuFacts(), ["[Errno 13] no permission: ''"]),
        (subprocess.TimeoutExpired("python", 120), GpuFacts(), ["Command 'python' timed out after 120 seconds"]),
    ],
)
def test_what_another_process_prints_of_the_gpus(
    printed: Any,
    expected: GpuFacts,
    warned: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(*arguments: Any, timeout: float, **settings: Any) -> Any:
        if isinstance(printed, Exception):
            raise printed
        return subprocess.CompletedProcess([], 1, printed, "Segmentation fault")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(subprocess, "run", run)
    assert gpus.gpu_facts.__wrapped__() == expected
    assert caplog.messages == [NOT_LISTED + each for each in warned]


@needs_compiler
@some("has_video", [False, True], {1})
def test_what_a_driver_says_is_read_in_another_process(has_video: bool, tmp_path: Path) -> None:
    driver = make_stand_in_driver(tmp_path, [(8, 9), (9, 0)], driver_cuda=12040, has_video=has_video)
    code = f"""
        import os
        from {gpus.__name__} import gpu_facts

        for os.environ["CUDA_VISIBLE_DEVICES"] in ("0,1", ""):
            print(gpu_facts.__wrapped__())
    """
    done = run_python(code, env={**os.environ, **driver}, check=True)
    facts = [GpuFacts(capabilities, 12040, has_video) for capabilities in (((8, 9), (9, 0)), ())]
    assert done.stdout.splitlines() == [*map(str, facts)]


# --- defaults ----------------------------------------------------------------------------------------------


def test_threads_and_start_method_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from accvlab.dali_pipeline_framework.pipeline import pipeline_arguments

    monkeypatch.setattr(pipeline_arguments, "num_cores_of_rank", lambda: 128)
    on_cpu = defined(py_num_workers=2)
    pretend_gpus(monkeypatch)
    on_gpu = defined(py_num_workers=2, device_id=0)
    assert (on_cpu.num_threads, on_cpu._py_start_method) == (128, "fork")
    assert (on_gpu.num_threads, on_gpu._py_start_method) == (8, "spawn")
    given = defined(py_num_workers=2, device_id=0, num_threads=20, py_start_method="fork")
    assert (given.num_threads, given._py_start_method) == (20, "fork")


# --- tensors ------------------------------------------------------------------------------------------------


class StandIn:
    """A tensor as DALI has it on a GPU."""

    def __init__(self, array: np.ndarray, dtype: Any) -> None:
        self.array, self.dtype, self.copied = array, dtype, []

    def device_id(self) -> int:
        return 1

    def shape(self) -> list[int]:
        return [*self.array.shape]

    def copy_to_external(self, pointer: Any, stream: Any, non_blocking: bool) -> None:
        self.copied.append((stream.value, non_blocking))
        ctypes.memmove(pointer.value, self.array.ctypes.data, self.array.nbytes)


def converted(tensor: Any, **settings: Any) -> list[Any]:
    """A batch of one field."""
    blueprint = group_of(field=tensor.dtype)
    delivery = Delivery.of_plain_outputs([tensor.array.dtype])
    convert = output_conversion.OutputConverter("torch", blueprint.format, delivery, **settings)
    outputs: Any = [SimpleNamespace(as_tensor=lambda: tensor)]
    return convert(outputs)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Those on which tensors of PyTorch are made, which are on the CPU here."""
    made: list[torch.device] = []

    def empty(shape: list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        made.append(device)
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(output_conversion, "TensorGPU", StandIn)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=70 + device))
    return made


@pytest.mark.parametrize(
    ("dtype", "numpy_type"), [(DT.FLOAT, "f4"), (DT.UINT16, "u2"), (DT.UINT64, "u8"), (DT.BOOL, "?")]
)
def test_tensors_on_a_gpu_are_copies_in_the_memory_of_pytorch(
    dtype: Any, numpy_type: str, devices: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(6).reshape(2, 3).astype(numpy_type)
    tensor: Any = StandIn(array, dtype)
    [copy] = converted(tensor)
    np.testing.assert_array_equal(copy.numpy(), array, strict=True)
    assert devices == [torch.device("cuda", 1)]
    assert tensor.copied == [(71, True)]
    monkeypatch.setattr(torch, "from_dlpack", lambda given: ("view of", given))
    assert converted(tensor, gpu_views=True) == [("view of", tensor)]


class Ragged(list[StandIn]):
    """Tensors of different shapes, as DALI has them on a GPU."""

    def is_dense_tensor(self) -> bool:
        return False

    def as_tensor(self) -> None:
        raise RuntimeError("not dense")


@pytest.mark.parametrize("is_by_sample", [False, True])
def test_images_of_cameras_of_different_sizes_are_copied_once_each(
    is_by_sample: bool, devices: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    # images: [sample][camera], the second camera has larger ones
    images = [[np.full((2 + camera, 3), 10 * sample + camera) for camera in range(2)] for sample in range(3)]
    in_order = images if is_by_sample else [*zip(*images, strict=True)]
    tensors = Ragged(StandIn(image.astype("u2"), DT.UINT16) for row in in_order for image in row)
    monkeypatch.setattr(Delivery, "is_by_sample", is_by_sample)
    places = [FieldPlace(0, False, np.dtype("u2"), element=camera, count=2) for camera in range(2)]
    blueprint = group_of(camera0=DT.UINT16, camera1=DT.UINT16)
    convert = output_conversion.OutputConverter("torch", blueprint.format, Delivery(places, None))
    outputs: Any = [tensors]
    for camera, copies in enumerate(convert(outputs)):
        np.testing.assert_array_equal(copies.numpy(), np.stack([row[camera] for row in images]))
    assert [each.copied for each in tensors] == [[(71, True)]] * 6
    tensors[4].array = np.zeros((9, 9), "u2")
    assert_refused(lambda: convert(outputs), "must have the same shape", OutputError)


# --- errors of the model ------------------------------------------------------------------------------------


class Backend:
    """What DALI destroys."""

    def Shutdown(self) -> None:
        raise AssertionError("here the process would end")


LOST = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


def backends_at_shutdown(monkeypatch: pytest.MonkeyPatch, *pipelines: Any) -> dict[int, list[Any]]:
    """Note the backend with which each of some pipelines is shut down, by its `id`; others end as they do."""
    original: Any = Pipeline._shutdown
    # Without the pipelines: they would be destroyed while the patched method is taken away, and call that.
    noted: dict[int, list[Any]] = {id(each): [] for each in pipelines}

    def shutdown(self: Any) -> None:
        if id(self) in noted:
            noted[id(self)].append(self._pipe)
        else:
            original(self)

    monkeypatch.setattr(Pipeline, "_shutdown", shutdown)
    return noted


LOSING = [
    RuntimeError(LOST),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA driver API error CUDA_ERROR_ILLEGAL_ADDRESS (700):\nan illegal memory access"),
    RuntimeError("CUDA runtime API error cudaErrorMisalignedAddress (716)"),
    RuntimeError("CUDA Runtime failure: '#719' at ..."),
]
OTHERS = [
    RuntimeError("CUDA driver API error CUDA_ERROR_NOT_SUPPORTED (801)"),
    RuntimeError("CUDA runtime API error cudaErrorMemoryAllocation (2):\nout of memory"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    KeyboardInterrupt(),
]


def as_of_gpu(pipeline: Any) -> Callable[[], None]:
    """Have a pipeline look like one on a GPU; returns what undoes it and destroys DALI's."""
    whole, pipeline._pipe, pipeline._device_id = pipeline._pipe, Backend(), 0

    def end() -> None:
        pipeline._pipe = None
        whole.Shutdown()

    return end


@each_value(makes=["loader", "iterator"], error=[*LOSING, *OTHERS])
def test_after_an_error_of_cuda_the_pipeline_is_not_destroyed(
    makes: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_left = error in LOSING
    made: Any = make_loader(IndexProvider(8), 4)
    if makes == "iterator":
        made = DALIStructuredOutputIterator(None, defined())
    pipeline = pipeline_of(made) if makes == "loader" else made.internal_iterator
    noted = backends_at_shutdown(monkeypatch, pipeline)
    released: list[object] = []
    monkeypatch.setattr(nvidia.dali.backend, "ReleaseUnusedMemory", lambda: released.append(True))
    assert next(iter(made))["index"].tolist()
    end = as_of_gpu(pipeline)
    backend = pipeline._pipe
    made.__exit__(type(error), error, None)
    assert noted == {id(pipeline): [None if is_left else backend]}
    assert released == ([] if is_left else [True])
    assert pipeline.is_closed
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().partition(";")[0] for record in logged] == ["A call of CUDA has failed"] * is_left
    assert [record.exc_info[1] for record in logged if record.exc_info] == [error] * is_left
    end()


@pytest.mark.parametrize("text", ["CUDA runtime API error cudaErrorAssert (710)", "out of memory on device 0."])
def test_a_pipeline_that_has_lost_the_gpu_itself_is_not_destroyed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes it; nor another one on that GPU."""
    monkeypatch.setattr(nvidia.dali.backend, "ReleaseUnusedMemory", lambda: None)
    loader = make_loader(IndexProvider(8), 4)
    batches, pipeline = iter(loader), pipeline_of(loader)
    other, of_cpu = (DALIStructuredOutputIterator(None, defined()) for _ in range(2))
    beside, on_cpu = other.internal_iterator, of_cpu.internal_iterator
    ends = [as_of_gpu(pipeline), as_of_gpu(beside)]
    pipeline.failure = DeviceError(f"Batch 0 of epoch 0 failed because of the GPU, and not of samples: {text}")
    assert_refused(lambda: next(batches), "Batch 0", DeviceError)
    left = {id(each): [None if "Assert" in text else each._pipe] for each in (pipeline, beside)}
    noted = backends_at_shutdown(monkeypatch, pipeline, beside, on_cpu)
    for each in (loader, other, of_cpu):
        each.close()
    assert noted == {**left, id(on_cpu): [on_cpu._pipe]}
    for end in (*ends, on_cpu._pipe.Shutdown):
        end()


_WITHOUT_WITH = """
import os

from nvidia.dali.pipeline import Pipeline
from support.loaders import pipeline_of
from support.providers import IndexProvider
from accvlab.dali_pipeline_framework.loader import DataLoader

def train(error):
    loader = DataLoader(IndexProvider(8), 4, num_workers=0, output_type="numpy")
    pipeline = pipeline_of(loader)
    for batch in loader:
        pipeline._device_id = 0
        Pipeline._shutdown = lambda self: print("destroyed:", self._pipe is not None)
        raise RuntimeError(error)

for error in ERRORS:
    if not (child := os.fork()):
        train(error)
    print("ended:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.wide
def test_at_exit_a_pipeline_is_not_destroyed_either() -> None:
    errors = (LOST, "something else")
    done = run_python(_WITHOUT_WITH.replace("ERRORS", repr(errors)), check=True)
    *of_each, after = done.stdout.split("ended: 1\n")
    assert not after
    # DALI shuts down all that are left, again.
    assert ["destroyed: True" in printed for printed in of_each] == [False, True]
    for error in errors:
        assert error.partition("\n")[0] in done.stderr


def test_the_memory_of_a_gpu_is_given_back_only_where_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia.dali.backend, "ReleaseUnusedMemory", lambda: pytest.fail("there is none"))
    with make_loader(IndexProvider(8), 4) as loader:
        next(iter(loader))
