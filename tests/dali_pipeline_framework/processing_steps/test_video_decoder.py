"""Encoded videos, decoded by a step: where, by how many operators, and to which pixels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import av
import numpy as np
import pytest
from support.arrays import DT
from support.gpu_definitions import GraphCounts, checked_by_dali, counts_of, pretend_gpus
from support.laws import each_value
from support.loaders import pipeline_of
from support.refusals import assert_refused
from support.videos import (
    B_FRAMES,
    copy_packets,
    encoded_video,
    make_video,
    read_numbers,
    with_content,
    write_images,
)
from support.windows import video_clips

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    ImageContent,
    ImageDecoder,
    ImageResizer,
    SampleDataGroup,
    VideoDecoder,
    VideoFrameDataProvider,
    Videos,
)
from accvlab.dali_pipeline_framework.engine.dali.gpus import GpuFacts
from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.operators import encoded_videos
from accvlab.dali_pipeline_framework.operators.encoded_videos import why_not_in_graph

NUM_CAMERAS, NUM_FRAMES = 3, 24


class Rig(DataProvider):
    """Three cameras, in an array or with names; sample ``i`` has two frames, or one, of a video of each."""

    def __init__(
        self,
        codec: str = "vp9 yuv420p",
        content: bytes | None = None,
        *,
        is_clip: bool = True,
        has_names: bool = False,
        damaged: int | None = None,
    ) -> None:
        self.content = ImageContent(is_encoded=True, codecs=(codec,) if codec else ())
        self.file = encoded_video(NUM_FRAMES) if content is None else np.frombuffer(content, np.uint8)
        self.is_clip, self.has_names, self.damaged = is_clip, has_names, damaged

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8, ndim=1, content=self.content)
        camera.add_data_field("image_to_decode", DT.INT32, ndim=int(self.is_clip))
        cameras = SampleDataGroup()
        for name in "abc":
            cameras.add_data_group_field(name, camera)
        sample = SampleDataGroup()
        if self.has_names:
            sample.add_data_group_field("cameras", cameras)
        else:
            sample.add_data_group_field_array("cameras", camera, NUM_CAMERAS)
        return sample

    def get_number_of_samples(self) -> int:
        return 6

    def numbers(self, sample_index: int, camera: int) -> list[int]:
        return [sample_index + 5 * camera, sample_index][: 1 + self.is_clip]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        for number, camera in enumerate(sample["cameras"].values()):
            numbers = self.numbers(sample_index, number)
            is_damaged = (sample_index, number) == (self.damaged, 1)
            camera["image"] = self.file[:200] if is_damaged else self.file
            camera["image_to_decode"] = numbers if self.is_clip else numbers[0]
        return sample


@attrs.frozen
class Run:
    """What a loader delivered, the operators of its graph, and its plan."""

    batches: list[Mapping[str, Any]]
    counts: GraphCounts
    plan: str

    def joined(self, name: str) -> np.ndarray:
        return np.concatenate([batch[name] for batch in self.batches])

    @property
    def decodes_in_graph(self) -> bool:
        return self.counts.names["cpu", "decoders__Video"] == 1


def loaded(source: DataProvider, *steps: Any, **arguments: Any) -> Run:
    settings = {"num_workers": 0, "output_type": "numpy", **arguments}
    with DataLoader(source, 2, steps=steps, **settings) as loader:
        return Run([*loader], counts_of(pipeline_of(loader)), str(loader.plan))


def planned_for_gpu(codec: str, *steps: Any, **rig: Any) -> tuple[GraphCounts, str]:
    loader = DataLoader(Rig(codec, b"unread", **rig), 2, steps=steps, num_workers=0, device_id=0)
    return checked_by_dali(pipeline_of(loader)), str(loader.plan)


# --- pixels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rig", "planned"),
    [
        ({"is_clip": True}, "once for all elements of cameras"),
        ({"is_clip": False}, "once for all elements of cameras"),
        ({"has_names": True}, "once for 3 fields"),
    ],
)
@pytest.mark.parametrize("run", ["graph", "workers"])
def test_one_operator_decodes_the_videos_of_all_cameras_and_samples(
    rig: dict[str, bool], planned: str, run: str
) -> None:
    source = Rig(**rig)
    found = loaded(source, VideoDecoder("image", colors="dali"), run=run)
    for number, batch in enumerate(found.batches):
        for camera, fields in enumerate(batch["cameras"].values()):
            assert set(fields) == {"image"}
            assert fields["image"].shape == (2, 2, 64, 96, 3) if source.is_clip else (2, 64, 96, 3)
            for frames, sample in zip(fields["image"], (2 * number, 2 * number + 1), strict=True):
                clip = frames if source.is_clip else frames[None]
                assert read_numbers(clip) == source.numbers(sample, camera)
    assert found.decodes_in_graph == (run == "graph")
    assert (f"step 0 (VideoDecoder): pixels, {planned}" in found.plan) == (run == "graph")


@each_value(run=["graph", "workers"], name=["vp9.webm", "vp9.mp4", "mjpeg.mkv"])
def test_the_pixels_are_those_that_the_provider_decodes(name: str, run: str, tmp_path: Path) -> None:
    """VP9 and MJPEG are decoded in the graph without a GPU."""
    codec = "mjpeg" if "mjpeg" in name else "libvpx-vp9"
    paths = {camera: [str(make_video(tmp_path / f"{camera}_{name}", 20, codec))] for camera in ("front", "left")}
    videos = Videos(cameras=paths, colors="dali")
    settings = {"length": 3, "step": 2, "stride": 2}
    expected = loaded(video_clips(videos, **settings), shuffle=True, seed=3)
    source = video_clips(videos, images="encoded", **settings)
    found = loaded(source, VideoDecoder("frames", colors="dali"), run=run, shuffle=True, seed=3)
    for batch, other in zip(expected.batches, found.batches, strict=True):
        for camera in paths:
            assert np.array_equal(batch[camera]["frames"], other[camera]["frames"])
    assert (source.statistics.num_decoded > 0) == (run != "graph")


def test_videos_that_only_workers_decode_have_the_pixels_of_the_provider(tmp_path: Path) -> None:
    path = make_video(tmp_path / "b.mp4", 20, "libx264", options=B_FRAMES["libx264"])
    found = loaded(VideoFrameDataProvider(path, images="encoded"), VideoDecoder("image"))
    assert np.array_equal(found.joined("image"), loaded(VideoFrameDataProvider(path)).joined("image"))


def test_steps_behind_see_shapes_before_the_pixels_are_there() -> None:
    """A divided resizer asks for the size of the image, which the header of the file tells."""
    steps = VideoDecoder("image", colors="dali"), ImageResizer("image", output_hw=[32, 32], mode="pad")
    graph, workers = (loaded(Rig(), *steps, run=run).batches for run in ("graph", "workers"))
    for batch, other in zip(graph, workers, strict=True):
        assert batch["cameras"][1]["image"].shape == (2, 2, 32, 32, 3)
        difference = batch["cameras"][1]["image"].astype(int) - other["cameras"][1]["image"]
        assert np.abs(difference).max() <= 1


@pytest.mark.filterwarnings("ignore:Frames of the video")  # one is hidden
def test_vp8_is_decoded_in_the_graph_where_each_packet_shows_a_frame(tmp_path: Path) -> None:
    plain = make_video(tmp_path / "plain.webm", 20, "libvpx")

    def hide(number: int, packet: av.Packet) -> av.Packet:
        content = bytearray(packet)
        content[0] &= ~0x10 if number == 7 else 0xFF  # the flag show_frame of VP8
        return with_content(packet, bytes(content))

    hidden = copy_packets(plain, tmp_path / "hidden.webm", hide)
    shown = [number for number in range(20) if number != 7]
    for path, numbers, is_graph in ((plain, [*range(20)], True), (hidden, shown[:15], False)):
        source = video_clips(path, 5, images="encoded")
        assert source.video_index(0).hides_frames != is_graph
        found = loaded(source, VideoDecoder("frames"), run="graph", shuffle=False)
        assert found.decodes_in_graph == is_graph
        assert ("it has hidden frames or is interlaced" in found.plan) != is_graph
        assert read_numbers(found.joined("frames").reshape(-1, 64, 96, 3)) == numbers


# --- colors ----------------------------------------------------------------------------------------------------


def make_colored(path: Path, matrix: int) -> Path:
    """Write a video of soft colors that states a color matrix; the planes are the same whatever it is."""
    rows, columns = np.mgrid[0:64, 0:96]
    planes = [60 + rows + columns // 2, 118 + columns[::2, ::2] // 5, 140 - rows[::2, ::2] // 3]
    frames = []
    for number in range(6):
        frame = av.VideoFrame(96, 64, "yuv420p")
        frame.colorspace, frame.color_range = matrix, 1
        for plane, values in zip(frame.planes, planes, strict=True):
            padded = np.zeros((plane.height, plane.line_size), np.uint8)
            padded[:, : plane.width] = values + number
            plane.update(padded.tobytes())
        frames.append(frame)
    return write_images(path, frames, "libvpx-vp9", options={"lossless": "1"}, matrix=matrix, color_range=1)


EXACT = 0x2 | 0x2000 | 0x40000  # of libswscale


@pytest.mark.parametrize(("matrix", "name"), [(1, "bt709"), (5, ""), (9, "bt2020")])
def test_colors_of_the_graph_are_those_that_the_stream_states(matrix: int, name: str, tmp_path: Path) -> None:
    path = make_colored(tmp_path / "a.webm", matrix)
    source = VideoFrameDataProvider(path, images="encoded")
    assert source.video_index(0).kind == f"vp9 yuv420p {name}".strip()
    stated, as_dali = (
        loaded(VideoFrameDataProvider(Videos(path, colors=colors))).joined("image").astype(int)
        for colors in ("stream", "dali")
    )
    found = loaded(source, VideoDecoder("image"), run="graph").joined("image")
    spaces = {"src_colorspace": matrix, "dst_colorspace": matrix}
    with av.open(str(path)) as container:
        frames = [
            frame.to_ndarray(format="rgb24", interpolation=EXACT, **spaces) for frame in container.decode(video=0)
        ]
    assert np.abs(found - np.stack(frames).astype(int)).max() <= 2
    assert np.abs(found - stated).max() <= 3  # the usual way of FFmpeg is another level off
    assert np.abs(as_dali - stated).max() > 5 or not name
    plain = loaded(source, VideoDecoder("image", colors="dali"), run="graph")
    assert np.array_equal(plain.joined("image"), as_dali)


class Copies(VideoFrameDataProvider):
    """Files that do not know where they are from, as after a way between processes."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        sample["image"] = np.array(sample["image"])
        return sample


