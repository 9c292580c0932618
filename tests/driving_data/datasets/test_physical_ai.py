"""PhysicalAI-AV as it is published: chunks in ZIP files, moments of clips, cameras that are not synchronous."""

import shutil
import zipfile
from functools import partial

import numpy as np
import pytest
from driving_support.physical_ai import (
    FRONT,
    LEFT,
    NUM_FRAMES,
    TELE,
    ego_times,
    first_number,
    frame_times,
    mounted,
    unpacked,
    world_from_ego,
    write_clip_index,
    write_features,
    write_published,
)
from support.file_server import FileServer
from support.laws import each_value, some
from support.optional_packages import has
from support.refusals import assert_refused
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, VideoDecoder
from accvlab.dali_pipeline_framework.errors import FieldValueError, FileError, FrameworkError, VideoError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import ClipLayout, Moments, PhysicalAiProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.testing.written_files import write_files

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("av", reason="PyAV is not installed")

EVENTS = Moments(history_s=0.4, future_s=0.5)
TIMES = {"image_times": (-0.2, -0.1, 0), "ego_history": (-0.3, 0), "ego_future": (0.1, 0.4)}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("physical_ai") / "data")


@pytest.fixture
def copied(published, tmp_path):
    return shutil.copytree(published, tmp_path / "data")


def taken(sample):
    """Numbers in the pictures of each camera."""
    return [read_numbers(camera["image"]) for camera in sample["cameras"].values()]


def times_us(provider):
    return [round(time * 1e6) for time in provider.timestamps]


def expected_frames(clip, camera, t0):
    """The numbers in the pictures of a camera at `TIMES`, by counting."""
    known = frame_times(camera)
    asked = [t0 + round(offset * 1e6) for offset in TIMES["image_times"]]
    return [first_number(clip, camera) + max(k for k in range(NUM_FRAMES) if known[k] <= time) for time in asked]


class TestLayout:
    def test_archives_are_read_as_what_was_unpacked_from_them(self, published, tmp_path):
        settings = {"moments": EVENTS, "lenses": True, "vehicle_size": True, **TIMES}
        packed = PhysicalAiProvider(published, **settings)
        plain = PhysicalAiProvider(unpacked(published, tmp_path / "plain"), **settings)
        assert packed.scene_names == plain.scene_names == ("clip-a", "clip-b")
        assert packed.camera_names == plain.camera_names == (LEFT, TELE, FRONT)
        for sample in range(2):
            one, other = packed.get_data(sample), plain.get_data(sample)
            for path in one.format.flat_paths:
                np.testing.assert_array_equal(one.get_item_in_path(path), other.get_item_in_path(path))
        assert packed.describe().splitlines()[1:4] == [
            "image_times: 3, -0.2 to 0 s",
            "ego_history: 2, -0.3 to 0 s",
            "ego_future: 2, 0.1 to 0.4 s",
        ]

    def test_frames_are_samples_where_no_moments_are_given(self, published):
        provider = PhysicalAiProvider(published, cameras=[FRONT], stride=10)
        assert provider.scene_names == ("clip-a", "clip-b", "clip-c")
        assert times_us(provider)[:5] == frame_times(FRONT)[::10].tolist()
        images = np.stack([provider.get_data(k)["cameras"][0]["image"] for k in (0, 4, 5)])
        assert read_numbers(images) == [100, 140, 400]

    def test_keeps_the_rules_of_providers(self, published):
        provider = PhysicalAiProvider(
            published, moments=Moments(every_s=0.2, history_s=0.4, future_s=0.5), **TIMES
        )
        check_provider(provider, start_method="fork", num_samples=2)

    @pytest.mark.parametrize(
        ("path", "value", "problem"),
        [
            (("ego_history", "rotations"), np.ones((2, 3, 3)), "ego_history: its rotation must be orthonormal"),
            (("ego_history", "positions"), np.ones((2, 3)), "ego_history: must be in the frame of the vehicle at"),
            (("ego_future", "times"), np.array([0.4, 0.1]), "ego_future.times: must ascend"),
            (("cameras", 0, "camera_from_reference"), np.ones((3, 4, 4)), "camera_from_reference: its last row"),
        ],
    )
    def test_wrong_values_are_found(self, published, path, value, problem):
        provider = PhysicalAiProvider(published, moments=EVENTS, **TIMES)
        sample = provider.get_data(0)
        sample.set_item_in_path(path, value)
        findings = provider.contract_findings({0: sample}, seed=0)
        assert problem in "\n".join(text for finding in findings for text in finding.problems)


