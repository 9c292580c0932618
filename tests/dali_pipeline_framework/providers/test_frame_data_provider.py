"""Folders of recordings as single frames: what is found, in which order, and how cameras are aligned."""

from __future__ import annotations

import logging
import os
import pickle

import pytest
from support.frame_trees import write_frame, write_frames
from support.loaders import make_loader
from support.recordings import frame_provider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, GraphError, SettingError
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.providers import FrameDataProvider, FrameFolders, MissingFrame, Windows

NAMES = {f"{name}_name": name for name in ("path", "recording", "recording_number", "frame_number")}


def names_in(provider: FrameDataProvider) -> list[str]:
    """Stream and file name of each frame of a provider with `NAMES`."""
    samples = [provider.get_data(index) for index in range(provider.get_number_of_samples())]
    return ["/".join(sample["path"].split("/")[-2:]) for sample in samples]


def test_a_sample_is_a_file_with_its_place(tmp_path):
    write_frames(tmp_path, {"b": ["2.png", "1.png"], "a": ["x.png"]})
    provider = FrameDataProvider(tmp_path, **NAMES)
    sample = provider.get_data(2)
    assert sample["image"].tobytes() == (tmp_path / "b" / "2.png").read_bytes()
    assert sample["path"] == str(tmp_path / "b" / "2.png")
    assert sample["recording"] == "b"
    assert (sample["recording_number"], sample["frame_number"]) == (1, 1)
    assert names_in(provider) == ["a/x.png", "b/1.png", "b/2.png"]
    assert provider.sequence_lengths.tolist() == [1, 2]
    assert provider.recording_names == ("a", "b")
    assert provider.camera_names == ()
    assert repr(provider) == f"FrameDataProvider({str(tmp_path)!r}: 3 frames in 2 recording(s), 2 sequence(s))"


def test_order_and_selection(tmp_path, caplog):
    streams = ["a", "a-b", "a b", "B", "10", "9", "é"]
    write_frames(tmp_path, {stream: ["1.png"] for stream in streams})
    write_frames(tmp_path / "9", {"": ["10.png", "9.PNG", "B.png", ".hidden.png"], "folder.png": ["1.png"]})
    write_frames(tmp_path, {".hidden": ["1.png"], "empty": []})
    (tmp_path / "9" / "notes.txt").write_text("no image")
    (tmp_path / "file.png").write_text("")
    provider = FrameDataProvider(tmp_path, **NAMES)
    expected = ["10/1.png", "9/1.png", "9/10.png", "9/9.PNG", "9/B.png", "B/1.png", "a b/1.png", "a-b/1.png"]
    assert names_in(provider) == [*expected, "a/1.png", "é/1.png"]  # as DALI's reader, see the tests of sequences
    assert provider.sequence_lengths.tolist() == [1, 4, 1, 1, 1, 1, 1]
    assert "2 file(s) or folder(s) among the frames" in caplog.text


def test_names_need_not_be_utf_8(tmp_path):
    write_frames(tmp_path, {"a": 2})
    (tmp_path / "a").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    sample = FrameDataProvider(tmp_path, **NAMES).get_data(1)
    assert sample["recording"] == r"\xff"
    assert sample["path"].startswith(str(tmp_path) + r"/\xff/")


def test_links_end(tmp_path):
    write_frames(tmp_path, {"a": 2})
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "self.png").symlink_to(tmp_path / "a" / "self.png")
    provider = FrameDataProvider(tmp_path)
    assert provider.recording_names == ("a", "again")
    with pytest.raises(FileError, match=r"a/self.png' cannot be read: Too many levels of symbolic links"):
        provider.get_data(2)


# --- rigs -------------------------------------------------------------------------------------------------


def test_cameras_are_groups(tmp_path):
    write_frames(tmp_path, {f"{stream}/{camera}": 3 for stream in ("s0", "s1") for camera in ("F", "R")})
    cameras = {"front": "F", "rear": "R"}
    provider = FrameDataProvider(FrameFolders(tmp_path, cameras=cameras), **NAMES)
    assert provider.sequence_lengths.tolist() == [3, 3]
    assert provider.camera_names == ("front", "rear")
    sample = provider.get_data(4)
    assert sample.field_names_flat == (
        *("front.image", "front.path", "rear.image", "rear.path"),
        *("recording", "recording_number", "frame_number"),
    )
    stream = tmp_path / "s1" / "R"
    assert sample["rear"]["path"] == str(stream / "00001.png")
    assert sample["rear"]["image"].tobytes() == (stream / "00001.png").read_bytes()
    assert (sample["recording"], sample["frame_number"]) == ("s1", 1)


