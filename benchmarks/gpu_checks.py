# SPDX-License-Identifier: Apache-2.0
"""The checks of a machine with a GPU, see `gpu_check`: each notes what it finds, and what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import psutil
import step_by_hand
import step_settings as settings
from nvidia.dali import backend, fn
from nvidia.dali.pipeline import pipeline_def
from races import START_METHOD, GetBatch, Pace, Race, Target, endless, judged, run
from results_file import in_a_line
from rig_contestants import why_not
from rig_data import EachImage, RigProvider, RigSamples
from step_contestants import normalizer, of_loader
from step_data import NUM_CAMERAS, write_jpegs
from support.arrays import DT, ArrayProvider
from support.gpu_cases import CASES, Difference, GpuCase, decoder, photo, rig_provider

from accvlab.dali_pipeline_framework import DataLoader, ImageResizer, VideoDecoder
from accvlab.dali_pipeline_framework.engine.dali.gpus import gpu_facts, why_gpu_is_unusable

ROOT = Path(__file__).resolve().parents[1]
LEGACY = {"exec_dynamic": False}
NOT_CHECKED = "not checked"


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}".splitlines()[0]


@attrs.define
class Check:
    """What a check knows, and what it finds; each finding is written at once.

    Attributes:
        path: File for the findings, as JSON.
        device_id: The GPU; None to try the logic on the CPU.
        quick: Whether to do as little as shows that the check runs.
    """

    path: Path
    device_id: int | None
    quick: bool
    found: dict[str, Any] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)

    def note(self, **findings: Any) -> None:
        self.found.update(findings)
        self.path.write_text(json.dumps({"problems": self.problems, "found": self.found}, default=str))

    def require(self, is_right: bool, problem: str) -> None:
        if not is_right:
            self.problems.append(problem)
        self.note()

    def each(self, names: Iterable[str], function: Callable[[str], Any]) -> None:
        """Note what a function returns for each name; an error is a problem, a missing package is not."""
        for name in names:
            try:
                self.note(**{name: function(name)})
            except ImportError as error:
                self.note(**{name: f"{NOT_CHECKED}: {first_line(error)}"})
            except Exception as error:
                self.require(False, f"{name}: {first_line(error)}")

    def some(self, names: Iterable[str], few: int = 2) -> list[str]:
        return [*names][: few if self.quick else None]


def environment(check: Check) -> None:
    """versions, driver, number of GPUs, packages that are missing: whether the GPU can be used at all"""
    import torch

    if check.device_id is not None:
        check.note(driver=str(attrs.asdict(gpu_facts())))
        why = why_gpu_is_unusable(check.device_id, uses_torch=True) or why_not_by_torch()
        check.require(not why, f"The GPU cannot be used: {why}.")
        check.note(videos=why_gpu_is_unusable(check.device_id, decodes_videos=True) or "can be decoded on it")
    wanted = re.compile(r"nvidia-(dali|nvimgcodec|nvjpeg)|torch|numpy|simplejpeg|av$|opencv")
    versions = {each.metadata["Name"]: each.version for each in distributions()}
    wheels = sorted(name for name in versions if name and name.startswith("nvidia-dali-cuda"))
    check.require(len(wheels) == 1, f"Wheels of DALI overwrite files of each other: {wheels}. Install one anew.")
    shared = os.statvfs("/dev/shm")
    check.note(
        gpus=asked_of_nvidia_smi("gpu", "name,driver_version,memory.total"),
        torch_cuda=torch.version.cuda,
        driver_capabilities=os.environ.get("NVIDIA_DRIVER_CAPABILITIES", "not set"),
        mig=asked_of_nvidia_smi("gpu", "mig.mode.current"),
        cores=len(os.sched_getaffinity(0)),
        shared_memory_mib=shared.f_bavail * shared.f_frsize >> 20,
        versions={name: version for name, version in sorted(versions.items()) if wanted.match(name or "")},
        nvjpeg=backend.GetNvjpegVersion(),
        nvimgcodec=backend.GetNvimgcodecVersion(),
        not_installed=[name for name in ("simplejpeg", "av", "cv2", "torchvision") if why_not(name)],
    )


def why_not_by_torch() -> str:
    """PyTorch's own reason why it cannot use a GPU; empty where it can."""
    import torch

    try:
        torch.zeros(1, device="cuda")
    except Exception as error:
        return f"PyTorch {torch.__version__}: {first_line(error)}"
    return ""