class TestMoments:
    @pytest.mark.parametrize(
        ("moments", "times"),
        [
            (EVENTS, [800_000, 1_333_333]),
            (Moments(at="events", history_s=0.4, future_s=0.5), [800_000, 1_200_000, 1_500_000, 1_333_333]),
            (Moments(at="events", history_s=0.8, future_s=0.8), [800_000, 1_200_000]),  # just enough around them
            (Moments(at="default keyframe", history_s=0.4, future_s=0.5), [5_100_000, 5_100_000]),
            (Moments(at=[1.0, 0.7]), [700_000, 1_000_000] * 3),
            (Moments(at={"clip-b": [0.9]}), [900_000]),
        ],
    )
    def test_are_those_asked_for(self, published, moments, times):
        assert times_us(PhysicalAiProvider(published, moments=moments, cameras=[FRONT])) == times

    def test_multiples_of_a_time_have_data_before_and_after(self, published):
        moments = Moments(every_s=0.25, history_s=0.3, future_s=0.2)
        provider = PhysicalAiProvider(published, moments=moments, scenes=["clip-a"])
        # From the first image of the latest camera, 0.521 s, to the last one of the left camera, 1.970652 s.
        assert times_us(provider) == [1_000_000, 1_250_000, 1_500_000, 1_750_000]

    def test_images_are_the_last_ones_at_or_before_their_times(self, published):
        provider = PhysicalAiProvider(published, moments=Moments(at=[0.9, 1.25, 1.3]), chunks=[0], **TIMES)
        moments = [(clip, t0) for clip in ("clip-a", "clip-b") for t0 in (900_000, 1_250_000, 1_300_000)]
        for sample, (clip, t0) in enumerate(moments):
            data = provider.get_data(sample)
            assert taken(data) == [expected_frames(clip, camera, t0) for camera in provider.camera_names]
            for camera, name in zip(data["cameras"].values(), provider.camera_names, strict=True):
                numbers = np.array(expected_frames(clip, name, t0)) - first_number(clip, name)
                np.testing.assert_allclose(camera["timestamp"] * 1e6, frame_times(name)[numbers], atol=1e-3)
        # The wide camera has a gap after frame 20: at 1.2 and 1.25 s it still is the one of 1.167 s.
        assert taken(provider.get_data(1))[2] == [116, 119, 120]

    def test_cameras_are_where_the_vehicle_was(self, published):
        """Motion, lenses and sizes are compared with the reference."""
        provider = PhysicalAiProvider(published, moments=Moments(at=[1.0]), chunks=[0], **TIMES)
        sample = provider.get_data(0)
        np.testing.assert_allclose(sample["ego"]["world_from_ego"][:3], world_from_ego(1_000_000), atol=1e-6)
        for camera, name in zip(sample["cameras"].values(), provider.camera_names, strict=True):
            times = np.rint(camera["timestamp"] * 1e6).astype(int)
            camera_from_world = poses.inverse(poses.joined(world_from_ego(times), mounted(name)))
            expected = poses.joined(camera_from_world, world_from_ego(1_000_000))
            np.testing.assert_allclose(camera["camera_from_reference"][:, :3], expected, atol=1e-5)


AT_1 = Moments(at=[1.0])


def refused(root, words, error=FileError, **settings):
    words = words.replace("ROOT", str(root))
    assert_refused(lambda: PhysicalAiProvider(root, **{"moments": EVENTS, **settings}), words, error)


