"""Data sets of LeRobot: rows, pictures, subsets and statistics, in both layouts, wherever they are."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.clip_data import write_parquet
from driving_support.lerobot import FEATURE, FPS, LENGTHS, REAR, TASKS, pack, statistics_of, write_lerobot
from PIL import Image
from support.file_server import FileServer
from support.laws import spread
from support.optional_packages import has
from support.shared_data import shared_data  # noqa: F401 (comparisons are not skipped)
from support.videos import draw_number, make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading, StreamingSequenceSampler, VideoDecoder
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, ImageMeanStdDevNormalizer
from accvlab.dali_pipeline_framework.providers import Storage, Windows
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.dali_pipeline_framework.video.decoded_clips import decoded_clip
from accvlab.driving_data.datasets import LeRobotProvider
from accvlab.driving_data.viewing import scene_view, show

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")
pytestmark = pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")

FAST: dict[str, Any] = {"reading": RemoteReading(attempts=2, first_wait_s=0.001, timeout_s=60)}
VERSIONS = ("v3.0", "v2.1")
LEAVE_OUT = "Copy the file again, or leave the episode (`episodes`) or the camera (`fields`) out."
OF_LAST = f"videos/chunk-000/{FEATURE}/episode_000002.mp4"


@pytest.fixture(autouse=True)
def _index_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "indices"))


@pytest.fixture
def placed(tmp_path: Path) -> Iterator[Callable[[Path, str], Any]]:
    """What puts a folder into a place, and returns the root there."""
    with FileServer(tmp_path) as server:

        def place(root: Path, kind: str) -> Any:
            if kind == "folder":
                return root
            if "zip" in kind:
                packed = pack(root, tmp_path / "all.zip")
                return packed if kind == "zip" else f"{server.url}/all.zip"
            return f"{server.url}/{root.relative_to(tmp_path)}"

        yield place


def numbers(samples: Any, camera: str = FEATURE) -> list[int]:
    return read_numbers(np.stack([sample[camera] for sample in samples]))


# --- rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place", ["folder", "zip", "url", "url of a zip"])
def test_rows_are_those_of_the_data_set(
    tmp_path: Path, placed: Callable[[Path, str], Any], version: str, place: str
) -> None:
    root = placed(write_lerobot(tmp_path / "set", version), place)
    provider = LeRobotProvider(root, storage_options=FAST)
    assert provider.sequence_lengths.tolist() == [*LENGTHS]
    assert provider.camera_names == (FEATURE, REAR)
    samples = [provider.get_data(row) for row in range(12)]
    assert numbers(samples) == [*range(12)]
    assert numbers(samples, REAR) == [*range(100, 112)]
    for row, sample in enumerate(samples):
        episode = int(np.searchsorted([4, 7], row, side="right"))
        frame = row - [0, 4, 7][episode]
        expected: dict[str, Any] = {
            "observation.state": np.array([row, episode], np.float32),
            "action": np.array([frame, -frame, episode], np.float32),
            "timestamp": np.float32(frame / FPS),
            "frame_index": np.int64(frame),
            "episode_index": np.int64(episode),
            "index": np.int64(row),
            "task_index": np.int64(episode % 2),
        }
        for name, value in expected.items():
            assert sample[name].dtype == value.dtype, name
            np.testing.assert_array_equal(sample[name], value)
        assert sample["task"] == TASKS[episode % 2]
    assert provider.tasks == dict(enumerate(TASKS))
    np.testing.assert_array_equal(provider.frame_times_s(), [k / FPS for n in LENGTHS for k in range(n)])
    state = np.stack([sample["observation.state"] for sample in samples]).astype(np.float64)
    for what, value in statistics_of(state).items():
        np.testing.assert_allclose(provider.statistics["observation.state"][what], value, rtol=1e-12)
    assert provider.describe_sample(5).startswith("episode 1, frame 1, at 0.040 s, of videos/")
    assert len(pickle.dumps(provider)) < 2500


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_are_loaded_alone_and_in_any_order(tmp_path: Path, version: str) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path / "set", version))
    rows = [8, 1, 8, 5]
    loaded = provider.load_fields({("observation.state",): rows, ("task",): [0], (REAR,): rows})
    assert read_numbers(np.stack(loaded[REAR,])) == [108, 101, 108, 105]
    np.testing.assert_array_equal(np.asarray(loaded["observation.state",])[:, 0], rows)
    assert bytes(loaded["task",][0]).decode() == TASKS[0]
    check_provider(provider, start_method="fork", num_samples=3)


def test_numbers_are_loaded_without_videos(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set")
    provider = LeRobotProvider(root)
    for path in root.rglob("*.mp4"):
        path.unlink()
    assert provider.load_fields({("index",): [11]})["index",] == [11]
    numbers_only = LeRobotProvider(root, fields=["action", "task"])
    assert numbers_only.field_names == ("action", "task")
    assert numbers_only.get_data(11)["action"].tolist() == [4, -4, 2]
    assert numbers_only.get_data(4)["task"] == TASKS[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_episodes_are_a_subset_in_the_order_of_the_data_set(tmp_path: Path, version: str) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path / "set", version), episodes=[2, 0])
    assert provider.episode_numbers == (0, 2)
    assert provider.sequence_lengths.tolist() == [4, 5]
    samples = [provider.get_data(row) for row in range(9)]
    assert [int(sample["index"]) for sample in samples] == numbers(samples) == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    with pytest.raises(IndexError):
        provider.get_data(9)
    only_last = LeRobotProvider(tmp_path / "set", episodes=np.array([2]))
    assert numbers([only_last.get_data(0)], REAR) == [107]


def test_numbers_texts_and_pictures_of_all_kinds(tmp_path: Path) -> None:
    from PIL import Image

    def png(number: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(draw_number(number)).save(file, "png")
        return file.getvalue()

    columns = {
        "grid": np.arange(12 * 6, dtype=np.int16).reshape(12, 2, 3),
        "flag": np.arange(12) % 3 == 0,
        "gains": np.arange(24, dtype=np.float64).reshape(12, 2) / 7,
        "note": np.array([f"row {row}, é" for row in range(12)]),
        "task": np.array(["another"] * 12),  # the text of the task takes its place
    }
    root = write_lerobot(tmp_path, columns=columns, cameras=(), images=[png(row + 200) for row in range(12)])
    provider = LeRobotProvider(root, episodes=[1, 2])
    sample = provider.get_data(3)
    for name in ("grid", "flag", "gains"):
        assert sample[name].dtype == columns[name].dtype
        np.testing.assert_array_equal(sample[name], columns[name][7])
    assert sample["note"] == "row 7, é"
    assert sample["task"] == TASKS[0]
    assert LeRobotProvider(root, fields=["task"]).get_data(4)["task"] == TASKS[1]
    steps = [ImageDecoder("observation.images.top", use_device_mixed=False)]
    with DataLoader(provider, 4, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    assert read_numbers(np.stack(batch["observation.images.top"])) == [204, 205, 206, 207]


def test_reach_a_loader_in_order(tmp_path: Path) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path / "set"), fields=[FEATURE, "index"])
    sampler = StreamingSequenceSampler(provider.sequence_lengths, shuffle=False)
    settings: dict[str, Any] = {"num_workers": 1, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(provider, 1, sampler=sampler, **settings) as loader:
        found = [(read_numbers(np.stack(batch[FEATURE]))[0], int(batch["index"][0])) for batch in loader]
    assert found == [(row, row) for row in range(12)]


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
def test_workers_that_are_fresh_processes_deliver_the_same(tmp_path: Path, start_method: str) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path / "set"))
    windows = Windows(provider, {FEATURE: [-1 / FPS, 0], "action": [0, 1 / FPS]}, unit="s", edges="repeat")
    options: dict[str, Any] = {"steps": [provider.normalizer("action")], "seed": 3, "output_type": "numpy"}
    with DataLoader(windows, 4, shuffle=True, num_workers=0, **options) as loader:
        expected = [*loader]
    with DataLoader(windows, 4, shuffle=True, num_workers=2, start_method=start_method, **options) as loader:
        found = [*loader]
    assert len(found) == len(expected) == 3
    for batch, other in zip(found, expected, strict=True):
        assert batch["task"] == other["task"]
        for name in (FEATURE, REAR, "action", "action_is_pad", "index"):
            np.testing.assert_array_equal(np.stack(batch[name]), np.stack(other[name]))


@pytest.mark.parametrize("by", ["mean_std", "min_max"])
def test_numbers_are_normalized_by_the_statistics(tmp_path: Path, by: Any) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path), fields=["action", "index", "observation.state"])
    windows = Windows(provider, {"action": [0, 1 / FPS]}, unit="s", edges="repeat")
    steps = [provider.normalizer("action", by), provider.normalizer("observation.state", by)]
    with DataLoader(windows, 12, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    for field in ("action", "observation.state"):
        rows = np.stack([provider.get_data(row)[field] for row in range(12)]).astype(np.float64)
        found = np.stack(batch[field])
        assert found.dtype == np.float32
        if by == "mean_std":
            expected = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-8)
        else:
            low, high = rows.min(axis=0), rows.max(axis=0)
            expected = 2 * (rows - low) / (high - low) - 1
        now = found[:, 0] if field == "action" else found
        np.testing.assert_allclose(now, expected, rtol=1e-5, atol=1e-6)


def test_what_has_no_statistics_is_not_normalized(tmp_path: Path) -> None:
    constant = {"mean": [3], "std": [0], "min": [3], "max": [3]}
    columns = {"gear": np.full(12, 3.0), "gain": np.arange(12.0)}
    provider = LeRobotProvider(write_lerobot(tmp_path, columns=columns, stats={"gear": constant}))
    with pytest.raises(SettingError, match=r"`field` must be a field of numbers, got 'acton'\. Did you mean"):
        provider.normalizer("acton")
    with pytest.raises(SettingError, match=r"There are no statistics mean, std of 'gain'\. There are those of: "):
        provider.normalizer("gain")
    for by in ("mean_std", "min_max"):
        step = provider.normalizer("gear", by)
        with DataLoader(provider, 12, steps=[step], output_type="numpy", num_workers=0) as loader:
            assert np.array_equal(next(iter(loader))["gear"], np.zeros(12))


# --- how much is read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "is_packed", "images"),
    [*itertools.product(VERSIONS, [False, True], ["decoded"]), ("v3.0", False, "encoded")],
)
def test_a_remote_window_takes_one_request_per_camera(
    tmp_path: Path, version: str, is_packed: bool, images: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    padded = "keyint=4:bframes=0:scenecut=0:nal-hrd=cbr:filler=1:bitrate=8000:vbv-maxrate=8000:vbv-bufsize=4000"
    options = {"preset": "ultrafast", "x264-params": padded}  # 40 kB per frame
    root = write_lerobot(tmp_path / "set", version, options=options)
    with FileServer(tmp_path) as server:
        url = f"{server.url}/{pack(root, tmp_path / 'all.zip').name}" if is_packed else f"{server.url}/set"
        provider = LeRobotProvider(url, storage_options=FAST, images=images)
        if images == "decoded":  # of encoded ones, one of each camera tells its codec
            assert not [path for _, path in server.requests if path.endswith(".mp4")]  # only tables
        offsets = [-0.08, -0.04, 0]
        windows = Windows(
            provider, {FEATURE: offsets, REAR: offsets, "action": [0, 0.04]}, unit="s", edges="repeat"
        )
        for row in (2, 5, 10):
            windows.get_data(row)  # indices of the videos
        provider.close()
        again = pickle.loads(pickle.dumps(windows))  # as in a worker
        for row in (6, 2, 10):
            again.get_data(row)  # it asks once for the version of each video
        again.data_provider.close()
        server.forget()
        for row in (6, 2, 10):
            sample = again.get_data(row)
            rear = sample[REAR]
            if images == "encoded":
                rear = decoded_clip(np.array(rear), sample[f"{REAR}_to_decode"])
            assert read_numbers(rear) == [row + 98, row + 99, row + 100]
        per_clip = f"{server.num_reads / 6:.2f} requests and {server.num_bytes / 6e3:.0f} kB per camera and window"
        with capsys.disabled():
            print(f"\n{version}, {'ZIP' if is_packed else 'files'}, {images}: {per_clip}")
        methods = [method for method, _ in server.requests]
        assert "HEAD" not in methods  # the versions of the videos were requested a moment before
        # The start of these videos of 0.3 MB is read again; that of larger ones is kept with their indices.
        assert methods.count("GET") <= (6 if version == "v2.1" else 10)
        assert server.num_bytes < 6 * (4 * 40_000 + (1 << 17))


# --- encoded videos ---------------------------------------------------------------------------------------


def test_encoded_videos_have_the_frames_of_the_rows(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", options={"preset": "ultrafast", "x264-params": "keyint=4:bframes=0"})
    provider = LeRobotProvider(root, images="encoded")
    assert provider.field_names[:4] == (FEATURE, f"{FEATURE}_to_decode", REAR, f"{REAR}_to_decode")
    assert provider.sample_data_structure.format.at((REAR,)).content.codecs == ("h264 yuv420p",)
    sample = provider.get_data(5)  # frame 5 of the video: of key frame 4 the next
    assert (sample[REAR].ndim, sample[f"{REAR}_to_decode"]) == (1, 1)
    for source in (provider, LeRobotProvider(root)):
        steps = [VideoDecoder(name) for name in (FEATURE, REAR)] if source is provider else []
        with DataLoader(source, 4, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
            batches = [*loader]
        assert read_numbers(np.concatenate([batch[FEATURE] for batch in batches])) == [*range(12)]
        assert read_numbers(np.concatenate([batch[REAR] for batch in batches])) == [*range(100, 112)]
    check_provider(provider, start_method="fork", num_samples=3)


@pytest.mark.parametrize("place", ["folder", "url"])
def test_windows_of_encoded_videos_are_clips(
    tmp_path: Path, placed: Callable[[Path, str], Any], place: str
) -> None:
    options = {"preset": "ultrafast", "x264-params": "keyint=4:bframes=0:scenecut=0"}
    root = placed(write_lerobot(tmp_path / "set", options=options), place)
    provider = LeRobotProvider(root, images="encoded", storage_options=FAST)
    windows = Windows(provider, {REAR: [-2 / FPS, 0, 1 / FPS], "action": [0, 0.04]}, unit="s", edges="repeat")
    sample = windows.get_data(5)  # rows 4, 5 and 6 of an episode of rows 4 to 6: the first is repeated
    assert sample[f"{REAR}_to_decode"].tolist() == [0, 1, 2]
    assert sample[f"{REAR}_is_pad"].tolist() == [True, False, False]
    assert sample[f"{FEATURE}_to_decode"] == 1
    steps = [VideoDecoder(name) for name in (FEATURE, REAR)]
    with DataLoader(windows, 2, shuffle=False, steps=steps, num_workers=0) as loader:
        rear = np.concatenate([np.asarray(batch[REAR]) for batch in loader])
    firsts = np.repeat([0, 4, 7], [4, 3, 5])
    lasts = np.repeat([3, 6, 11], [4, 3, 5])
    rows = np.clip(np.arange(12)[:, None] + [-2, 0, 1], firsts[:, None], lasts[:, None])
    assert [read_numbers(clip) for clip in rear] == (100 + rows).tolist()


def test_an_encoded_video_that_is_bad_names_camera_episode_and_time(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1")
    provider = LeRobotProvider(root, images="encoded")
    bad = next(iter(sorted(root.rglob(f"*{REAR}*/episode_000001.mp4"))))
    bad.write_bytes(b"no video")
    with pytest.raises(VideoError) as failed:
        Windows(provider, {REAR: [0, 0.04]}, unit="s", edges="repeat").get_data(4)
    assert str(failed.value) == (
        f"'{REAR}' of episode 1, frame 0, at 0.000 s: Cannot open '{bad}' as a video: Invalid data found when "
        "processing input. Is it a video, and complete? Copy the file again, or leave the episode (`episodes`) or "
        "the camera (`fields`) out."
    )
    settings: dict[str, Any] = {"num_workers": 0, "faults": "skip", "output_type": "numpy"}
    steps = [VideoDecoder(name) for name in (FEATURE, REAR)]
    with DataLoader(provider, 3, shuffle=False, steps=steps, **settings) as loader:
        assert {int(index) for batch in loader for index in batch["index"]} == {*range(4), *range(7, 12)}


@pytest.mark.wide
def test_a_picture_has_the_cameras_of_all_times_and_what_is_padded(tmp_path: Path) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path))
    plain = scene_view(provider.get_data(5))
    assert plain.title == f"episode 1   frame 1   {TASKS[1]}"
    assert [(camera.name, *read_numbers(camera.image[None])) for camera in plain.cameras] == [
        ("front", 5),
        ("rear", 105),
    ]
    past = [-2 / FPS, -1 / FPS, 0]
    windows = Windows(
        provider,
        {FEATURE: past, REAR: past, "action": past, "observation.state": [-0.16, -0.08]},
        unit="s",
        edges="repeat",
    )
    with DataLoader(windows, 6, shuffle=False, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    for data, sample in ((windows.get_data(5), 0), (batch, 5)):
        views = [scene_view(data, sample, frame=frame) for frame in range(3)]
        assert [[camera.name for camera in view.cameras] for view in views] == [
            ["front  padded", "rear  padded"],
            ["front", "rear"],
            ["front", "rear"],
        ]
        assert [read_numbers(view.cameras[1].image[None]) for view in views] == [[104], [104], [105]]
        assert show(data, sample).pixels().shape[2] == 3


# --- what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"fields": ["observation.image.front"]},
            "`fields` must be fields of the data set, got 'observation.image.front'. Did you mean "
            "'observation.images.front'?",
        ),
        ({"fields": "action"}, "`fields` must be a list of names, got one: write ['action']."),
        ({"fields": 5}, "`fields` must be a list of names, got 5."),
        (
            {"episodes": [1, 3]},
            "`episodes` must be episodes of the data set, which has 3 episodes, numbered 0 to 2, got 3.",
        ),
        ({"episodes": []}, "`episodes` must be numbers of episodes, or None for all, got []."),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as failed:
        LeRobotProvider(write_lerobot(tmp_path), **settings)
    assert str(failed.value).startswith(message)


def test_fields_of_unknown_types_can_be_left_out(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, cameras=())
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["sound"] = {"dtype": "audio", "shape": [1]}
    path.write_text(json.dumps(info))
    with pytest.raises(
        SettingError, match=r"(?s)these are not:.*'sound' of dtype 'audio'.*the others by `fields`"
    ):
        LeRobotProvider(root)
    assert LeRobotProvider(root, fields=["action"]).field_names == ("action",)


@pytest.mark.parametrize(
    "left_out", ["timestamp", "length", "videos/observation.images.front/from_timestamp", "dataset_from_index"]
)
def test_missing_columns_are_named(tmp_path: Path, left_out: str) -> None:
    root = write_lerobot(tmp_path, left_out=[left_out])
    with pytest.raises(FileError, match=f"has no column '{left_out}'"):
        LeRobotProvider(root)


def _of_lines(name: str, change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    """What changes the objects of a table of v2.1."""

    def edit(root: Path) -> None:
        path = root / f"meta/{name}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        change(lines)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    return edit


def _of_column(name: str, file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """What changes a column of a Parquet file."""

    def edit(root: Path) -> None:
        import pyarrow.parquet as pq

        table = pq.read_table(root / file)
        place = table.schema.get_field_index(name)
        pq.write_table(table.set_column(place, name, change(table[name])), root / file)

    return edit


def _ragged(column: Any) -> Any:
    import pyarrow as pa

    return pa.array([[0.0], [1.0, 2.0, 3.0], *column.to_pylist()[2:]], pa.list_(pa.float32()))


def _without_video_path(root: Path) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "video_path": None}))


EPISODES, ROWS = "meta/episodes/chunk-000/file-001.parquet", "data/chunk-000/file-000.parquet"
OF_FIRST = "Line 1 of {} must have whole numbers of at least 0 for"


@pytest.mark.parametrize(
    ("version", "name", "damage", "message"),
    [
        (
            "v2.1",
            "meta/episodes.jsonl",
            _of_lines("episodes", lambda lines: lines[0].update(length=None)),
            f"{OF_FIRST} 'episode_index', 'length', got {{{{'episode_index': 0, 'length': None, 'tasks': []}}}}.",
        ),
        (
            "v2.1",
            "meta/tasks.jsonl",
            _of_lines("tasks", lambda lines: lines[0].update(task_index="a")),
            f"{OF_FIRST} 'task_index', got {{{{'task_index': 'a', 'task': '{TASKS[0]}'}}}}.",
        ),
        (
            "v2.1",
            "meta/info.json",
            _without_video_path,
            "'video_path' of {} must be a name with {{video_key}}, {{episode_chunk}} and {{episode_index}}, got "
            "None.",
        ),
        (
            "v3.0",
            "",
            _of_column("episode_index", EPISODES, lambda column: [[1]]),
            "The tables of episodes of {} must have each episode once, got 1 several times. Copy them again.",
        ),
        (
            "v3.0",
            ROWS,
            _of_column("observation.state", ROWS, _ragged),
            "The column 'observation.state' of {} must hold float32 of the shape (2,) in each row, as its data "
            "set says, got 7 rows of list<element: float> with 14 values and 0 empty cells, not the same number "
            "in each. Name the fields that are wanted (`fields`): others are not read.",
        ),
    ],
)
def test_tables_that_would_give_other_rows_are_refused(
    tmp_path: Path, version: str, name: str, damage: Callable[[Path], None], message: str
) -> None:
    root = write_lerobot(tmp_path / "set", version, cameras=[FEATURE] if damage is _without_video_path else ())
    damage(root)
    with pytest.raises(FileError) as failed:
        LeRobotProvider(root)
    assert str(failed.value).replace("<item:", "<element:") == message.format(repr(str(root / name)))


def test_a_frame_of_the_next_episode_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set")
    times = np.array([0, 1, 2, 4, 0, 1, 2], np.float32) / np.float32(FPS)  # there are four frames, from 0 to 3
    _of_column("timestamp", ROWS, lambda column: [times])(root)
    provider = LeRobotProvider(root)
    assert numbers([provider.get_data(row) for row in (0, 1, 2, 4, 5, 6)]) == [0, 1, 2, 4, 5, 6]
    with pytest.raises(
        FileError,
        match=r"episode 0, frame 3.* no frame at 0\.160 s .* begins at 0\.000 s, and the next one at 0\.160 s\.",
    ):
        provider.get_data(3)


def test_the_end_of_an_episode_may_be_the_time_of_its_last_frame(tmp_path: Path) -> None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    root = write_lerobot(tmp_path / "set")
    for path in sorted(root.glob("meta/episodes/*/*.parquet")):
        for name in (name for name in pq.read_schema(path).names if name.endswith("/to_timestamp")):
            _of_column(name, str(path.relative_to(root)), lambda ends: [pc.subtract(ends, 1 / FPS)])(root)
    provider = LeRobotProvider(root)
    rows = range(provider.get_number_of_samples())
    assert numbers([provider.get_data(row) for row in rows]) == [*rows]


# --- less than the data set says of itself ------------------------------------------------------------------

TOTALS = {"total_episodes": 3, "total_frames": 12}
AGAIN = "Copy the data set again, or name the episodes that are wanted (`episodes`)."


def _without_last_episode(root: Path) -> None:
    if (root / EPISODES).exists():
        (root / EPISODES).unlink()
    else:
        _of_lines("episodes", lambda lines: lines.pop())(root)


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_episodes_are_named(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path, version, cameras=(), **TOTALS)
    assert LeRobotProvider(root).sequence_lengths.tolist() == [*LENGTHS]
    _without_last_episode(root)
    tables = root / ("meta/episodes.jsonl" if version == "v2.1" else "meta/episodes")
    following = f" The first table that is not there is '{root / EPISODES}'." * (version == "v3.0")
    with pytest.raises(FileError) as failed:
        LeRobotProvider(root)
    assert str(failed.value) == (
        f"'{tables}' must have 3 episodes and 12 frames, as '{root}/meta/info.json' says, got 2 episodes and 7 "
        f"frames. Episodes are missing: 2.{following} {AGAIN}"
    )
    assert LeRobotProvider(root, episodes=[1, 0]).sequence_lengths.tolist() == [4, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_as_many_as_the_data_set_says(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path, version, cameras=(), total_episodes=3, total_frames=13)
    with pytest.raises(FileError, match=r"got 3 episodes and 12 frames\. A 'length' is wrong\. Copy"):
        LeRobotProvider(root)
    more = write_lerobot(tmp_path / "more", version, cameras=(), total_episodes=2, total_frames=7)
    with pytest.warns(
        UserWarning, match=r"must have 2 episodes and 7 frames, .* got 3 episodes and 12 frames\. All"
    ):
        assert len(LeRobotProvider(more)) == 12


@pytest.mark.parametrize("total", ["12", True, 12.5])
def test_totals_are_whole_numbers(tmp_path: Path, total: Any) -> None:
    root = write_lerobot(tmp_path, cameras=(), total_frames=total)
    with pytest.raises(FileError, match=rf"'total_frames' of .*info.json' must be a whole number, got '?{total}"):
        LeRobotProvider(root)
    assert len(LeRobotProvider(write_lerobot(tmp_path / "float", cameras=(), total_frames=12.0))) == 12


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_times_of_rows_ascend(tmp_path: Path, wrong: float) -> None:
    times_s = np.concatenate([np.arange(length) / FPS for length in LENGTHS]).astype(np.float32)
    times_s[6] = wrong
    root = write_lerobot(tmp_path, columns={"timestamp": times_s})
    message = (
        rf"'timestamp' .* must ascend, got 0.04 and then {wrong:g} seconds \(episode 1, frame 2, at 0.080 s\)"
    )
    with pytest.raises(FileError, match=message):
        LeRobotProvider(root, fields=[FEATURE])
    assert len(LeRobotProvider(root, fields=["action"])) == 12


def test_times_of_rows_of_another_rate_are_a_warning(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, fps=30)
    with pytest.warns(
        UserWarning, match=r"usually 0.0400 s apart by their 'timestamp', 0.0333 s by the fps 30 of"
    ):
        provider = LeRobotProvider(root)
    assert numbers([provider.get_data(row) for row in (3, 6, 11)]) == [3, 6, 11]


def test_episodes_of_one_part_of_a_video_are_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    root = write_lerobot(tmp_path)
    path = root / EPISODES.replace("001", "000")
    table = pq.read_table(path).to_pydict()
    table[f"videos/{FEATURE}/from_timestamp"] = [0.0, 0.0]
    write_parquet(path, table)
    with pytest.raises(
        FileError, match=rf"episodes 0 and 1 of '{FEATURE}' both begin at 0.000 s of .*file-000.mp4'"
    ):
        LeRobotProvider(root)
    assert len(LeRobotProvider(root, fields=[REAR])) == len(LeRobotProvider(root, episodes=[1, 2])) + 4


@pytest.mark.parametrize("shape", [[96, 64, 3], [3, 32, 48]])
def test_frames_of_another_size_are_a_warning(tmp_path: Path, shape: list[int]) -> None:
    root = write_lerobot(tmp_path, cameras=[FEATURE])
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][FEATURE]["shape"] = shape
    (root / "meta/info.json").write_text(json.dumps(info))
    provider = LeRobotProvider(root)
    message = rf"'{FEATURE}' has the shape \({', '.join(map(str, shape))}\) in .* are 64 x 96 pixels"
    with pytest.warns(UserWarning, match=message) as warned:
        assert numbers([provider.get_data(row) for row in (0, 5)]) == [0, 5]
    assert len(warned) == 1


@pytest.mark.parametrize("length", [0, 2, 4])
def test_a_length_is_that_of_the_rows(tmp_path: Path, length: int) -> None:
    first = EPISODES.replace("001", "000")
    root = write_lerobot(tmp_path / "set", cameras=())
    _of_column("length", first, lambda column: [[4, length]])(root)
    with pytest.raises(FileError) as failed:
        LeRobotProvider(root)
    assert str(failed.value) == (
        f"'length' of the episode 1 in the tables of episodes of '{root}' must be 3, from its "
        f"'dataset_from_index' to 'dataset_to_index', got {length}. {CUT}"
    )
    assert len(LeRobotProvider(root, episodes=[0, 2])) == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_an_episode_without_any_are_refused(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path, version, cameras=(), left_out=["dataset_to_index"])
    table = ROWS if version == "v3.0" else "data/chunk-000/episode_000001.parquet"
    if version == "v3.0":
        _of_column("length", EPISODES.replace("001", "000"), lambda column: [[4, 0]])(root)
    else:
        _of_lines("episodes", lambda lines: lines[1].update(length=0))(root)
    rule = "must have 0 rows of the episode 1, as its 'length' says, got 3"
    for episodes in (None, [0, 1]):
        with pytest.raises(FileError) as failed:
            LeRobotProvider(root, episodes=episodes)
        assert str(failed.value) == f"'{root / table}' {rule}. {CUT}"


def test_rows_of_an_unknown_episode_are_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, cameras=())  # without totals
    for part in (0, 1):
        path = root / f"data/chunk-000/file-00{part}.parquet"
        if not part:
            rows = path.read_bytes()
            continue
        import pyarrow as pa
        import pyarrow.parquet as pq

        both = pa.concat_tables([pq.read_table(io.BytesIO(rows)), pq.read_table(path)])
        pq.write_table(both, root / ROWS)
    (root / EPISODES).unlink()
    with pytest.raises(FileError) as failed:
        LeRobotProvider(root)
    rule = "must have rows of the episodes that the tables of episodes list for it, got 5 of episode 2"
    assert str(failed.value) == f"'{root / ROWS}' {rule}. {CUT}"
    assert len(LeRobotProvider(root, episodes=[1])) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_videos_are_named_when_a_folder_is_opened(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path, version)
    videos = sorted(root.rglob("*.mp4"))
    gone = [path for path in videos if REAR in str(path)]
    for path in gone:
        path.unlink()
    with pytest.raises(FileNotFoundError) as failed:
        LeRobotProvider(root)
    assert str(failed.value) == (
        f"The video '{gone[0]}' of '{REAR}' in the episode 0 and {len(gone) - 1} other videos cannot be read: "
        "there is none. Copy the data set again, or leave the episodes (`episodes`) or the camera (`fields`) out."
    )
    assert numbers([LeRobotProvider(root, fields=[FEATURE]).get_data(11)]) == [11]


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_tasks_are_named_when_the_data_set_is_opened(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path, version, cameras=())
    if version == "v2.1":
        _of_lines("tasks", lambda lines: lines.pop())(root)
    else:
        write_parquet(root / "meta/tasks.parquet", {"task_index": [0], "task": [TASKS[0]]})
    with pytest.raises(FileError) as failed:
        LeRobotProvider(root)
    assert str(failed.value) == f"There is no task 1 in the table of tasks of '{root}'. {CUT}"
    assert len(LeRobotProvider(root, episodes=[0, 2])) == 9  # which have the other one
    assert len(LeRobotProvider(root, fields=["action", "task_index"])) == 12


# --- what is not wanted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_are_not_wanted_are_not_read(tmp_path: Path, version: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"note": np.array(["a"] * 12), "gains": np.arange(24.0).reshape(12, 2)}
    root = write_lerobot(tmp_path, version, columns=columns)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["gone"] = {"dtype": "float32", "shape": [3]}
    info["features"]["odd"] = {"dtype": "float32", "shape": None}
    info["features"]["observation.images.gone"] = {"dtype": "video", "shape": [64, 96, 3]}
    (root / "meta/info.json").write_text(json.dumps(info))
    for path in (root / "data").rglob("*.parquet"):
        table = pq.read_table(path)
        for name in ("note", "gains", "task_index"):
            cells = [None, *table[name].to_pylist()[1:]]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(cells, table[name].type))
        pq.write_table(table, path)
    (root / ("meta/tasks.jsonl" if version == "v2.1" else "meta/tasks.parquet")).unlink()
    provider = LeRobotProvider(root, fields=["action", FEATURE])
    assert provider.get_data(7)["action"].tolist() == [0, 0, 2]
    assert numbers([provider.get_data(7)]) == [7]
    advice = r"Name the fields that are wanted \(`fields`\): others are not read\."
    for fields, message in (
        (["note"], rf"The column 'note' of .* has 1 cells without a value\. {advice}"),
        (["gains"], rf"The column 'gains' of .* and 1 empty cells.*\. {advice}"),
        (["gone"], rf"has no column 'gone'\. .*\. {advice}"),
        (["odd"], "'shape' of the feature 'odd' in"),
        (["observation.images.gone"], "observation.images.gone"),
        (["task"], "meta/tasks"),
    ):
        with pytest.raises(FileError, match=message):
            LeRobotProvider(root, fields=fields)


def test_fields_of_one_data_set_have_indices_of_their_own(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, cameras=())
    for fields in (["action"], ["observation.state"], ["action", "task"], None):
        sample = LeRobotProvider(root, fields=fields).get_data(9)
        assert fields is None or [*sample.contained_top_level_field_names] == fields
        if fields is None or "action" in fields:
            assert sample["action"].tolist() == [2, -2, 2]
        if fields is None or "task" in fields:
            assert sample["task"] == TASKS[0]


# --- depth and colors ---------------------------------------------------------------------------------------

DEPTH = "observation.images.depth"


def _add_depth(root: Path, *, pixel_format: str = "gray12le", **info: Any) -> None:
    """Make the rear camera one of depth, whose codes are 100 times the number of the row, and its place."""
    import av

    path = root / "meta/info.json"
    head = json.loads(path.read_text())
    head["features"][REAR] |= {"shape": [64, 96, 1], "info": info}
    path.write_text(json.dumps(head))
    for file, rows in enumerate([range(7), range(7, 12)]):
        video = root / f"videos/{REAR}/chunk-000/file-00{file}.mp4"
        with av.open(str(video), "w", format="matroska") as container:
            stream = container.add_stream("ffv1", rate=FPS)
            stream.width, stream.height, stream.pix_fmt = 96, 64, pixel_format
            for row in rows:
                codes = np.add.outer(np.zeros(64), np.arange(96)).astype(np.uint16) + 100 * row
                frame = av.VideoFrame.from_ndarray(codes, format="gray12le").reformat(format=pixel_format)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


@pytest.mark.parametrize("key", ["is_depth_map", "video.is_depth_map"])
@pytest.mark.parametrize("images", ["decoded", "encoded"])
def test_depth_is_delivered_as_its_codes(tmp_path: Path, key: str, images: Any) -> None:
    root = write_lerobot(tmp_path)
    _add_depth(root, **{key: True, "video.depth_min": 0.01, "depth_max": 10.0})
    provider = LeRobotProvider(root, images=images)
    assert provider.depth_cameras == {REAR: {"is_depth_map": True, "depth_min": 0.01, "depth_max": 10.0}}
    windows = Windows(provider, {REAR: [-1 / FPS, 0], "action": [0]}, unit="s", edges="repeat")
    for source, rows in (
        (provider, [[row] for row in range(12)]),
        (windows, [[max(row - 1, 4), row] for row in (4, 5)]),
    ):
        for of_sample in rows:
            found = source.get_data(of_sample[-1])[REAR]
            assert found.dtype == np.uint16
            assert found[..., 5, 7, 0].reshape(-1).tolist() == [100 * row + 7 for row in of_sample]
            assert found.shape[-3:] == (64, 96, 1)
    check_provider(provider, start_method="fork", num_samples=3)
    steps = [VideoDecoder(FEATURE)] if images == "encoded" else []
    with DataLoader(windows, 3, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    assert np.stack(batch[REAR])[:, :, 3, 0, 0].tolist() == [[0, 0], [0, 100], [100, 200]]
    if images == "decoded":
        assert show(provider.get_data(3), 0).pixels().shape[2] == 3


def test_depth_in_colors_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path)
    _add_depth(root, pixel_format="yuv420p", is_depth_map=True)
    provider = LeRobotProvider(root)
    message = (
        rf"'{REAR}' of episode 0, frame 0, .* codes of depth must be gray of at most 16 bits, but .* yuv420p\."
    )
    with pytest.raises(VideoError, match=message):
        provider.get_data(0)
    assert numbers([LeRobotProvider(root, fields=[FEATURE]).get_data(0)]) == [0]


def test_gray_of_12_bits_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path)
    _add_depth(root)
    provider = LeRobotProvider(root)
    assert provider.depth_cameras == {}
    with pytest.raises(VideoError, match=rf"'{REAR}' of episode 0, frame 0, .* its pixels are gray of 12 bits"):
        provider.get_data(0)


def test_gray_pictures_of_16_bits_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((64, 96), 1500, np.uint16)).save(file, "PNG")
    root = write_lerobot(tmp_path, cameras=(), images=[file.getvalue()] * sum(LENGTHS))
    message = "images of 'observation.images.top' are gray of 16 bits, as those of depth, and `ImageDecoder` would"
    with pytest.raises(FileError, match=message):
        LeRobotProvider(root)
    assert len(LeRobotProvider(root, fields=["action"])) == 12


def test_depth_in_files_of_pictures_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, cameras=(), images=[b"a"] * 12)
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.images.top"]["info"] = {"is_depth_map": True}
    path.write_text(json.dumps(info))
    with pytest.raises(
        SettingError, match=r"Depth maps must be of dtype 'video', but 'observation\.images\.top' is"
    ):
        LeRobotProvider(root)
    assert len(LeRobotProvider(root, fields=["action"])) == 12


@pytest.mark.parametrize("images", ["decoded", "encoded"])
def test_untagged_videos_have_the_colors_that_were_written(tmp_path: Path, images: Any) -> None:
    import av

    root = write_lerobot(tmp_path, "v2.1", cameras=[FEATURE])
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"][FEATURE]["shape"] = [64, 1280, 3]
    path.write_text(json.dumps(info))
    for episode, length in enumerate(LENGTHS):
        with av.open(str(root / f"videos/chunk-000/{FEATURE}/episode_{episode:06d}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=FPS, options={"g": "2", "bf": "0", "qp": "4"})
            stream.width, stream.height, stream.pix_fmt = 1280, 64, "yuv420p"
            for _ in range(length):
                image = np.full((64, 1280, 3), (20, 220, 130), np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode(None))
    for colors, expected in ((None, [19, 219, 129]), ("bt601", [19, 219, 129]), ("stream", [2, 195, 128])):
        settings: dict[str, Any] = {} if colors is None else {"colors": colors}
        provider = LeRobotProvider(root, images=images, **settings)
        steps = [VideoDecoder(FEATURE)] if images == "encoded" else []
        with DataLoader(provider, 4, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
            found = np.stack(next(iter(loader))[FEATURE])
        assert np.abs(found[:, 30, 600].astype(int) - expected).max() <= 1
    with pytest.raises(SettingError, match="`colors` must be one of 'stream', 'bt601', 'dali', got 'bt709'"):
        LeRobotProvider(root, colors="bt709")  # type: ignore[arg-type]


# --- rows and frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", ["decoded", "encoded"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_video_of_fewer_frames_than_rows_is_refused_as_a_whole(
    tmp_path: Path, version: str, images: Any
) -> None:
    root = write_lerobot(tmp_path / "set", version, cameras=[FEATURE])
    video = root / ("videos/chunk-000/" + FEATURE + "/episode_000001.mp4" if version == "v2.1" else VIDEO)
    make_video(video, 2 if version == "v2.1" else 6, "libx264", first_number=4 if version == "v2.1" else 0)
    provider = LeRobotProvider(root, images=images)
    for row in (4, 5, 6):  # frame 1 may be the one that is missing, and all others at constant rate
        with pytest.raises(FileError) as failed:
            provider.get_data(row)
        start = "0.160" if version == "v3.0" else "0.000"
        assert str(failed.value) == (
            f"'{FEATURE}' of episode 1, frame {row - 4}, at {(row - 4) / FPS:.3f} s: the episode has 3 rows, "
            f"and the video '{video}' has 2 frames for them, from {start} s on: frames are missing, and which "
            f"rows they are of is not known. A `tolerance_s` of 0.02 takes the nearest ones. {LEAVE_OUT}"
        )
        assert failed.value.sample_index_in_data_set == row  # type: ignore[attr-defined]
    if images == "decoded":
        assert numbers([provider.get_data(row) for row in (0, 3, 7, 11)]) == [0, 3, 7, 11]
        tolerant = LeRobotProvider(root, tolerance_s=0.04)
        with pytest.warns(UserWarning, match=r"not as many in episode 1: the episode has 3 rows, and .* 2 frames"):
            assert numbers([tolerant.get_data(row) for row in (4, 5, 6)]) == [4, 5, 5]


def test_more_frames_than_rows_are_a_warning(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=[FEATURE])
    for episode, length in ((0, 4), (2, 5)):
        name = f"videos/chunk-000/{FEATURE}/episode_{episode:06d}.mp4"
        make_video(root / name, length + 2, "libx264", first_number=50)
    provider = LeRobotProvider(root)
    with pytest.warns(UserWarning, match="not as many in episode 0") as warned:
        assert numbers([provider.get_data(row) for row in (0, 3, 7, 11)]) == [50, 53, 50, 54]
    assert [str(each.message) for each in warned] == [
        f"Rows and frames are not as many in episode 0: the episode has 4 rows, and the video "
        f"'{root}/videos/chunk-000/{FEATURE}/episode_000000.mp4' has 6 frames for them, from 0.000 s on. Are they "
        "of one recording? Frames are taken by their times. (Other episodes are not named.)"
    ]


@pytest.mark.parametrize("images", ["decoded", "encoded"])
@pytest.mark.parametrize("rate", [24, 26])
def test_frames_that_drift_are_refused(tmp_path: Path, rate: int, images: Any) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=[FEATURE])
    make_video(root / OF_LAST, 5, "libx264", first_number=7, rate=rate)
    provider = LeRobotProvider(root, images=images)
    provider.get_data(7)
    for row in (8, 11):
        wanted_s, found_s = (row - 7) / FPS, (row - 7) / rate
        with pytest.raises(FileError) as failed:
            provider.get_data(row)
        assert str(failed.value) == (
            f"'{FEATURE}' of episode 2, frame {row - 7}, at {wanted_s:.3f} s: there is no frame at "
            f"{wanted_s:.3f} s of the video '{root / OF_LAST}', which has 5 frames from 0.000 to {4 / rate:.3f} "
            f"s, where the episode begins at 0.000 s: the nearest, frame {row - 7}, is at {found_s:.4f} s, "
            f"{abs(wanted_s - found_s):.4f} s away, and `tolerance_s` is 0.0001. {LEAVE_OUT}"
        )
    tolerant = LeRobotProvider(root, tolerance_s=0.01)
    assert numbers([tolerant.get_data(row) for row in range(7, 12)]) == [*range(7, 12)]


@pytest.mark.parametrize(("shift_s", "is_near"), [(9e-5, True), (-9e-5, True), (1.2e-4, False), (-1.2e-4, False)])
def test_frames_are_as_near_as_lerobot_wants_them(tmp_path: Path, shift_s: float, is_near: bool) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=[FEATURE])
    times = (np.arange(5) / FPS + shift_s).astype(np.float32)
    _of_column("timestamp", "data/chunk-000/episode_000002.parquet", lambda column: [times])(root)
    provider = LeRobotProvider(root)
    if is_near:
        assert numbers([provider.get_data(row) for row in (7, 11)]) == [7, 11]
    else:
        with pytest.raises(FileError, match=r"0\.0001 s away, and `tolerance_s` is 0\.0001"):
            provider.get_data(9)


@pytest.mark.parametrize("wrong", [0, -1e-4, float("nan"), "1e-4", None])
def test_a_tolerance_is_a_number_above_0(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(SettingError, match="`tolerance_s` must be"):
        LeRobotProvider(write_lerobot(tmp_path, cameras=()), tolerance_s=wrong)


def test_a_start_that_is_no_number_is_named_where_a_frame_is_wanted(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set")
    name = "videos/observation.images.front/from_timestamp"
    first = EPISODES.replace("001", "000")
    _of_column(name, first, lambda starts: [[0.0, float("nan")]])(root)
    provider = LeRobotProvider(root)
    with pytest.warns(UserWarning, match=r"not as many in episode 0: the episode has 4 rows, and .* has 7 frames"):
        assert numbers([provider.get_data(row) for row in (0, 3)]) == [0, 3]
    with pytest.raises(FileError, match=r"episode 1, frame 0.* no frame at nan s .* begins at nan s\."):
        provider.get_data(4)


@pytest.mark.parametrize("version", VERSIONS)
def test_episodes_without_rows_are_left_out(tmp_path: Path, version: str) -> None:
    import pyarrow.parquet as pq

    root = write_lerobot(tmp_path / "set", version, cameras=())
    if version == "v2.1":
        _of_lines("episodes", lambda lines: lines.append({"episode_index": 3, "length": 0}))(root)
        none = pq.read_table(root / "data/chunk-000/episode_000000.parquet").slice(0, 0)
        pq.write_table(none, root / "data/chunk-000/episode_000003.parquet")
    else:
        whole = pq.read_table(root / EPISODES).to_pydict()
        of_none = {"episode_index": 3, "length": 0, "dataset_from_index": 12, "dataset_to_index": 12}
        write_parquet(
            root / EPISODES, {key: np.array([*of, of_none.get(key, of[0])]) for key, of in whole.items()}
        )
    provider = LeRobotProvider(root)
    assert provider.episode_numbers == (0, 1, 2)
    windows = Windows(provider, {"action": [0, 1 / FPS]}, unit="s", edges="repeat")
    assert windows.sequence_lengths.tolist() == [*LENGTHS]
    assert windows.get_data(11)["action_is_pad"].tolist() == [False, True]
    assert LeRobotProvider(root, episodes=[1, 3]).episode_numbers == (1,)
    with pytest.raises(FileError, match="There are no episodes with rows"):
        LeRobotProvider(root, episodes=[3])


def test_statistics_that_not_all_episodes_have_are_left_out(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=())

    def change(lines: list[Any]) -> None:
        lines[0]["stats"]["action"]["q01"] = [0, 0, 0]
        del lines[1]["stats"]["observation.state"]["count"]

    _of_lines("episodes_stats", change)(root)
    statistics = LeRobotProvider(root).statistics
    assert {name: [*of] for name, of in statistics.items()} == {"action": ["min", "max", "mean", "std", "count"]}
    assert statistics["action"]["count"].tolist() == [12]


def test_texts_of_tasks_may_have_separators_of_lines(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, "v2.1", cameras=())
    path = root / "meta/tasks.jsonl"
    path.write_text(path.read_text("utf-8").replace("left,", "left,\u2028\x85") + " \n", "utf-8")
    assert LeRobotProvider(root).tasks[1] == "turn left,\u2028\x85 über die Brücke"


def test_statistics_of_pictures_have_their_channels(tmp_path: Path) -> None:
    stats = {FEATURE: {"mean": [[[0.5]]] * 3}, REAR: {"mean": [[[0.25]]]}}
    root = write_lerobot(tmp_path, stats=stats)
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"][FEATURE]["shape"], info["features"][REAR]["shape"] = [3, 64, 96], [64, 96, 1]
    path.write_text(json.dumps(info))
    statistics = LeRobotProvider(root).statistics
    assert [statistics[name]["mean"].shape for name in (FEATURE, REAR)] == [(3, 1, 1), (1, 1, 1)]


VIDEO, TABLE = f"videos/{FEATURE}/chunk-000/file-000.mp4", "data/chunk-000/file-001.parquet"
CUT = "The data set is incomplete, or files of it are of another one: copy it again."
IN_FRONT = (
    f"'{FEATURE}' of episode {{}}: {{}}. Copy the file again, or leave the episode (`episodes`) or the camera "
    "(`fields`) out."
)
FIRST = "0, frame 0, at 0.000 s"


def _without_key_frame(path: Path) -> None:
    """Leave out the first packet, which is the only key frame."""
    import av

    other = path.with_suffix(".other.mp4")
    with av.open(str(path)) as source, av.open(str(other), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(source.streams.video[0])):
            if number and packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    other.rename(path)


def _edited(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda root: (root / name).write_bytes(change((root / name).read_bytes()))


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "unknown codec": (
        _edited(VIDEO, lambda content: content.replace(b"avc1", b"zzzz")),
        IN_FRONT.format(FIRST, "PyAV {pyav} does not know the codec of {video}"),
    ),
    "no key frame": (
        lambda root: _without_key_frame(root / VIDEO),
        IN_FRONT.format(FIRST, "There are no frames in the video {video}: no packet of it is a key frame"),
    ),
    "cut video": (
        _edited(VIDEO, lambda content: content[: len(content) // 2]),
        IN_FRONT.format(
            FIRST,
            "Cannot open {video} as a video: Invalid data found when processing input. Is it a video, and "
            "complete?",
        ),
    ),
    "fewer frames than rows": (
        lambda root: make_video(root / VIDEO, 6, "libx264"),
        IN_FRONT.format(
            "1, frame 0, at 0.000 s",
            "the episode has 3 rows, and the video {video} has 2 frames for them, from 0.160 s on: frames are "
            "missing, and which rows they are of is not known. A `tolerance_s` of 0.02 takes the nearest ones",
        ),
    ),
    "missing video": (
        lambda root: (root / VIDEO).unlink(),
        "{no_video}",
    ),
    "missing table": (lambda root: (root / TABLE).unlink(), "{no_table}"),
    "cut table": (
        _edited(TABLE, lambda content: content[:500]),
        "The file {table} cannot be read: Parquet magic bytes not found in footer. Either the file is corrupted "
        "or this is not a parquet file.",
    ),
    "missing rows": (
        _edited(
            "meta/info.json",
            lambda content: content.replace(b"file-{file_index:03d}.parquet", b"file-000.parquet"),
        ),
        "{first_table} must have 5 rows of the episode 2, as its 'length' says, got 0. " + CUT,
    ),
    "statistics of other fields": (
        lambda root: (root / "meta/stats.json").write_text(json.dumps({"action": {"mean": [1, 2]}})),
        "'mean' of 'action' in {stats} must have the shape (3,), as the feature in 'meta/info.json' has, got "
        "(2,): the statistics are of other data. Compute them anew with LeRobot.",
    ),
    "statistics of no field": (
        lambda root: (root / "meta/stats.json").write_text(json.dumps({"torque": {"mean": [1, 2]}})),
        "{stats} has statistics of 'torque', which is no feature: "
        + f"{FEATURE}, {REAR}, observation.state, action, "
        "timestamp, frame_index, episode_index, index, task_index.",
    ),
    "another layout": (
        _edited("meta/info.json", lambda content: content.replace(b"v3.0", b"v1.6")),
        "{info} must be of a layout of LeRobot that is known, 'codebase_version' v3.0 or v2.1, got 'v1.6'. "
        "Convert the data set with LeRobot.",
    ),
    "unknown task": (
        lambda root: write_parquet(root / "meta/tasks.parquet", {"task_index": [1], "task": ["turn"]}),
        "There is no task 0 in the table of tasks of {root}. " + CUT,
    ),
    "no episodes": (
        lambda root: shutil.rmtree(root / "meta/episodes"),
        "There are no tables of episodes: {episodes} is missing.",
    ),
}


OF_VIDEOS = [fault for fault, (_, expected) in FAULTS.items() if expected.startswith((IN_FRONT[:3], "{no_video}"))]


@spread(
    ("place", "fault", "images"),
    [
        *itertools.product(["folder", "zip", "url"], FAULTS, ["decoded"]),
        *itertools.product(["folder", "url"], OF_VIDEOS, ["encoded"]),
    ],
    20,
)
def test_what_is_wrong_is_named(
    tmp_path: Path, placed: Callable[[Path, str], Any], place: str, fault: str, images: Any
) -> None:
    import av

    folder = write_lerobot(tmp_path / "set")
    damage, expected = FAULTS[fault]
    damage(folder)
    root = placed(folder, place)
    storage = Storage(root)

    def named(name: str) -> str:
        return repr(storage.path(name))

    cannot = {"folder": f"{named(TABLE)} cannot be read: No such file or directory."}
    no_video = (
        f"The video {named(VIDEO)} of {FEATURE!r} in the episode 0 cannot be read: there is none. Copy the data "
        "set again, or leave the episodes (`episodes`) or the camera (`fields`) out."
    )
    on_use = IN_FRONT.format(FIRST, f"The file {named(VIDEO)} cannot be read: there is none")
    names = {
        "video": named(VIDEO),
        "table": named(TABLE),
        "first_table": named(TABLE.replace("001", "000")),
        "stats": named("meta/stats.json"),
        "info": named("meta/info.json"),
        "episodes": named("meta/episodes/chunk-000/file-000.parquet"),
        "root": repr(storage.root),
        "pyav": av.__version__,
        "no_table": cannot.get(place, f"The file {named(TABLE)} cannot be read: there is none."),
        "no_video": on_use if place == "url" else no_video,
    }

    def read() -> None:
        provider = LeRobotProvider(root, storage_options=FAST, images=images)
        for row in range(12):
            provider.get_data(row)
        assert provider.statistics

    with pytest.raises((FileError, VideoError)) as failed:
        read()
    assert str(failed.value) == expected.format(**names).replace("?.", "?")


@pytest.mark.parametrize("place", ["folder", "zip", "url"])
def test_a_video_that_is_changed_after_it_was_indexed_is_refused(
    tmp_path: Path, placed: Callable[[Path, str], Any], place: str
) -> None:
    folder = write_lerobot(tmp_path / "set")
    root = placed(folder, place)
    provider = LeRobotProvider(root, storage_options=FAST)
    assert numbers([provider.get_data(0)]) == [0]
    video = Storage(root).path(VIDEO)
    make_video(folder / VIDEO, 9, "libx264", first_number=50)
    if place == "zip":
        pack(folder, root)
    provider.close()  # an open decoder may have read all of the old one
    with pytest.raises(VideoError) as failed:
        provider.get_data(6)
    message = str(failed.value)
    assert message.startswith(f"'{FEATURE}' of episode 1, frame 2, at 0.080 s: The video '{video}' was changed ")
    assert " after it was indexed" in message
    if place == "zip":
        return  # other members are refused as well: the list of members is that of the old archive
    settings: dict[str, Any] = {"num_workers": 0, "faults": "skip", "output_type": "numpy"}
    with DataLoader(provider, 4, shuffle=False, **settings) as loader:
        assert {int(index) for batch in loader for index in batch["index"]} == {*range(7, 12)}


def test_pictures_of_windows_are_normalized_in_the_graph(tmp_path: Path) -> None:
    provider = LeRobotProvider(write_lerobot(tmp_path), fields=[FEATURE, REAR])
    windows = Windows(provider, {FEATURE: [-1 / FPS, 0], REAR: [0]}, unit="s", edges="repeat")
    steps = [
        ImageMeanStdDevNormalizer(camera, mean=0, std_dev=255, output_layout="FCHW") for camera in (FEATURE, REAR)
    ]
    with DataLoader(windows, 3, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    expected = np.stack([windows.get_data(row)[FEATURE] for row in range(3)]).transpose(0, 1, 4, 2, 3)
    np.testing.assert_allclose(np.stack(batch[FEATURE]), expected / 255, atol=1e-6)
    assert np.stack(batch[REAR]).shape == (3, 1, 3, 64, 96)


def test_a_video_that_is_written_again_is_refused_though_it_was_not_read_before(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path)
    path = next(root.glob("videos/*front/*/file-000.mp4"))
    content = path.read_bytes()
    os.utime(path, ns=(0, 0))
    provider = LeRobotProvider(root)
    path.rename(path.with_suffix(".old"))  # another name is no change of the content
    path.with_suffix(".old").rename(path)
    first = provider.get_data(0)
    in_worker = pickle.dumps(provider)
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"file-000\.mp4' was written again after its data set was opened"):
        pickle.loads(in_worker).get_data(0)
    np.testing.assert_array_equal(LeRobotProvider(root).get_data(0)["action"], first["action"])