def asked_of_nvidia_smi(what: str, fields: str) -> list[str]:
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return []


# --- values ------------------------------------------------------------------------------------------------


def judged_difference(check: Check, name: str, batches: Any, expected: Any, case: GpuCase) -> dict[str, Any]:
    difference = Difference.of(batches, expected, case.pixels, case.levels)
    devices = ["cpu"] if check.device_id is None else [f"cuda:{check.device_id}"]
    check.require(difference.devices == devices, f"{name}: pixels are on {difference.devices}, not {devices}")
    check.require(difference.is_within(case), f"{name}: further from the CPU than {case.mean}, {case.share}")
    return attrs.asdict(difference)


def pixels(check: Check) -> None:
    """loaders of all kinds of pixels, without workers: GPU and CPU, in levels of 255, and the share beyond 8"""
    with tempfile.TemporaryDirectory() as folder:

        def compare(name: str) -> Any:
            case = CASES[name]
            with case.reference(Path(folder)) as reference:
                expected = list(reference)
            if check.device_id is None:
                return judged_difference(check, name, expected, expected, case)
            with case.loader(Path(folder), check.device_id) as loader:
                return judged_difference(check, name, list(loader), expected, case)

        check.each(check.some(CASES), compare)


def recipes(check: Check) -> None:
    """each recipe with two workers: images as in `pixels`, and all other fields equal to those of the CPU"""
    from driving_support.nuscenes_data import write_nuscenes
    from driving_support.recipe_cases import RECIPES, pixels_of, recipe_loader

    with tempfile.TemporaryDirectory() as folder:
        os.environ["ACCVLAB_INDEX_CACHE"] = folder
        root = write_nuscenes(Path(folder) / "root")

        def compare(name: str) -> Any:
            recipe, _, mode = name.partition(", ")
            with recipe_loader(root, recipe, mode == "training", num_workers=0, run="graph") as loader:
                expected = list(loader)
            workers = 0 if check.quick else 2
            with recipe_loader(
                root, recipe, mode == "training", num_workers=workers, device_id=check.device_id
            ) as loader:
                return judged_difference(check, name, list(loader), expected, pixels_of(recipe))

        check.each(
            check.some(f"{name}, {mode}" for name in RECIPES for mode in ("training", "evaluation")), compare
        )


# --- time, memory, processes -------------------------------------------------------------------------------