class TestClips:
    """Which clips there are: what publishers say of them, and those that lack files."""

    def test_those_of_the_split_that_are_valid(self, copied):
        assert len(PhysicalAiProvider(copied, moments=AT_1, cameras=[FRONT])) == 3  # the list does not say
        words = "`split` needs a column 'split' in ..., got 'val'. Leave it out."
        assert_refused(lambda: PhysicalAiProvider(copied, moments=AT_1, split="val"), words)
        write_clip_index(copied, split=["train", "val", "train"], clip_is_valid=[True, True, False])
        names = {
            ("clip-a",): {},
            ("clip-a", "clip-c"): {"valid_only": False},
            ("clip-b",): {"split": "val"},
            ("clip-a", "clip-b"): {"split": None},
            ("clip-a", "clip-b", "clip-c"): {"split": None, "valid_only": False},
        }
        for expected, wanted in names.items():
            assert PhysicalAiProvider(copied, moments=AT_1, cameras=[FRONT], **wanted).scene_names == expected
        for words, wanted in {
            "no clips of the split 'test'. ...1 is not valid...1 is of the split 'train'...'val'": {
                "split": "test"
            },
            "'clip-b' of `scenes` is of the split 'val': give that as `split`, or None.": {"scenes": ["clip-b"]},
            "'clip-c' of `scenes` is not valid: give `valid_only=False`.": {"scenes": ["clip-c"]},
            "`split` must be": {"split": 3},
            "`valid_only` must be": {"valid_only": "yes"},
        }.items():
            assert_refused(partial(PhysicalAiProvider, copied, moments=AT_1, cameras=[FRONT], **wanted), words)

    @some("what", ["mp4", "timestamps.parquet"], {0})
    def test_those_that_lack_a_file_are_refused_or_left_out(self, copied, what):
        path = copied / f"camera/{LEFT}/{LEFT}.chunk_0000.zip"
        with zipfile.ZipFile(path) as archive:
            kept = {name: archive.read(name) for name in archive.namelist() if name != f"clip-b.{LEFT}.{what}"}
        write_files(path.parent, {path.name: kept})
        words = (
            f"{LEFT}.{what}...of the clip 'clip-b' is missing. Download it, or leave out the camera '{LEFT}' "
            "(`cameras`), the clip (`scenes`) or the chunk 0 (`chunks`). missing='drop' leaves out all clips "
        )
        settings = {"moments": AT_1, "boxes": False}
        with FileServer(copied) as server:
            for root in (copied, *[server.url] * has("fsspec")):
                assert_refused(partial(PhysicalAiProvider, root, **settings), words, FileError)
                assert PhysicalAiProvider(root, missing="drop", **settings).scene_names == ("clip-a", "clip-c")
        settings |= {"missing": "drop", "scenes": ["clip-a", "clip-b"]}
        assert PhysicalAiProvider(copied, **settings).scene_names == ("clip-a",)

    @pytest.mark.parametrize("part", [f"camera/{TELE}", "labels/egomotion", "calibration/camera_intrinsics"])
    def test_those_of_a_chunk_that_lacks_a_file_are_left_out(self, copied, part):
        gone = next((copied / part).rglob("*chunk_0007*"))
        gone.unlink()
        settings = {"moments": AT_1, "chunks": [0, 7]}
        words = f"The file '{gone}' of the clip 'clip-c' is missing. Download it, or leave out "
        words += f"the camera '{TELE}' (`cameras`), the clip" if "camera/" in part else ""
        assert_refused(lambda: PhysicalAiProvider(copied, **settings), words, FileError)
        for wanted in ({"missing": "drop"}, {"chunks": [0]}):
            assert PhysicalAiProvider(copied, **{**settings, **wanted}).scene_names == ("clip-a", "clip-b")
        if "camera/" in part:
            shutil.rmtree(copied / part)  # then none has all files, and the first is named
            words = f"{TELE}.chunk_0000.zip' of the clip 'clip-a' is missing"
            settings = {"moments": AT_1, "cameras": [TELE, FRONT], "missing": "drop"}
            assert_refused(lambda: PhysicalAiProvider(copied, **settings), words, FileError)

    def test_listed_ones_without_a_video_are_named(self, published, tmp_path):
        root = unpacked(published, tmp_path / "plain")
        for camera in (LEFT, FRONT, TELE):
            (root / f"camera/{camera}/clip-b.{camera}.mp4").unlink()
        with pytest.warns(
            UserWarning, match=r"1 clip\(s\) that .* lists for the chunks 0, 7 have no video .*: clip-b\."
        ):
            assert PhysicalAiProvider(root, moments=AT_1).scene_names == ("clip-a", "clip-c")
        assert PhysicalAiProvider(root, moments=AT_1, scenes=["clip-a"]).scene_names == ("clip-a",)

    def test_videos_of_clips_that_are_not_listed_are_refused_unless_others_are_named(self, published, tmp_path):
        root = unpacked(published, tmp_path / "plain")
        for camera in (LEFT, FRONT, TELE):
            shutil.copy(
                root / f"camera/{camera}/clip-b.{camera}.mp4", root / f"camera/{camera}/clip-x.{camera}.mp4"
            )
        refused(root, "The clip 'clip-x' is not in 'ROOT/clip_index.parquet'.", FileError)
        refused(
            root, "The clip 'clip-x' is not in 'ROOT/clip_index.parquet'.", FileError, scenes=["clip-a", "clip-x"]
        )
        assert PhysicalAiProvider(root, moments=AT_1, scenes=["clip-a"]).scene_names == ("clip-a",)

    def test_what_is_not_wanted_is_not_read(self, copied):
        write_clip_index(copied, end_timestamp=np.array(["a", "b", "c"]), split=[None, None, None])
        refused(copied, "'end_timestamp' ...must hold whole numbers", split=None)
        settings = {"moments": AT_1, "cameras": [FRONT], "split": None}
        assert len(PhysicalAiProvider(copied, **settings)) == 3
        write_clip_index(copied, event_t0s=None)
        words = "must have event_t0s and end_timestamp of the clips for `Moments(at='first event')`. Give times:"
        refused(copied, f"'ROOT/clip_index.parquet' {words}")
        for path in (copied / "calibration/camera_intrinsics").iterdir():
            table = pq.read_table(path)
            pq.write_table(table.drop_columns(["bw_poly_3", "height"]), path)
        assert len(PhysicalAiProvider(copied, **settings)) == 3
        refused(copied, "has no column 'height'", lenses=True, **settings)
        shutil.rmtree(copied / "calibration")
        shutil.rmtree(copied / "camera")
        provider = PhysicalAiProvider(copied, moments=AT_1, cameras=[], ego_future=[0.1])
        assert provider.get_data(2)["ego_future"]["positions"].shape == (1, 3)


