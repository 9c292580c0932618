"""Encoded videos, decoded by a step: where, by how many operators, and to which pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.arrays import DT
from support.gpu_definitions import checked_by_dali, counts_of, pretend_gpus
from support.laws import each_value
from support.loaders import pipeline_of
from support.refusals import refusal
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
    Windows,
)
from accvlab.dali_pipeline_framework.engine.dali.gpus import GpuFacts
from accvlab.dali_pipeline_framework.errors import FormatError, SettingError
from accvlab.dali_pipeline_framework.operators import encoded_videos
from accvlab.dali_pipeline_framework.operators.encoded_videos import DECODED_ON_GPU, why_not_in_graph
from accvlab.dali_pipeline_framework.processing_steps import DataGroupsWithNameAppliedStep

NUM_CAMERAS, NUM_FRAMES = 3, 24
CODECS = {
    "h264 yuv420p": ("libx264", "mp4"),
    "hevc yuv420p": ("libx265", "mp4"),
    "av1 yuv420p": ("libsvtav1", "mp4"),
    "vp9 yuv420p": ("libvpx-vp9", "webm"),
}


class Rig(DataProvider):
    """Three cameras in an array; sample ``i`` has two frames, or one, of a video of each."""

    def __init__(self, codec: str = "vp9 yuv420p", content: bytes | None = None, *, is_clip: bool = True) -> None:
        self.content = ImageContent(is_encoded=True, codecs=(codec,) if codec else ())
        self.file = encoded_video(NUM_FRAMES) if content is None else np.frombuffer(content, np.uint8)
        self.is_clip = is_clip

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8, ndim=1, content=self.content)
        camera.add_data_field("image_to_decode", DT.INT32, ndim=int(self.is_clip))
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", camera, NUM_CAMERAS)
        return sample

    def get_number_of_samples(self) -> int:
        return 6

    def numbers(self, sample_index: int, camera: int) -> list[int]:
        return [sample_index + 5 * camera, sample_index]

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        for camera in range(NUM_CAMERAS):
            numbers = self.numbers(sample_index, camera)
            sample["cameras"][camera]["image"] = self.file
            sample["cameras"][camera]["image_to_decode"] = numbers if self.is_clip else numbers[0]
        return sample


def loaded(source: DataProvider, *steps: Any, **arguments: Any) -> list[Mapping[str, Any]]:
    settings = {"num_workers": 0, "output_type": "numpy", **arguments}
    with DataLoader(source, 2, steps=steps, **settings) as loader:
        return [*loader]


@pytest.mark.parametrize("is_clip", [True, False])
def test_one_operator_decodes_the_videos_of_all_cameras_and_samples(is_clip: bool) -> None:
    rig, step = Rig(is_clip=is_clip), VideoDecoder("image", colors="dali")
    for run in ("graph", "workers"):
        batches = loaded(rig, step, run=run)
        for number, batch in enumerate(batches):
            for camera in range(NUM_CAMERAS):
                frames = batch["cameras"][camera]["image"]
                assert frames.shape == (2, 2, 64, 96, 3) if is_clip else (2, 64, 96, 3)
                expected = [rig.numbers(sample, camera) for sample in (2 * number, 2 * number + 1)]
                found = [read_numbers(each if is_clip else each[None]) for each in frames]
                assert found == [numbers if is_clip else numbers[:1] for numbers in expected]
        with DataLoader(rig, 2, steps=[step], run=run, num_workers=0) as loader:
            assert counts_of(pipeline_of(loader)).names["cpu", "decoders__Video"] == (run == "graph")
            assert set(batches[0]["cameras"][0]) == {"image"}


@pytest.mark.parametrize("is_clip", [True, False])
def test_cameras_with_names_are_decoded_by_one_operator(is_clip: bool, tmp_path: Path) -> None:
    paths = {
        camera: [str(make_video(tmp_path / f"{camera}.webm", 20, first_number=100 * number))]
        for number, camera in enumerate(("front", "left", "right"))
    }
    videos, name = Videos(cameras=paths), "frames" if is_clip else "image"
    source = (
        video_clips(videos, 3, images="encoded", timestamp_name="time")
        if is_clip
        else VideoFrameDataProvider(videos, images="encoded", timestamp_name="time")
    )
    steps = [VideoDecoder(name, colors="dali"), ImageResizer(name, output_hw=[64, 96])]
    with DataLoader(source, 2, steps=steps, run="graph", num_workers=0, output_type="numpy") as loader:
        batches = [*loader]
        counts, plan = counts_of(pipeline_of(loader)), loader.plan
    assert counts.names["cpu", "decoders__Video"] == 1
    assert "batches of the graph: samples x 3" in plan
    assert "step 0 (VideoDecoder): pixels, once for 3 fields" in plan
    for number, camera in enumerate(paths):
        frames = np.concatenate([batch[camera][name] for batch in batches]).reshape(-1, 64, 96, 3)
        assert read_numbers(frames) == [100 * number + frame for frame in range(18 if is_clip else 20)]
        times_s = np.concatenate([batch[camera]["time"] for batch in batches]).ravel()
        assert np.allclose(times_s, np.arange(len(frames)) / 25)


@each_value(run=["graph", "workers", "auto"], name=["vp9.webm", "vp9.mp4", "mjpeg.mkv"])
def test_the_pixels_are_those_that_the_provider_decodes(name: str, run: str, tmp_path: Path) -> None:
    """VP9 and MJPEG are decoded in the graph without a GPU."""
    codec = "mjpeg" if "mjpeg" in name else "libvpx-vp9"
    paths = {camera: [str(make_video(tmp_path / f"{camera}_{name}", 20, codec))] for camera in ("front", "left")}
    videos = Videos(cameras=paths, colors="dali")
    settings = {"length": 3, "step": 2, "stride": 2}
    expected = loaded(video_clips(videos, **settings), shuffle=True, seed=3)
    source = video_clips(videos, images="encoded", **settings)
    found = loaded(source, VideoDecoder("frames", colors="dali"), run=run, shuffle=True, seed=3)
    for batch, other in zip(expected, found, strict=True):
        for camera in paths:
            assert np.array_equal(batch[camera]["frames"], other[camera]["frames"])
    assert (source.statistics.num_decoded > 0) == (run != "graph")


def make_colored(path: Path, matrix: int, codec: str = "libvpx-vp9") -> Path:
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
    options = {"lossless": "1"} if "vp9" in codec else {}
    return write_images(path, frames, codec, options=options, matrix=matrix, color_range=1)


@pytest.mark.parametrize(("matrix", "name"), [(1, "bt709"), (5, ""), (9, "bt2020")])
def test_colors_of_the_graph_are_those_that_the_stream_states(matrix: int, name: str, tmp_path: Path) -> None:
    path = make_colored(tmp_path / "a.webm", matrix)
    source = VideoFrameDataProvider(path, images="encoded")
    assert source.video_index(0).kind == f"vp9 yuv420p {name}".strip()
    stated, as_dali = (
        np.concatenate([batch["image"] for batch in loaded(VideoFrameDataProvider(Videos(path, colors=colors)))])
        for colors in ("stream", "dali")
    )
    found = np.concatenate([batch["image"] for batch in loaded(source, VideoDecoder("image"), run="graph")])
    exact = {1: 1, 5: 5, 9: 9}[matrix], 0x2 | 0x2000 | 0x40000  # libswscale's number; and its exact way
    with av.open(str(path)) as container:
        frames = [
            frame.to_ndarray(
                format="rgb24", interpolation=exact[1], src_colorspace=exact[0], dst_colorspace=exact[0]
            )
            for frame in container.decode(video=0)
        ]
    assert np.abs(found.astype(int) - np.stack(frames)).max() <= 2
    assert np.abs(found.astype(int) - stated).max() <= 3  # the usual way of FFmpeg is another level off
    assert np.abs(as_dali.astype(int) - stated).max() > 5 or not name
    plain = loaded(source, VideoDecoder("image", colors="dali"), run="graph")
    assert np.array_equal(np.concatenate([batch["image"] for batch in plain]), as_dali)


class Copies(DataProvider):
    """Files that do not know where they are from, as after a way between processes."""

    def __init__(self, source: DataProvider) -> None:
        self.source = source

    @property
    def sample_data_structure(self) -> Any:
        return self.source.sample_data_structure

    def get_number_of_samples(self) -> int:
        return self.source.get_number_of_samples()

    def get_data(self, sample_index: int) -> Any:
        sample = self.source.get_data(sample_index)
        sample["image"] = np.array(sample["image"])
        return sample


@pytest.mark.parametrize("run", ["auto", "graph"])
def test_a_video_without_a_matrix_is_decoded_as_its_provider_does(run: Any, tmp_path: Path) -> None:
    images = [np.full((32, 1280, 3), (20, 220, 130), np.uint8)] * 4
    path = write_images(tmp_path / "large.webm", images, "libvpx-vp9", options={"deadline": "realtime"})
    kinds = {"stream": "vp9 yuv420p bt709", "bt601": "vp9 yuv420p bt601", "dali": "vp9 yuv420p bt709"}
    for colors, kind in kinds.items():
        videos = Videos(path, colors=colors)  # type: ignore[arg-type]
        source = VideoFrameDataProvider(videos, images="encoded")
        assert source.sample_data_structure.format.at(("image",)).content.codecs == (kind,)
        if colors == "dali":
            continue
        expected = np.concatenate([batch["image"] for batch in loaded(VideoFrameDataProvider(videos))])
        found = np.concatenate([batch["image"] for batch in loaded(source, VideoDecoder("image"), run=run)])
        assert np.abs(found.astype(int) - expected).max() <= (3 if run == "graph" else 0)
        assert (np.abs(expected.astype(int) - (20, 220, 130)).max() <= 3) == (colors == "bt601")
        copied = np.concatenate(
            [batch["image"] for batch in loaded(Copies(source), VideoDecoder("image"), run=run)]
        )
        assert np.array_equal(copied, found)


def test_videos_of_different_matrices_are_decoded_in_the_workers(tmp_path: Path) -> None:
    paths = [make_colored(tmp_path / f"{matrix}.webm", matrix) for matrix in (1, 5)]
    source = VideoFrameDataProvider(paths, images="encoded")
    for colors, is_graph in (("stream", False), ("dali", True)):
        step = VideoDecoder("image", colors=colors)  # type: ignore[arg-type]
        with DataLoader(source, 2, steps=[step], run="graph", num_workers=0) as loader:
            why = "its color matrices are bt601, bt709, and in the graph all are converted alike"
            assert (why in loader.plan) != is_graph


@pytest.mark.filterwarnings("ignore:Frames of the video")  # one is hidden
def test_vp8_is_decoded_in_the_graph_where_each_packet_shows_a_frame(tmp_path: Path) -> None:
    plain = make_video(tmp_path / "plain.webm", 40, "libvpx")

    def hide(number: int, packet: av.Packet) -> av.Packet:
        content = bytearray(packet)
        content[0] &= ~0x10 if number == 7 else 0xFF  # the flag show_frame of VP8
        return with_content(packet, bytes(content))

    hidden = copy_packets(plain, tmp_path / "hidden.webm", hide)
    for path, is_graph in ((plain, True), (hidden, False)):
        source = video_clips(path, 5, images="encoded")
        assert source.video_index(0).hides_frames != is_graph
        settings: dict[str, Any] = {"num_workers": 0, "output_type": "numpy", "run": "graph", "shuffle": False}
        with DataLoader(source, 2, steps=[VideoDecoder("frames")], **settings) as loader:
            frames = np.concatenate([batch["frames"] for batch in loader])
            assert counts_of(pipeline_of(loader)).names["cpu", "decoders__Video"] == is_graph
            assert ("it has hidden frames or is interlaced" in loader.plan) != is_graph
        shown = [*range(40)] if is_graph else [number for number in range(40) if number != 7][:35]
        assert read_numbers(frames.reshape(-1, 64, 96, 3)) == shown


def test_colors_of_the_stream_are_those_of_the_provider(tmp_path: Path) -> None:
    path = make_video(tmp_path / "b.mp4", 20, "libx264", options=B_FRAMES["libx264"])
    expected = loaded(VideoFrameDataProvider(path))
    found = loaded(VideoFrameDataProvider(path, images="encoded"), VideoDecoder("image"))
    assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(expected, found, strict=True))


def test_steps_behind_see_shapes_before_the_pixels_are_there() -> None:
    """A divided resizer asks for the size of the image, which the header of the file tells."""
    steps = VideoDecoder("image", colors="dali"), ImageResizer("image", output_hw=[32, 32], mode="pad")
    graph, workers = (loaded(Rig(), *steps, run=run) for run in ("graph", "workers"))
    for batch, other in zip(graph, workers, strict=True):
        assert batch["cameras"][1]["image"].shape == (2, 2, 32, 32, 3)
        difference = batch["cameras"][1]["image"].astype(int) - other["cameras"][1]["image"]
        assert np.abs(difference).max() <= 1


# --- which device ----------------------------------------------------------------------------------------------

HOPPER, AMPERE, ADA, BLACKWELL, PASCAL = (9, 0), (8, 0), (8, 9), (10, 0), (6, 1)


@pytest.mark.parametrize(
    ("codec", "capability", "is_decoded"),
    [
        ("h264 yuv420p", PASCAL, True),
        ("h264 yuv420p", HOPPER, True),
        ("h264 yuv420p bt709", HOPPER, True),
        ("h264 yuv422p", BLACKWELL, False),
        ("h264 yuv420p10le", HOPPER, False),
        ("hevc yuv420p10le", AMPERE, True),
        ("hevc yuv444p", ADA, False),
        ("vp9 yuv420p", PASCAL, False),
        ("vp9 yuv420p", HOPPER, True),
        ("av1 yuv420p", AMPERE, False),
        ("av1 yuv420p", HOPPER, False),
        ("av1 yuv420p", ADA, True),
        ("av1 yuv420p10le", BLACKWELL, True),
        ("vp8 yuv420p", ADA, False),
    ],
)
def test_what_gpus_decode(
    codec: str, capability: tuple[int, int], is_decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, capability=capability)
    reason = why_not_in_graph([codec], has_gpu=True, must_use_gpu=False)
    assert (reason == "") == is_decoded
    if reason:
        number = ".".join(map(str, capability))
        assert reason == f"it is {codec}, and the GPU (compute capability {number}) does not decode it"
    assert why_not_in_graph([codec], has_gpu=True, must_use_gpu=True) == ""
    pretend_gpus(monkeypatch, capability=capability, has_video=False)
    for must in (False, True):
        why = why_not_in_graph([codec], has_gpu=True, must_use_gpu=must)
        assert "set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video" in why


def test_all_gpus_of_the_machine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_videos, "gpu_facts", lambda: GpuFacts((ADA, HOPPER), 13000, True))
    assert "8.9, 9.0" in why_not_in_graph(["av1 yuv420p"], has_gpu=True, must_use_gpu=False)


@pytest.mark.parametrize("codec", CODECS)
def test_graphs_for_a_gpu_have_one_decoder_there(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, suffix = CODECS[codec]
    pretend_gpus(monkeypatch, capability=ADA)
    file = encoded_video(2, encoder, suffix).tobytes() if encoder != "libsvtav1" else b"unread"
    steps = [VideoDecoder("image"), ImageResizer("image", output_hw=[32, 32])]
    loader = DataLoader(Rig(codec, file), 2, steps=steps, num_workers=0, device_id=0)
    counts = checked_by_dali(pipeline_of(loader))
    assert counts.names["mixed", "decoders__Video"] == 1
    assert counts.on("mixed") == 1
    assert "step 0 (VideoDecoder): pixels, once for all elements of cameras" in loader.plan
    assert counts.computing_on_cpu == 0
    single = DataLoader(Rig(codec, file, is_clip=False), 2, steps=steps[:1], num_workers=0, device_id=0)
    assert checked_by_dali(pipeline_of(single)).names["mixed", "decoders__Video"] == 1


def test_a_gpu_corrects_the_colors_by_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, capability=HOPPER)
    for colors, num_operators in (("stream", 1), ("dali", 0)):
        step = VideoDecoder("image", colors=colors)  # type: ignore[arg-type]
        loader = DataLoader(Rig("h264 yuv420p bt709", b"unread"), 2, steps=[step], num_workers=0, device_id=0)
        counts = checked_by_dali(pipeline_of(loader))
        assert counts.names["mixed", "decoders__Video"] == 1
        assert counts.names["gpu", "CoordTransform"] == num_operators


def test_what_a_gpu_does_not_decode_is_decoded_in_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, capability=HOPPER)

    def plan_and_decoders(device: str, run: str = "auto") -> tuple[str, int]:
        steps = [VideoDecoder("image", device).with_run(run), ImageResizer("image", output_hw=[32, 32])]
        loader = DataLoader(Rig("av1 yuv420p", b"unread"), 2, steps=steps, num_workers=0, device_id=0)
        return loader.plan, checked_by_dali(pipeline_of(loader)).on("mixed")

    plan, num_decoders = plan_and_decoders("auto")
    assert num_decoders == 0
    assert (
        "step 0 (VideoDecoder) must run in the workers: it is av1 yuv420p, and the GPU (compute capability 9.0) "
        "does not decode it" in plan
    )
    assert "step 1 (ImageResizer): pixels" in plan
    assert plan_and_decoders("cpu")[1] == 0
    assert plan_and_decoders("gpu")[1] == 1
    assert plan_and_decoders("gpu", "workers")[1] == 0


def test_without_a_gpu_the_graph_decodes_what_dali_can() -> None:
    def plan(codec: str, device: str = "auto") -> str:
        step = VideoDecoder("image", device)
        with DataLoader(Rig(codec), 2, steps=[step], run="graph", num_workers=0) as loader:
            return str(loader.plan).splitlines()[0]

    assert plan("vp9 yuv420p") == "in the workers: 1 of 1 steps (run='graph')"
    assert plan("vp9 yuv420p", "gpu") == "in the workers: 1 of 1 steps (run='graph')"
    assert "it is h264 yuv420p, and without a GPU, DALI decodes only VP8, VP9 and MJPEG" in plan("h264 yuv420p")
    assert "the format of the field does not name its codec" in plan("")
    assert "must run in the workers: device='cpu'" in plan("vp9 yuv420p", "cpu")


def test_a_step_that_is_forced_into_the_graph_needs_a_codec_that_is_decoded_there() -> None:
    def make(codec: str) -> DataLoader:
        steps = [VideoDecoder("image", "cpu").with_run("graph")]
        return DataLoader(Rig(codec), 2, steps=steps, num_workers=0)

    message = refusal(lambda: make("h264 yuv420p").plan, SettingError)
    assert "without a GPU, DALI decodes only VP8, VP9 and MJPEG" in message
    assert "step 0 (VideoDecoder) is to run in the graph (run='graph')" in message
    with make("vp9 yuv420p") as loader:
        assert next(iter(loader))["cameras"][0]["image"].shape == (2, 2, 64, 96, 3)


def test_a_wrapper_asks_the_step_that_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, capability=HOPPER)
    wrapped = DataGroupsWithNameAppliedStep(VideoDecoder("image"), "cameras")
    for codec, num_decoders in (("av1 yuv420p", 0), ("hevc yuv420p", 1)):
        loader = DataLoader(Rig(codec, b"unread"), 2, steps=[wrapped], num_workers=0, device_id=0)
        assert checked_by_dali(pipeline_of(loader)).names["mixed", "decoders__Video"] == num_decoders


# --- what is refused -------------------------------------------------------------------------------------------


def _format_problem(change: Callable[[SampleDataGroup], None], step: Any) -> str:
    sample = SampleDataGroup()
    sample.add_data_field(
        "image", DT.UINT8, ndim=1, content=ImageContent(is_encoded=True, codecs=("vp9 yuv420p",))
    )
    change(sample)
    return refusal(lambda: step.check_input_data_format_and_set_output_data_format(sample), FormatError)


def test_formats_that_are_refused() -> None:
    step = VideoDecoder("image")
    missing = _format_problem(lambda sample: None, step)
    assert "image_to_decode: there is no such data field with the numbers of the frames to decode" in missing
    wrong_type = _format_problem(lambda sample: sample.add_data_field("image_to_decode", DT.FLOAT, ndim=1), step)
    assert "image_to_decode" in wrong_type
    assert "FLOAT" in wrong_type
    wrong_ndim = _format_problem(lambda sample: sample.add_data_field("image_to_decode", DT.INT32, ndim=2), step)
    assert "must be declared with ndim=1, or with ndim=0 for a single frame" in wrong_ndim
    image = _format_problem(lambda sample: None, ImageDecoder("image", False))
    assert "is an encoded video (vp9 yuv420p). VideoDecoder decodes it" in image
    resized = _format_problem(lambda sample: None, ImageResizer("image", output_hw=[8, 8]))
    assert "It is an encoded video: put VideoDecoder before ImageResizer" in resized


def test_each_codec_is_decoded_by_some_gpus() -> None:
    assert set(DECODED_ON_GPU) >= CODECS.keys()


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_a_damaged_video_is_skipped_by_the_policy_of_faults(run: str) -> None:
    class OneBad(Rig):
        def get_data(self, sample_index: int) -> SampleDataGroup:
            sample = super().get_data(sample_index)
            if sample_index == 3:
                sample["cameras"][1]["image"] = self.file[:200]
            return sample

    with DataLoader(
        OneBad(), 2, steps=[VideoDecoder("image")], run=run, num_workers=0, output_type="numpy", faults="skip"
    ) as loader:
        firsts = [read_numbers(clip)[1] for batch in loader for clip in batch["cameras"][0]["image"]]
        failed = [each.sample_index for each in loader.failed_samples]
    assert sorted(firsts)[:5] == [0, 1, 2, 4, 5]
    assert failed == [3]


def test_a_damaged_video_of_a_camera_with_a_name_is_named(tmp_path: Path) -> None:
    paths = {
        camera: [str(make_video(tmp_path / f"{camera}.webm", 20, options={"g": "4"}))]
        for camera in ("front", "left")
    }

    class OneBad(Windows):
        def load_batch(self, sample_indices: Any, slots: Any) -> Any:
            for index, sample in zip(sample_indices, super().load_batch(sample_indices, slots), strict=True):
                if index == 3:
                    sample["left"]["frames"] = np.asarray(sample["left"]["frames"])[:200]
                yield sample

    frames = VideoFrameDataProvider(Videos(cameras=paths), image_name="frames", images="encoded")
    source = OneBad(frames, {"frames": range(4)}, unit="frames", step=4)
    settings: dict[str, Any] = {"run": "graph", "num_workers": 0, "output_type": "numpy"}
    step = VideoDecoder("frames")
    with DataLoader(source, 2, steps=[step], shuffle=False, faults="skip", **settings) as loader:
        firsts = [read_numbers(clip)[0] for batch in loader for clip in batch["left"]["frames"]]
    assert firsts == [0, 4, 8, 16]
    loader = DataLoader(source, 2, steps=[step], shuffle=False, **settings)
    with loader, pytest.raises(Exception, match=r"(?s)left\.frames.*sample 3|sample 3.*left\.frames"):
        list(loader)


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
    per_frame, kilobytes = (
        report.num_decoded_frames / report.num_frames,
        report.num_bytes / report.num_frames / 1e3,
    )
    assert kilobytes < 1 if run == "graph" else kilobytes > 18
    line = f"frames of videos: {4 * num_clips}; for each, {per_frame:.1f} decoded, {kilobytes:.1f} kB sent"
    assert line in str(report)