def consumers(check: Check) -> None:
    """sums of images whose batches are dropped before slow kernels have read them, and that are all held"""
    import torch

    images = [photo(number, 225, 400) for number in range(16)]
    provider = ArrayProvider({"image": (DT.UINT8, images)})

    def count_wrong(name: str) -> dict[str, int]:
        given: dict[str, Any] = {"steps": [decoder()], "num_workers": 0, "device_id": check.device_id}
        given["pipeline_arguments"] = LEGACY if name == "legacy executor" else {}
        given["gpu_views"] = name == "views"
        stream: Any = contextlib.nullcontext()
        if name == "another stream" and check.device_id is not None:
            stream = torch.cuda.stream(torch.cuda.Stream())
        with stream, DataLoader(provider, 4, **given) as loader:
            expected = [int(batch["image"].sum()) for batch in loader]
            late, held = [], []
            for _ in range(1 if check.quick else 10):
                for batch in loader:
                    if check.device_id is not None:
                        torch.cuda._sleep(40_000_000)  # some 20 ms
                    late.append(batch["image"].sum())
                held += [batch["image"] for batch in loader]
        wrong = {
            "late": sum(int(total) != expected[n % 4] for n, total in enumerate(late)),
            "held": sum(int(image.sum()) != expected[n % 4] for n, image in enumerate(held)),
        }
        check.require(not any(wrong.values()), f"{name}: batches were overwritten: {wrong}")
        return {"batches": len(late) + len(held), **wrong}

    def replay(_: str) -> str | dict[str, int]:
        """A graph of CUDA that is captured while threads of DALI work, and replayed for each batch."""
        if check.device_id is None:
            return f"{NOT_CHECKED}: it needs a GPU"
        given: dict[str, Any] = {"steps": [decoder()], "num_workers": 0, "device_id": check.device_id}
        totals, graph, images = [], torch.cuda.CUDAGraph(), None
        with DataLoader(provider, 4, **given) as loader:
            for batch in (batch for _ in range(10) for batch in loader):
                if images is None:
                    images = batch["image"].clone()
                    images.sum()  # allocates what it needs
                    torch.cuda.synchronize()
                    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                        total = images.sum()
                images.copy_(batch["image"])
                graph.replay()
                totals.append((total.clone(), batch["image"].sum()))
        wrong = sum(int(found) != int(right) for found, right in totals)
        check.require(wrong == 0, f"CUDA graphs: {wrong} of {len(totals)} replays are wrong")
        return {"batches": len(totals), "wrong": wrong}

    check.each(["dynamic executor", "another stream", "views", "legacy executor"], count_wrong)
    check.each(["CUDA graph"], replay)


_RANK = """
import sys
sys.path[:0] = {path!r}
from support.gpu_cases import decoder, rig_provider
from accvlab.dali_pipeline_framework import DataLoader
if __name__ == "__main__":
    arguments = dict(device_id={device!r}, num_workers={workers}, shard="auto", stack_arrays=True)
    with DataLoader(rig_provider(16), 2, steps=[decoder()], shuffle=True, seed=1, **arguments) as loader:
        for batch in loader:
            for number, rig in zip(batch["index"].tolist(), batch["cameras"]["image"]):
                print(number, rig.device, float(rig.float().mean()), flush=True)
"""