@pytest.mark.parametrize("run", ["auto", "graph"])
def test_a_video_without_a_matrix_is_decoded_as_its_provider_does(run: Any, tmp_path: Path) -> None:
    images = [np.full((32, 1280, 3), (20, 220, 130), np.uint8)] * 2
    path = write_images(tmp_path / "large.webm", images, "libvpx-vp9", options={"deadline": "realtime"})
    for colors, kind in {"stream": "bt709", "bt601": "bt601"}.items():
        videos = Videos(path, colors=colors)  # type: ignore[arg-type]
        expected = loaded(VideoFrameDataProvider(videos)).joined("image").astype(int)
        assert (np.abs(expected - (20, 220, 130)).max() <= 3) == (colors == "bt601")
        for source in (made(videos, images="encoded") for made in (VideoFrameDataProvider, Copies)):
            assert source.sample_data_structure.format.leaves[("image",)].content.codecs == (
                f"vp9 yuv420p {kind}",
            )
            found = loaded(source, VideoDecoder("image"), run=run).joined("image")
            assert np.abs(found - expected).max() <= (3 if run == "graph" else 0)


def test_videos_of_different_matrices_are_decoded_in_the_workers(tmp_path: Path) -> None:
    paths = [make_colored(tmp_path / f"{matrix}.webm", matrix) for matrix in (1, 5)]
    source = VideoFrameDataProvider(paths, images="encoded")
    for colors, is_graph in (("stream", False), ("dali", True)):
        step = VideoDecoder("image", colors=colors)  # type: ignore[arg-type]
        with DataLoader(source, 2, steps=[step], run="graph", num_workers=0) as loader:
            why = "its color matrices are bt601, bt709, and in the graph all are converted alike"
            assert (why in loader.plan) != is_graph