def test_rigs_are_aligned_by_name(tmp_path, caplog):
    write_frames(tmp_path, {"s/F": ["1.png", "2.png", "3.png", "5.png"], "s/R": ["1.png", "3.png", "4.png"]})
    write_frames(tmp_path, {"t/F": ["1.png"]})
    cameras = ["F", "R"]
    with caplog.at_level(logging.WARNING):
        provider = FrameDataProvider(FrameFolders(tmp_path, cameras=cameras), frame_number_name="number")
    missing = [("s", "R", 1, "2"), ("s", "F", 3, "4"), ("s", "R", 4, "5"), ("t", "R", 0, "1")]
    assert provider.missing_frames == tuple(MissingFrame(*each) for each in missing)
    assert provider.sequence_lengths.tolist() == [1, 1]  # cut at the gap
    assert [int(provider.get_data(index)["number"]) for index in range(2)] == [0, 2]
    assert "Not all cameras have a frame at 4 of 6 points in time" in caplog.text
    assert "  - recording s: 2 frame(s) of R\n  - recording s: 1 frame(s) of F\n  - recording t: 1" in caplog.text
    assert f"There is no folder '{tmp_path}/t/R'" in caplog.text

    bridged = FrameDataProvider(FrameFolders(tmp_path, cameras=cameras, missing="bridge"))
    assert bridged.sequence_lengths.tolist() == [2]
    with pytest.raises(
        SettingError, match=r"at 4 of 6 points in time in .*:\n  - recording s: 2 frame\(s\) of R\n"
    ):
        FrameDataProvider(FrameFolders(tmp_path, cameras=cameras, missing="raise"))


def test_rigs_are_aligned_by_time(tmp_path):
    # The rear camera runs 3 units later, lacks a frame near 200, and has one that is too far from 400.
    write_frames(tmp_path, {"s/F": [f"F_{time}.png" for time in (0, 100, 200, 300, 400)]})
    write_frames(tmp_path, {"s/R": [f"R_{time}.png" for time in (3, 103, 303, 420)]})
    settings = {"cameras": {"front": "F", "rear": "R"}, "align": "time", "timestamp": r"_(\d+)\."}
    provider = FrameDataProvider(
        FrameFolders(tmp_path, **settings, tolerance_s=10), timestamp_name="time", **NAMES
    )
    assert provider.sequence_lengths.tolist() == [2, 1]
    assert provider.missing_frames == (
        MissingFrame("s", "rear", 2, "F_200.png"),
        MissingFrame("s", "rear", 4, "F_400.png"),
    )
    assert provider.timestamps.tolist() == [[0, 3], [100, 103], [300, 303]]
    sample = provider.get_data(2)
    times = [int(sample[camera]["time"]) for camera in ("front", "rear")]
    assert (times, int(sample["frame_number"])) == ([300, 303], 3)
    assert sample["rear"]["path"].endswith("R_303.png")

    by_rear = FrameDataProvider(
        FrameFolders(tmp_path, **settings, tolerance_s=20, reference_camera="rear"), timestamp_name="t"
    )
    assert by_rear.timestamps.tolist() == [[0, 3], [100, 103], [300, 303], [400, 420]]
    assert by_rear.sequence_lengths.tolist() == [4]


def test_tolerance_of_time_stamps_in_other_units(tmp_path):
    # 30 Hz in microseconds; the rear camera is 1000, 10000 and 10001 microseconds late.
    write_frames(tmp_path, {"s/F": ["100000.png", "133333.png", "166667.png"]})
    write_frames(tmp_path, {"s/R": ["101000.png", "143333.png", "176668.png"]})
    folders = FrameFolders(tmp_path, cameras=["F", "R"], align="time", timestamp_unit_s=1e-6, tolerance_s=0.01)
    assert FrameDataProvider(folders).timestamps.tolist() == [[100000, 101000], [133333, 143333]]
    usual = FrameDataProvider(FrameFolders(tmp_path, cameras=["F", "R"], align="time"))  # half of 33333.5
    assert usual.timestamps.tolist() == [[100000, 101000], [133333, 143333], [166667, 176668]]


def test_time_stamps_give_the_order_by_time_only_also_in_workers(tmp_path):
    write_frames(tmp_path, {"s": ["9.png", "10.png", "8.5.png"]})
    by_name = FrameDataProvider(tmp_path, timestamp_name="time")
    assert by_name.timestamps[:, 0].tolist() == [10.0, 8.5, 9.0]
    folders = FrameFolders(tmp_path, align="time", timestamp=lambda name: float(name[:-4]))
    by_time = pickle.loads(pickle.dumps(FrameDataProvider(folders, timestamp_name="time")))
    assert by_time.timestamps[:, 0].tolist() == [8.5, 9.0, 10.0]
    assert by_time.get_data(0)["time"] == 8.5
    assert by_time.frame_times_s().tolist() == [8.5, 9.0, 10.0]
    assert Windows(by_time, {"time": [0, 0.5]}, unit="s", tolerance_s=0.1).rows.tolist() == [0]