def ranks(check: Check) -> None:
    """two processes on one GPU, with a loader each: each sample once, and the pixels of one process on the CPU"""
    with DataLoader(rig_provider(16), 1, steps=[decoder()], num_workers=0, stack_arrays=True) as loader:
        means = {int(batch["index"][0]): float(batch["cameras"]["image"].float().mean()) for batch in loader}
    device = None if check.device_id is None else "auto"
    code = _RANK.format(path=[*sys.path], device=device, workers=0 if check.quick else 2)
    place = "cpu" if check.device_id is None else f"cuda:{check.device_id}"

    def run_both(_: str) -> dict[str, Any]:
        with ExitStack() as resources:
            script = Path(resources.enter_context(tempfile.TemporaryDirectory())) / "rank.py"
            script.write_text(code)
            began, outputs = time.perf_counter(), []
            common = {"WORLD_SIZE": "2", "LOCAL_RANK": str(check.device_id or 0), "LOCAL_WORLD_SIZE": "2"}
            running = [
                resources.enter_context(
                    subprocess.Popen(
                        [sys.executable, script],
                        env={**os.environ, **common, "RANK": str(rank)},
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
                for rank in range(2)
            ]
            for process in running:
                resources.callback(process.kill)
            for rank, process in enumerate(running):
                printed, said = process.communicate(timeout=60)
                outputs.append([line.split() for line in printed.splitlines()])
                error = re.split(r"\n(?=\S*Error\b)", said)[-1][:500]
                check.require(process.returncode == 0, f"rank {rank} ended with {process.returncode}: {error}")
        rows = [row for output in outputs for row in output]
        check.require(sorted(int(row[0]) for row in rows) == [*means], "samples are missing, or come twice")
        check.require({row[1] for row in rows} == {place}, f"images are on {sorted({row[1] for row in rows})}")
        worst = max((abs(float(mean) - means[int(number)]) for number, _, mean in rows), default=0.0)
        check.require(worst < 1, f"images differ from those of the CPU, by {worst} of 255 on average")
        return {"samples": [len(output) for output in outputs], "seconds": round(time.perf_counter() - began, 1)}

    check.note(device=place)
    check.each(["two ranks"], run_both)


_MODEL_WITH_AN_ERROR = """
import sys
sys.path[:0] = {path!r}
import torch
from support.gpu_cases import decoder, rig_provider
from accvlab.dali_pipeline_framework import DataLoader
if __name__ == "__main__":
    device = {device!r}
    provider, arguments = rig_provider(64), dict(device_id={device_id}, num_workers={workers})
    with DataLoader(provider, 2, steps=[decoder()], **arguments) as loader:
        for number, batch in enumerate(loader):
            weights = torch.zeros(3, device=device)
            picked = weights[torch.tensor([1 if number < 3 else 5], device=device)]
            print(float(picked.sum()), flush=True)
"""


def errors(check: Check) -> None:
    """an index out of range in a model on the GPU: its traceback, exit code 1, and nothing left behind"""
    code = _MODEL_WITH_AN_ERROR.format(
        path=[*sys.path], device_id=check.device_id, workers=0 if check.quick else 2,
        device="cpu" if check.device_id is None else f"cuda:{check.device_id}",
    )  # fmt: skip

    def run_model(name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "model.py"
            script.write_text(code)
            done = subprocess.run(
                [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
            )
        said = [line for line in done.stderr.splitlines() if "rror" in line]
        found = {"exit code": done.returncode, "batches": len(done.stdout.split()), "says": "; ".join(said)[-200:]}
        is_named = "device-side assert" in done.stderr or "out of bounds" in done.stderr
        is_right = done.returncode == 1 and is_named and "Traceback" in done.stderr
        check.require(is_right, f"{name}: exit code {done.returncode}, {found['says']}")
        return found

    check.each(["an index out of range", "once more"], run_model)


def contexts(check: Check) -> None:
    """MiB on the GPU with workers and without: no worker may have a context there; loaders made again, and two"""
    cases = {
        "GPU, images in the graph": (check.device_id, "graph"),
        "GPU, images in the workers": (check.device_id, "workers"),
        "CPU, images in the workers": (None, "workers"),
    }

    def count(name: str) -> dict[str, Any]:
        device_id, where = cases[name]
        found: dict[str, Any] = {}
        for num_workers in (0, 1 if check.quick else 4):
            arguments: dict[str, Any] = {"num_workers": num_workers, "run": where, "device_id": device_id}
            began = time.perf_counter()
            with DataLoader(rig_provider(16), 2, steps=[decoder()], stack_arrays=True, **arguments) as loader:
                batches = iter(loader)
                next(batches), next(batches)
                workers = psutil.Process().children(recursive=True)
                found[f"mib, {num_workers} workers"] = gpu_mib(check)
                found["seconds"] = round(time.perf_counter() - began, 1)
                found["workers that opened it"] = sum(has_gpu_open(each.pid) for each in workers)
        check.require(found["workers that opened it"] == 0, f"{name}: workers have opened the GPU")
        few, many = (value for key, value in found.items() if key.startswith("mib"))
        check.require(many - few < 100, f"{name}: workers take {many - few} MiB on the GPU")
        return found

    def reopen(name: str) -> dict[str, Any]:
        """Loaders one after the other, and two at once, have the same batches; the memory is given back."""
        sums, used = [], []
        for _ in range(2 if check.quick else 5):
            made = [
                DataLoader(rig_provider(8), 2, steps=[decoder()], num_workers=0, device_id=check.device_id)
                for _ in range(2)
            ]
            for pair in zip(*made, strict=True):
                images = (batch["cameras"][0]["image"] for batch in pair)
                sums += [tuple(int(image.sum()) for image in images)]
            for loader in made:
                loader.close()
            used.append(gpu_mib(check))
        check.require(all(one == other for one, other in sums), f"{name}: two loaders differ")
        check.require(sums[:4] * (len(sums) // 4) == sums, f"{name}: epochs differ")
        check.require(used[-1] - used[0] < 64, f"{name}: memory is kept: {used} MiB")
        return {"batches": len(sums), "mib": used}

    check.each(check.some(cases), count)
    check.each(["reopened, two at once"], reopen)


def has_gpu_open(pid: int) -> bool:
    """Whether a process has opened a device of NVIDIA, as who asks for GPUs does, also without a context."""
    with contextlib.suppress(OSError):
        return any(os.readlink(each).startswith("/dev/nvidia") for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


def memory(check: Check) -> None:
    """MiB on the GPU and of this process: 2,000 batches of images of twelve sizes, epochs of rigs, and of clips"""
    num_batches = 24 if check.quick else 2000
    images = [photo(seed, 120 + 24 * seed, 200 + 36 * seed) for seed in range(12)]
    numbers = [(7 * n) % 12 for n in range(6 * num_batches)]
    provider = ArrayProvider({"image": (DT.UINT8, [images[number] for number in numbers])})
    history = []
    with DataLoader(
        provider, 6, steps=[decoder()], num_workers=0, device_id=check.device_id, ragged="list"
    ) as loader:
        for number, _ in enumerate(loader, 1):
            if number % (num_batches // 8) == 0:
                history.append(
                    {"batch": number, "gpu": gpu_mib(check), "host": psutil.Process().memory_info().rss >> 20}
                )
                check.note(history=history)
    require_no_growth(check, "images", history)
    history = []
    with DataLoader(
        rig_provider(20), 2, steps=[decoder()], num_workers=0, device_id=check.device_id, stack_arrays=True
    ) as loader:
        for epoch in range(8 if check.quick else 64):
            for _ in loader:
                pass
            if epoch % (1 if check.quick else 8) == 0:
                host = psutil.Process().memory_info().rss >> 20
                history.append({"batch": 10 * epoch, "gpu": gpu_mib(check), "host": host})
    require_no_growth(check, "rigs, epochs of ten batches", history)

    check.each(["clips"], lambda name: memory_of_clips(check, name))


def memory_of_clips(check: Check, name: str) -> dict[str, Any]:
    """MiB that the GPU decoder holds for each clip of a batch, besides what it delivers; and whether it grows."""
    from support.videos import make_video  # PyAV may be missing
    from support.windows import video_clips

    width, height, num_frames = (192, 160, 3) if check.quick else (1280, 720, 3)
    used, history = {}, []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.mp4" for number in range(2)]
        for path in paths:
            make_video(path, 36, "libx264", size=(width, height))
        for batch_size in (2, 8):
            source = video_clips(paths, num_frames, images="encoded")
            arguments: dict[str, Any] = {"num_workers": 0, "device_id": check.device_id, "prefetch_queue_depth": 1}
            with DataLoader(
                source, batch_size, steps=[VideoDecoder("frames", device="gpu")], **arguments
            ) as loader:
                for epoch in range(2 if check.quick else 10):
                    num_batches = sum(1 for _ in loader)
                    host = psutil.Process().memory_info().rss >> 20
                    history.append({"batch": epoch, "gpu": gpu_mib(check), "host": host})
                used[batch_size] = gpu_mib(check)
                check.require(num_batches == 24 // batch_size, f"{name}: {num_batches} batches of {batch_size}")
    require_no_growth(check, name, history[-len(history) // 2 :])
    frame_mib = 3 * width * height / 2**20
    return {
        "MiB per clip": round((used[8] - used[2]) / 6, 1),
        "8 frames and its output": round((8 + num_frames) * frame_mib, 1),
    }


def require_no_growth(check: Check, name: str, history: list[dict[str, int]]) -> None:
    growth = {name: history[-1][name] - history[1][name] for name in ("gpu", "host")}
    check.note(**{f"growth, {name}": growth})
    is_little = growth["gpu"] < 64 and growth["host"] < 64
    check.require(check.quick or is_little, f"Memory grows, {name}: {growth}")


def gpu_mib(check: Check) -> int:
    """Memory that is in use on the GPU."""
    if check.device_id is None:
        return 0
    import torch

    free, total = torch.cuda.mem_get_info(check.device_id)
    return (total - free) >> 20


LIBRARY, BY_HAND, ALONE = "this library", "DALI by hand", "decoder alone, files in memory"
MORE_LOAD = "decoder alone, hw_decoder_load=0.9"
TORCHVISION, RECIPE = "PyTorch, torchvision on the GPU", "StreamPETR training"


@attrs.frozen
class Rigs:
    """Contestants that load files of six cameras, decode, resize and normalize them."""

    samples: RigSamples
    batch_size: int
    num_workers: int
    device_id: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of loaders."""
        common = {"num_threads": 4, "start_method": START_METHOD}
        return {**common, "num_workers": self.num_workers, "device_id": self.device_id}

    def loader(self) -> DataLoader:
        resizer = ImageResizer("image", output_hw=settings.OUTPUT_HW, mode="crop")
        steps = [decoder(), resizer, normalizer(layout="CHW")]
        return DataLoader(
            RigProvider(self.samples), self.batch_size, steps=steps, stack_arrays=True, **self.arguments
        )

    def by_dali(self, work: Callable[[Any], Any], in_memory: bool = False, **options: Any) -> GetBatch:
        workers = 0 if in_memory else self.num_workers
        parallel = {"py_num_workers": workers, "py_start_method": START_METHOD} if workers else {}
        files = [np.fromfile(path, np.uint8) for path in self.samples.images]
        each_of_batch = [files[n % len(files)] for n in range(self.batch_size * NUM_CAMERAS)]

        @pipeline_def(batch_size=len(each_of_batch), num_threads=4, device_id=self.device_id, **parallel)
        def define() -> Any:
            if in_memory:
                encoded = fn.external_source(lambda: each_of_batch, batch=True, no_copy=True)
            else:
                encoded = fn.external_source(EachImage(self.samples), batch=False, parallel=workers > 0)
            device = "cpu" if self.device_id is None else "mixed"
            return work(fn.decoders.image(encoded, device=device, **options))

        pipeline = define()
        pipeline.build()
        return lambda: len(pipeline.run()) and self.batch_size

    def by_torchvision(self) -> GetBatch:
        import torch
        from rig_torch import EncodedRigs
        from step_torch import torch_loader
        from torchvision.io import decode_jpeg

        batches = endless(torch_loader(EncodedRigs(self.samples), self.batch_size, self.num_workers, collate=list))
        mean, std = (
            torch.tensor(each, device="cuda")[:, None, None] for each in (settings.MEAN, settings.STD_DEV)
        )
        height, width = settings.OUTPUT_HW

        def get() -> int:
            encoded = [image for sample in next(batches) for image in sample]
            images = torch.stack(decode_jpeg(encoded, device="cuda")).float()
            scaled = width * images.shape[2] // images.shape[3]
            images = torch.nn.functional.interpolate(images, (scaled, width), mode="bilinear")
            _ = (images[:, :, (scaled - height) // 2 :][:, :, :height] - mean) / std
            torch.cuda.current_stream().synchronize()
            return self.batch_size

        get()
        return get


def synchronized(get: GetBatch, check: Check) -> GetBatch:
    """Wait for each batch on the host, as the others do."""
    if check.device_id is None:
        return get
    import torch

    def get_and_wait() -> int:
        count = get()
        torch.cuda.current_stream().synchronize()
        return count

    return get_and_wait


def speed(check: Check) -> None:
    """ms per batch of 4 samples of 6 cameras, 1600 x 900: DALI by hand, its decoder alone, PyTorch beside it"""
    batch_size, num_workers = (1, 0) if check.quick else (4, min(8, len(os.sched_getaffinity(0))))
    num_images, frames_per_scene = (6, 2) if check.quick else (48, 40)

    def start(folder: Path, resources: ExitStack) -> Mapping[str, GetBatch]:
        samples = RigSamples(write_jpegs(folder / "rig", num_images), NUM_CAMERAS)
        rigs = Rigs(samples, batch_size, num_workers, check.device_id)
        contestants = {
            LIBRARY: synchronized(of_loader(resources.enter_context(rigs.loader()), batch_size), check),
            BY_HAND: rigs.by_dali(lambda image: step_by_hand.normalize_to_chw(step_by_hand.resize(image))),
            ALONE: rigs.by_dali(lambda image: image, in_memory=True),
        }
        if check.device_id is not None:
            more = {"in_memory": True, "hw_decoder_load": 0.9}  # DALI's default is 0.65
            contestants[MORE_LOAD] = rigs.by_dali(lambda image: image, **more)
            try:
                contestants[TORCHVISION] = rigs.by_torchvision()
            except Exception as error:  # it is not there, does not fit PyTorch, or has no decoder for GPUs
                advice = "install the torchvision that goes with PyTorch"
                check.note(torchvision=f"{NOT_CHECKED}: {first_line(error)}; {advice}")
        if why_not("simplejpeg"):  # the recipe reads sizes of images by it
            return contestants
        from bench_recipes import SETTINGS, STREAMPETR, make_data

        provider = make_data(folder / "recipe", num_images, frames_per_scene)
        trained = STREAMPETR.loader(provider, batch_size, SETTINGS, **rigs.arguments)
        contestants[RECIPE] = synchronized(of_loader(resources.enter_context(trained), batch_size), check)
        return contestants

    with tempfile.TemporaryDirectory() as folder:
        targets = (Target(LIBRARY, BY_HAND, 0.8), Target(LIBRARY, ALONE, 0.7), Target(LIBRARY, TORCHVISION, 1.0))
        race = Race("a rig", "samples", lambda resources: start(Path(folder), resources), targets)
        row = run(race, Pace(1, 0.01, 0.0) if check.quick else Pace(3, 2.0, 1.0))
    rates = {name: each["median"] for name, each in row["per_second"].items()}
    race = attrs.evolve(race, targets=tuple(each for each in targets if each.than in rates))
    check.note(
        ms_per_batch={name: round(1000 * batch_size / rate, 2) for name, rate in rates.items()},
        busy_cores={name: each["median"] for name, each in row["busy_cores"].items()},
        ratios=row["ratios"],
    )
    for target in judged(race, row):
        check.require(check.quick or target["is_met"], in_a_line(target))


# --- faults ------------------------------------------------------------------------------------------------


def faults(check: Check) -> None:
    """files of odd kinds, damaged ones, and a GPU without free memory: who is blamed"""
    good = photo(0)
    files = {
        "progressive": photo(0, progressive=True),
        "4:4:4": photo(0, subsampling=0),
        "half a file": good[: len(good) // 2],
        "header only": good[:200],
        "zeros": np.zeros(500, np.uint8),
    }

    def outcome(file: Any, device_id: int | None) -> str:
        provider = ArrayProvider({"image": (DT.UINT8, [good, file])})
        with DataLoader(
            provider, 1, steps=[decoder()], num_workers=0, device_id=device_id, faults="skip"
        ) as loader:
            means = [round(float(batch["image"].float().mean())) for batch in loader]
            blamed = [failed.sample_index for failed in loader.failed_samples]
        return f"means {means}, blamed {blamed}"

    def compare(name: str) -> dict[str, str]:
        found = {"cpu": outcome(files[name], None), "gpu": outcome(files[name], check.device_id)}
        is_same = found["cpu"].partition("blamed")[2] == found["gpu"].partition("blamed")[2]
        if name == "half a file":  # decoders may make a picture of it
            return found
        check.require(is_same, f"{name}: {found['gpu']}, on the CPU {found['cpu']}")
        return found

    check.each(check.some(files), compare)
    check.each(["no memory"], lambda _: without_memory(check))


def without_memory(check: Check) -> str:
    """What becomes of good samples where another program has all memory of the GPU."""
    import torch

    why = why_not_filled(check)
    if why:
        return f"{NOT_CHECKED}: {why}"
    provider = ArrayProvider({"image": (DT.UINT8, [photo(number, 900, 1600) for number in range(8)])})
    taken, error = None, ""
    with DataLoader(
        provider, 8, steps=[decoder()], num_workers=0, device_id=check.device_id, faults="skip"
    ) as loader:
        if check.device_id is not None:
            taken = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device="cuda")
        try:
            num_batches = len(list(loader))
        except Exception as raised:
            num_batches, error = 0, f", {first_line(raised)}"
        blamed = len(loader.failed_samples)
    del taken
    check.require(blamed == 0, f"no memory: {blamed} good samples are blamed")
    check.require(check.device_id is None or bool(error), "no memory: there was no error")
    return f"{num_batches} batches, {blamed} blamed{error}"


def why_not_filled(check: Check) -> str:
    """Why the memory of the GPU must not be taken; empty where it may be."""
    if check.device_id is None:
        return ""
    import torch

    of_system = psutil.virtual_memory().total
    if abs(torch.cuda.get_device_properties(check.device_id).total_memory - of_system) < 0.2 * of_system:
        return "the GPU shares the memory of the system"
    others = set(asked_of_nvidia_smi("compute-apps", "pid")) - {str(os.getpid())}
    return f"other programs use the GPU: {', '.join(sorted(others))}" if others else ""


# --- tests -------------------------------------------------------------------------------------------------


def tests(check: Check) -> None:
    """the tests marked gpu"""
    marked = [
        path for path in (ROOT / "tests").glob("*/**/test_*.py") if re.search(r"mark\.gpu\b", path.read_text())
    ]
    if check.quick:
        marked = [f"{ROOT}/tests/dali_pipeline_framework/engine/test_devices.py", "-k", "numpy_output_is_copied"]
    # A bare machine lacks plug-ins, whose options and marks are then unknown.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:timeout", "--tb=line"]
    command += ["-o", "addopts=", "-W", "ignore::pytest.PytestConfigWarning", "-m", "gpu"]
    command += ["-W", "ignore::pytest.PytestUnknownMarkWarning", *marked]
    if check.device_id is None:
        command += ["-p", "support.gpu_rehearsal"]
    command += ["-v"]  # so that what was run is noted where the time is over before the end
    counts, last, failed = Counter[str](), "", []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        for line in running.stdout or ():
            last = line.strip() or last
            outcome = re.search(r" (PASSED|FAILED|ERROR|SKIPPED)\b", line)
            if outcome is not None:
                counts[outcome[1]] += 1
                failed += [last] if outcome[1] in ("FAILED", "ERROR") else []
                check.note(outcomes=dict(counts), failed=failed, last=last[:300])
    check.note(summary=last)
    check.require(running.returncode == 0, f"{last.strip('= ')}: {', '.join(failed)}")
    check.require(check.device_id is None or counts["PASSED"] > 0, "No test has run on the GPU.")


# Seconds that each may take, in the order in which they run.
CHECKS: dict[Callable[[Check], None], int] = {
    environment: 40,  # reads PyTorch for the first time
    pixels: 60,
    recipes: 80,
    consumers: 30,
    contexts: 40,
    ranks: 30,
    errors: 35,
    faults: 35,
    tests: 110,
    memory: 50,
    speed: 80,
}