# --- which device ----------------------------------------------------------------------------------------------

HOPPER, ADA, BLACKWELL, PASCAL = (9, 0), (8, 9), (10, 0), (6, 1)


@pytest.mark.parametrize(
    ("codec", "capability", "is_decoded"),
    [
        ("h264 yuv420p bt709", HOPPER, True),
        ("h264 yuv422p", BLACKWELL, False),
        ("vp9 yuv420p", PASCAL, False),
        ("av1 yuv420p", HOPPER, False),
        ("vp8 yuv420p", ADA, False),
    ],
)
def test_what_gpus_decode(
    codec: str, capability: tuple[int, int], is_decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability=capability)
    number = ".".join(map(str, capability))
    reason = "" if is_decoded else f"it is {codec}, and the GPU (compute capability {number}) does not decode it"
    assert why_not_in_graph([codec], has_gpu=True, must_use_gpu=False) == reason
    assert why_not_in_graph([codec], has_gpu=True, must_use_gpu=True) == ""
    pretend_gpus(monkeypatch, capability=capability, has_video=False)
    for must in (False, True):
        why = why_not_in_graph([codec], has_gpu=True, must_use_gpu=must)
        assert "set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video" in why


FIRST = {"h264": ((5, 0), (3, 7)), "hevc": ((6, 0), (5, 3)), "vp9": ((7, 0), (6, 2)), "av1": ((8, 6), (8, 0))}