CHUNKS = "`chunks` must be "
SETTINGS = {
    CHUNKS + "as '0-7', which is 0 to 6, or whole numbers, got '0-x'.": {"chunks": "0-x"},
    CHUNKS + "chunks of the list of clips, got [3]. It has: 0, 7.": {"chunks": [3]},
    "got 'clip-aa'. Did you mean 'clip-a'?": {"moments": Moments(at={"clip-aa": [1]})},
    "None of 3 clip(s) in 'ROOT' has a sample at Moments(at='first event'": {"moments": Moments()},
    "there is no camera 'camera_rear'.": {"cameras": ["camera_rear"]},
    "`missing` must be one of 'raise', 'drop', got 'skip'": {"missing": "skip"},
    "obstacle": {"boxes": True},
}


class TestErrors:
    def test_a_truncated_archive_is_named(self, copied):
        path = copied / f"camera/{FRONT}/{FRONT}.chunk_0000.zip"
        path.write_bytes(path.read_bytes()[:-500])
        refused(copied, f"ROOT/camera/{FRONT}/{FRONT}.chunk_0000.zip' cannot be read")
        refused(copied, "It is no ZIP file, or cut short; copy it again")

    def test_times_outside_of_the_motion_are_named(self, published):
        provider = PhysicalAiProvider(published, moments=Moments(at=[1.9]), cameras=[FRONT], ego_future=[0.5, 1.0])
        first, last = (f"{time / 1e6:.6g} s" for time in ego_times()[[0, -1]])
        words = (
            "`ego_future` must lie within the recorded motion of the vehicle: the frame of 1.9 s in the scene "
            f"'clip-b' needs 2.4 s to 2.9 s, but the motion is known from {first} to {last}. Ask for other "
        )
        assert_refused(lambda: provider.get_data(1), words, FieldValueError)

    def test_times_outside_of_a_video_are_named(self, published):
        provider = PhysicalAiProvider(published, moments=Moments(at=[0.55]), cameras=[TELE], **TIMES)
        words = (
            "There must be an image of each camera at or before each time of `image_times`: the frame of 0.55 s "
            f"in the scene 'clip-a' needs one of 0.35 s, but the images of '{TELE}' are from 0.521 s to 1.98765 s."
        )
        assert_refused(lambda: provider.get_data(0), words, FieldValueError)
        one = PhysicalAiProvider(published, moments=Moments(at=[2.05]), cameras=[FRONT, TELE])
        words = f"no image of camera '{TELE}': the images of ...to 1.98765 s. Leave"
        assert_refused(lambda: one.get_data(0), words, FileError)

    @each_value(num_frames=[NUM_FRAMES - 1, NUM_FRAMES + 1], images=["decoded", "encoded"], times=[(), (-0.2, 0)])
    def test_as_many_times_as_frames_are_needed(self, published, tmp_path, num_frames, images, times):
        root = unpacked(published, tmp_path / "plain")
        video = make_video(root / f"camera/{FRONT}/clip-a.{FRONT}.mp4", num_frames, "libx264", rate=30)
        provider = PhysicalAiProvider(root, cameras=[FRONT], images=images, moments=AT_1, image_times=times)
        words = (
            f"The data set has {NUM_FRAMES} time stamps of the video {str(video)!r}, which has {num_frames} "
            "frames, so that it is not known when each was taken. Copy both again, or leave the scene "
            "(`scenes`) out."
        )
        assert_refused(lambda: provider.get_data(0), words, VideoError)
        options = {"num_workers": 0, "faults": FaultPolicy(samples="skip"), "output_type": "numpy"}
        steps = [VideoDecoder("image")] if images == "encoded" else []
        with DataLoader(provider, 1, shuffle=False, steps=steps, **options) as loader:
            assert {str(batch["scene"][0]) for batch in loader} == {"clip-b", "clip-c"}

    def test_an_index_of_another_file_is_not_used(self, copied, published):
        settings = {"moments": EVENTS, "cameras": [FRONT]}
        provider = PhysicalAiProvider(copied, **settings)
        provider.get_data(0)
        target = copied / f"camera/{FRONT}/{FRONT}.chunk_0000.zip"
        shutil.copyfile(published / f"camera/{TELE}/{TELE}.chunk_0000.zip", target)
        refused(copied, f"clip-a.{FRONT}.timestamps.parquet", cameras=[FRONT])
        words = f"clip-b.{FRONT}.mp4...was changed after it was indexed"
        assert_refused(lambda: provider.get_data(1), words, VideoError)

    def test_another_version_of_the_layout_is_named(self, copied):
        write_features(copied, ["name", "directory", "archive", "members"])
        refused(
            copied,
            "'ROOT/features.csv' must have the columns feature, chunk_path and clip_files_in_zip (JSON), but "
            "KeyError: 'chunk_path'. It is of another version of the layout: name the files, layout=ClipLayout",
        )
        write_features(copied)
        table = (copied / "features.csv").read_text()
        for known, other in [("{clip_id}", "{uuid}"), ("{chunk_id:04d}", "{chunk_id}"), (".zip", ".zip}")]:
            (copied / "features.csv").write_text(table.replace(known, other))
            words = "must have no places but {chunk_id:04d} and {clip_id}, here {chunk} and {clip}. The names of"
            refused(copied, f"'ROOT/features.csv' {words}")
        (copied / "features.csv").unlink()
        refused(copied, "and no 'features.csv', which names the published archives: download it")
        refused(copied, "There are no videos", layout=ClipLayout())

    @pytest.mark.parametrize("words", SETTINGS)
    def test_wrong_settings_are_named(self, published, words):
        refused(published, words, FrameworkError, **SETTINGS[words])

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"at": "last"}, "`at` must be one of 'first event', 'events', 'default keyframe', got 'last'"),
            ({"at": ["a"]}, "`at` must be 'first event'"),
            ({"every_s": 0}, "`every_s` must be"),
        ],
    )
    def test_wrong_moments_are_named(self, given, words):
        assert_refused(lambda: Moments(**given), words)


@pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")
class TestRemote:
    def test_a_sample_takes_few_requests(self, published):
        settings = {"moments": EVENTS, "cameras": [LEFT, FRONT], "chunks": [0], "boxes": False, **TIMES}
        expected = PhysicalAiProvider(published, **settings)
        sizes = [(published / f"camera/{name}/{name}.chunk_0000.zip").stat().st_size for name in (LEFT, FRONT)]
        with FileServer(published) as server:
            provider = PhysicalAiProvider(server.url, **settings)
            # Tables of features and clips; of the chunk two calibrations, three lists of archives, and six tables.
            assert server.num_reads <= 30
            for of_camera in (9, 3, 3):  # at first, videos are indexed
                server.forget()
                samples = [provider.get_data(1)] if of_camera == 9 else list(provider.load_batch([1, 1], range(2)))
                assert [taken(sample) for sample in samples] == [taken(expected.get_data(1))] * len(samples)
                assert server.num_reads <= 2 * of_camera
                # Files of less than 256 KiB are read again when they were indexed.
                assert server.num_bytes <= sum(sizes) * (1.8 if of_camera == 9 else 1.1)