# --- bad input ----------------------------------------------------------------------------------------------


def test_roots_that_are_not_as_expected(tmp_path):
    def assert_not_as_expected(words, root=tmp_path, error=SettingError, **settings):
        assert_refused(lambda: FrameDataProvider(FrameFolders(root, **settings)), words, error)

    assert_not_as_expected("nowhere' cannot be read: there is none", tmp_path / "nowhere", FileNotFoundError)
    layout = "': frames must lie as '.../<recording>/<frame>.jpg', with the extension of an image. At the top are"
    no_recording = f"There is no folder of a recording in '...{layout}"
    assert_not_as_expected(f"{no_recording} none.")
    write_frame(tmp_path / "1.png")
    assert_not_as_expected(f"{no_recording} '1.png'.")
    (tmp_path / "s").mkdir()
    assert_not_as_expected(f"There is no frame in '...{layout} '1.png', 's'.")
    write_frames(tmp_path, {"s/F": 2, "s/R": 2})
    assert_not_as_expected("2 file(s) or folder(s) among ... are left out, e.g. '.../s/")
    assert_not_as_expected("There is no frame in .../<recording>/<camera>/<frame>.jpg'", cameras=["L"])
    write_frames(tmp_path / "u", {"u/F": ["1.png"], "u/R": ["2.png"]})
    never = "At no point in time all of the cameras ['F', 'R'] have a frame"
    assert_not_as_expected(never, tmp_path / "u", cameras=["F", "R"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cameras": "F"}, "`cameras` must be a dict such as"),
        ({"cameras": {"front": "F/"}}, "without a '/' at their ends"),
        ({"cameras": {"a": "F", "b": "F"}}, "each with a folder of its own"),
        ({"cameras": []}, "at least one"),
        ({"align": "index"}, "`align` must be one of 'name', 'time', got 'index'"),
        ({"missing": "skip"}, "`missing` must be one of 'drop', 'bridge', 'raise', got 'skip'"),
        ({"timestamp": r"(\d+)"}, "`timestamp` is for `align='time'` and `timestamp_name`"),
        ({"tolerance_s": 1}, "are for `align='time'`"),
        ({"align": "time", "tolerance_s": -1}, "`tolerance_s` must be a number of at least 0, got -1"),
        ({"timestamp_unit_s": 0}, "`timestamp_unit_s` must be a number above 0, got 0"),
        (
            {"cameras": ["F"], "align": "time", "reference_camera": "R"},
            r"`reference_camera` must name one of `cameras` \('F'\), got 'R'",
        ),
        (
            {"align": "time", "timestamp": r"_(\d+)"},
            r"`timestamp` must find a finite number .* file name '00000.png', got None\..*folder is",
        ),
    ],
)
def test_refuses_settings(tmp_path, arguments, message):
    write_frames(tmp_path, {"s": 2})
    with pytest.raises(SettingError, match=message):
        frame_provider(file_root=tmp_path, **arguments)


def test_ambiguous_frames(tmp_path):
    write_frames(tmp_path, {"s/F": ["1.png", "1.PNG"], "s/R": ["1.png"], "t/F": ["1.png", "01.png"]})
    with pytest.raises(SettingError, match=r"got '1.PNG' and '1.png' in '.*s/F'"):
        FrameDataProvider(FrameFolders(tmp_path, cameras=["F", "R"]))
    with pytest.raises(SettingError, match=r"time stamps of a camera must differ, got 1 for both .* in '.*s/F'"):
        FrameDataProvider(FrameFolders(tmp_path, cameras=["F"], align="time"))


def test_samples_that_do_not_exist_vanish_or_cannot_be_decoded_are_named(tmp_path):
    provider = FrameDataProvider(write_frames(tmp_path, {"0": 3, "1": 3}))
    for index in (-1, 6):
        with pytest.raises(SettingError, match=rf"must be in \[0, 5\], got {index}") as caught:
            provider.get_data(index)
        assert isinstance(caught.value, IndexError)
    bad = tmp_path / "1" / "00002.png"
    bad.write_bytes(b"this is no image, only some text that is long enough")
    with (
        make_loader(provider, 3, steps=[ImageDecoder("image", False)]) as loader,
        pytest.raises(GraphError, match=r"sample 5 \(.*1/00002.png\), field image"),
    ):
        list(loader)
    bad.unlink()
    with pytest.raises(FileError, match=r"00002.png' cannot be read: there is none"):
        provider.get_data(5)