@pytest.mark.parametrize("kind", encoded_videos.DECODED_ON_GPU)
def test_the_first_gpu_that_decodes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, one_before = FIRST[kind.split()[0]]
    for capability, is_decoded in ((first, True), (one_before, False)):
        pretend_gpus(monkeypatch, capability=capability)
        assert (why_not_in_graph([kind], has_gpu=True, must_use_gpu=False) == "") == is_decoded


def test_all_gpus_of_the_machine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_videos, "gpu_facts", lambda: GpuFacts((ADA, HOPPER), 13000, True))
    assert "8.9, 9.0" in why_not_in_graph(["av1 yuv420p"], has_gpu=True, must_use_gpu=False)


def test_what_a_gpu_does_not_decode_is_decoded_in_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, capability=HOPPER)
    resizer = ImageResizer("image", output_hw=[32, 32])
    counts, plan = planned_for_gpu("av1 yuv420p", VideoDecoder("image"), resizer)
    assert counts.on("mixed") == 0
    assert (
        "step 0 (VideoDecoder) must run in the workers: it is av1 yuv420p, and the GPU (compute capability 9.0) "
        "does not decode it" in plan
    )
    assert "step 1 (ImageResizer): pixels" in plan
    for step, is_on_gpu in (
        (VideoDecoder("image", "cpu"), False),
        (VideoDecoder("image", "gpu"), True),
        (VideoDecoder("image", "gpu").with_run("workers"), False),
    ):
        assert planned_for_gpu("av1 yuv420p", step)[0].on("mixed") == is_on_gpu


WITHOUT_GPU = "it is h264 yuv420p, and without a GPU, DALI decodes only VP8, VP9 and MJPEG"


def test_without_a_gpu_the_graph_decodes_what_dali_can() -> None:
    def plan(codec: str, step: VideoDecoder) -> str:
        with DataLoader(Rig(codec), 2, steps=[step], run="graph", num_workers=0) as loader:
            return str(loader.plan)

    here, forced = VideoDecoder("image"), VideoDecoder("image", "cpu").with_run("graph")
    for step in (here, VideoDecoder("image", "gpu")):
        assert plan("vp9 yuv420p", step).startswith("in the workers: 1 of 1 steps (run='graph')")
    assert "step 0 (VideoDecoder): once for all elements of cameras" in plan("vp9 yuv420p", forced)
    assert WITHOUT_GPU in plan("h264 yuv420p", here)
    assert "the format of the field does not name its codec" in plan("", here)
    assert "must run in the workers: device='cpu'" in plan("vp9 yuv420p", VideoDecoder("image", "cpu"))
    message = f"{WITHOUT_GPU}...step 0 (VideoDecoder) is to run in the graph (run='graph')"
    assert_refused(lambda: plan("h264 yuv420p", forced), message)


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "numbers", "message"),
    [
        (
            VideoDecoder("image"),
            None,
            "image_to_decode: there is no such data field with the numbers of the frames",
        ),
        (VideoDecoder("image"), (DT.FLOAT, 1), "image_to_decode: must be INT32"),
        (VideoDecoder("image"), (DT.INT32, 2), "must be declared with ndim=1, or with ndim=0 for a single frame"),
        (ImageDecoder("image", False), None, "is an encoded video (vp9 yuv420p). VideoDecoder decodes it"),
        (
            ImageResizer("image", output_hw=[8, 8]),
            None,
            "It is an encoded video: put VideoDecoder before ImageResizer",
        ),
    ],
)
def test_formats_that_are_refused(step: Any, numbers: Any, message: str) -> None:
    sample = SampleDataGroup()
    content = ImageContent(is_encoded=True, codecs=("vp9 yuv420p",))
    sample.add_data_field("image", DT.UINT8, ndim=1, content=content)
    if numbers is not None:
        sample.add_data_field("image_to_decode", numbers[0], ndim=numbers[1])
    check = step.check_input_data_format_and_set_output_data_format
    assert_refused(lambda: check(sample), message, FormatError)


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_a_damaged_video_is_skipped_by_the_policy_of_faults(run: str) -> None:
    settings: dict[str, Any] = {"run": run, "num_workers": 0, "output_type": "numpy", "faults": "skip"}
    with DataLoader(Rig(damaged=3), 2, steps=[VideoDecoder("image")], **settings) as loader:
        firsts = [read_numbers(clip)[1] for batch in loader for clip in batch["cameras"][0]["image"]]
        failed = [each.sample_index for each in loader.failed_samples]
    assert sorted(firsts)[:5] == [0, 1, 2, 4, 5]
    assert failed == [3]


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_the_report_counts_frames(run: str, tmp_path: Path) -> None:
    """Clips of 4 with key frames 0, 12, 24, 36: in the graph, each begins at its key frame."""
    provider = video_clips(make_video(tmp_path / "v.webm", 40), 4, images="encoded")
    with DataLoader(provider, 2, steps=[VideoDecoder("frames")], run=run, num_workers=0) as loader:
        assert len([*loader]) == 5
        report = loader.report()
    # Without what was loaded when the first batch came, at least that one.
    num_clips = report.num_frames // 4
    assert 4 <= num_clips <= 8
    decoded = [4, 8, 12, 4, 8, 12, 4, 8, 12, 4] if run == "graph" else [4] * 10
    assert report.num_decoded_frames == sum(decoded[-num_clips:])
    kilobytes = report.num_bytes / report.num_frames / 1e3
    assert kilobytes < 1 if run == "graph" else kilobytes > 18
