"""Data sets of LeRobot: rows, pictures, subsets and statistics, in both layouts, wherever they are."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import cv2
import numpy as np
import pytest
from driving_support.lerobot import FEATURE, FPS, LENGTHS, REAR, TASKS, pack, statistics_of, write_lerobot
from PIL import Image
from support.file_server import FileServer
from support.laws import each_value, some
from support.optional_packages import has
from support.refusals import assert_refused
from support.shared_data import shared_data  # noqa: F401 (comparisons are not skipped)
from support.videos import draw_number, make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading, VideoDecoder
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.dali_pipeline_framework.video.decoded_clips import decoded_clip
from accvlab.driving_data.datasets import LeRobotProvider
from accvlab.driving_data.viewing import scene_view, show

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("av", reason="PyAV is not installed")
pytestmark = pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")

FAST: dict[str, Any] = {"reading": RemoteReading(attempts=2, first_wait_s=0.001, timeout_s=60)}
VERSIONS = ("v3.0", "v2.1")
LEAVE_OUT = "Copy the file again, or leave the episode (`episodes`) or the camera (`fields`) out."
OF_LAST = f"videos/chunk-000/{FEATURE}/episode_000002.mp4"


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


@each_value(version=VERSIONS, place=["folder", "zip", "url", "url of a zip"])
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
    root = write_lerobot(tmp_path / "set", version)
    provider = LeRobotProvider(root)
    rows = [8, 1, 8, 5]
    loaded = provider.load_fields({("observation.state",): rows, ("task",): [0], (REAR,): rows})
    assert read_numbers(np.stack(loaded[REAR,])) == [108, 101, 108, 105]
    np.testing.assert_array_equal(np.asarray(loaded["observation.state",])[:, 0], rows)
    assert bytes(loaded["task",][0]).decode() == TASKS[0]
    check_provider(provider, start_method="fork", num_samples=3)
    for path in root.rglob("*.mp4"):
        path.unlink()
    assert provider.load_fields({("index",): [11]})["index",] == [11]  # needs no video
    for fields in (["action"], ["observation.state"], ["action", "task"]):  # each has an index of its own
        assert [*LeRobotProvider(root, fields=fields).get_data(9).contained_top_level_field_names] == fields


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


@pytest.mark.parametrize("by", ["mean_std", "min_max"])
def test_numbers_are_normalized_by_the_statistics(tmp_path: Path, by: Any) -> None:
    constant = {"mean": [3], "std": [0], "min": [3], "max": [3]}
    root = write_lerobot(tmp_path, columns={"gear": np.full(12, 3.0)}, stats={"gear": constant}, cameras=())
    provider = LeRobotProvider(root)
    windows = Windows(provider, {"action": [0, 1 / FPS]}, unit="s", edges="repeat")
    steps = [provider.normalizer(name, by) for name in ("action", "observation.state", "gear")]
    with DataLoader(windows, 12, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    assert not batch["gear"].any()
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
    provider = LeRobotProvider(write_lerobot(tmp_path, columns={"gain": np.arange(12.0)}, cameras=()))
    words = "`field` must be a field of numbers, got 'acton'. Did you mean"
    assert_refused(lambda: provider.normalizer("acton"), words)
    words = "There are no statistics mean, std of 'gain'. There are those of: "
    assert_refused(lambda: provider.normalizer("gain"), words)


def test_statistics_are_of_all_rows(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "v2", "v2.1", cameras=())
    path = root / "meta/episodes_stats.jsonl"
    path.write_text("".join(path.read_text().splitlines(True)[:2]))
    words = "statistics of all episodes, and has none of 2"
    assert_refused(lambda: LeRobotProvider(root).statistics, words, FileError)
    stats = {"action": {"mean": [1, 2, 3], "std": [1, 1, 1], "count": [7]}}
    few = LeRobotProvider(write_lerobot(tmp_path / "v3", cameras=(), total_frames=12, stats=stats))
    with pytest.warns(UserWarning, match="'action' .* are of 7 rows, and the data set has 12"):
        few.normalizer("action")


# --- how much is read ---------------------------------------------------------------------------------------


@some(
    ("version", "is_packed", "images"),
    [*itertools.product(VERSIONS, [False, True], ["decoded"]), ("v3.0", False, "encoded")],
    {0, 3, 4},
)
def test_a_remote_window_takes_one_request_per_camera(
    tmp_path: Path, version: str, is_packed: bool, images: Any
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
        methods = [method for method, _ in server.requests]
        assert "HEAD" not in methods  # the versions of the videos were requested a moment before
        # The start of these videos of 0.3 MB is read again; that of larger ones is kept with their indices.
        assert methods.count("GET") <= (6 if version == "v2.1" else 10)
        assert server.num_bytes < 6 * (4 * 40_000 + (1 << 17))


# --- encoded videos ---------------------------------------------------------------------------------------


def test_windows_of_encoded_videos_are_clips(tmp_path: Path) -> None:
    options = {"preset": "ultrafast", "x264-params": "keyint=4:bframes=0:scenecut=0"}
    provider = LeRobotProvider(write_lerobot(tmp_path, options=options), images="encoded")
    windows = Windows(provider, {REAR: [-2 / FPS, 0, 1 / FPS], "action": [0, 0.04]}, unit="s", edges="repeat")
    sample = windows.get_data(5)  # rows 4, 5 and 6 of an episode of rows 4 to 6: the first is repeated
    assert sample[f"{REAR}_to_decode"].tolist() == [0, 1, 2]
    assert sample[f"{REAR}_is_pad"].tolist() == [True, False, False]
    assert (sample[FEATURE].ndim, sample[f"{FEATURE}_to_decode"]) == (1, 1)  # of key frame 4 the next
    assert provider.field_names[:4] == (FEATURE, f"{FEATURE}_to_decode", REAR, f"{REAR}_to_decode")
    assert provider.sample_data_structure.format.at((REAR,)).content.codecs == ("h264 yuv420p",)
    check_provider(provider, start_method="fork", num_samples=3)
    steps = [VideoDecoder(name) for name in (FEATURE, REAR)]
    with DataLoader(windows, 2, shuffle=False, steps=steps, num_workers=0) as loader:
        batches = [*loader]
    rear = np.concatenate([np.asarray(batch[REAR]) for batch in batches])
    assert read_numbers(np.concatenate([np.asarray(batch[FEATURE]) for batch in batches])) == [*range(12)]
    firsts = np.repeat([0, 4, 7], [4, 3, 5])
    lasts = np.repeat([3, 6, 11], [4, 3, 5])
    rows = np.clip(np.arange(12)[:, None] + [-2, 0, 1], firsts[:, None], lasts[:, None])
    assert [read_numbers(clip) for clip in rear] == (100 + rows).tolist()


def test_a_view_of_a_window_names_what_is_padded(tmp_path: Path) -> None:
    past = [-2 / FPS, -1 / FPS, 0]
    windows = Windows(
        LeRobotProvider(write_lerobot(tmp_path)), {FEATURE: past, REAR: past}, unit="s", edges="repeat"
    )
    views = [scene_view(windows.get_data(5), 0, frame=frame) for frame in range(3)]
    assert views[0].title == f"episode 1   frame 1   {TASKS[1]}"
    assert [view.cameras[1].name for view in views] == ["rear  padded", "rear", "rear"]
    assert [read_numbers(view.cameras[1].image[None]) for view in views] == [[104], [104], [105]]


# --- what is wrong ----------------------------------------------------------------------------------------

VIDEO, TABLE = f"videos/{FEATURE}/chunk-000/file-000.mp4", "data/chunk-000/file-001.parquet"
EPISODES, ROWS = "meta/episodes/chunk-000/file-001.parquet", "data/chunk-000/file-000.parquet"
FIRST_EPISODES = EPISODES.replace("001", "000")
OF_VIDEO = f"videos/{FEATURE}/from_timestamp"


def _of_info(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """What changes ``info.json``."""

    def edit(root: Path) -> None:
        info = json.loads((root / "meta/info.json").read_text())
        change(info)
        (root / "meta/info.json").write_text(json.dumps(info))

    return edit


def _of_feature(name: str, **values: Any) -> Callable[[Path], None]:
    """What changes a feature, or adds one."""
    return _of_info(lambda info: info["features"].setdefault(name, {}).update(values))


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
        table = pq.read_table(root / file)
        place = table.schema.get_field_index(name)
        pq.write_table(table.set_column(place, name, change(table[name])), root / file)

    return edit


def _first_empty(column: Any) -> Any:
    return pa.array([None, *column.to_pylist()[1:]], column.type)


def _cut(name: str) -> Callable[[Path], Any]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:500])


@attrs.frozen
class Case:
    """What is refused when a data set is opened or read, and what still can be opened.

    Attributes:
        damage: What changes the data set.
        version: Of its layout.
        written: How it is written.
        still: Settings with which it can be opened; None for none.
        rows: How many rows there are then.
        error: Class of the error.
    """

    damage: Callable[[Path], Any] = lambda root: None
    version: str = "v3.0"
    written: Mapping[str, Any] = MappingProxyType({})
    still: dict[str, Any] | None = None
    rows: int = 12
    error: type[Exception] = FileError


TIMES_S = np.concatenate([np.arange(length) / FPS for length in LENGTHS]).astype(np.float32)

CUT = "The data set is incomplete, or files of it are of another one: copy it again."
TOP, DEPTH_MAP = "observation.images.top", {"dtype": "image", "shape": [64, 96, 3], "info": {"is_depth_map": True}}
TOTALS = {"total_episodes": 3, "total_frames": 12}
BOTH = {"cameras": (FEATURE, REAR)}
CASES = {  # by the words of the message
    "'sound' of dtype 'audio'...'observation.images.top' of dtype 'image' is a depth map...`fields`": Case(
        _of_info(lambda info: info["features"].update(sound={"dtype": "audio", "shape": [1]}, **{TOP: DEPTH_MAP})),
        still={"fields": ["action"]},
        error=SettingError,
    ),
    **{
        f"has no column '{name}'": Case(written={"left_out": [name], "cameras": [FEATURE]})
        for name in ("timestamp", "length", OF_VIDEO, "dataset_from_index")
    },
    "Line 1 of 'ROOT/meta/episodes.jsonl' must have whole numbers of at least 0 for 'episode_index', 'length',": (
        Case(_of_lines("episodes", lambda lines: lines[0].update(length=None)), "v2.1")
    ),
    "'video_path' of 'ROOT/meta/info.json' must be a name with no places but {video_key}, ...got None.": Case(
        _of_info(lambda info: info.update(video_path=None)), written=BOTH
    ),
    "each episode once, got 1 several times": Case(_of_column("episode_index", EPISODES, lambda _: [[1]])),
    f"The column 'action' of 'ROOT/{ROWS}' must hold float32 of the shape (3,) in each row, as its data set says, "
    "got list<...: double> of other sizes, or with empty cells. Name the fields that are wanted ": Case(
        _of_column("action", ROWS, lambda column: pa.array([[0.0] * 2, [0.0] * 4, *column.to_pylist()[2:]])),
        still={"fields": ["observation.state"]},
    ),
    "or with empty cells": Case(_of_column("action", ROWS, _first_empty), still={"episodes": [1]}, rows=3),
    "no 'length' of the episode 0": Case(
        _of_column("length", FIRST_EPISODES, _first_empty), still={"episodes": [1]}, rows=3
    ),
    **{
        f"'ROOT/meta/{table}' must have 3 episodes and 12 frames, as 'ROOT/meta/info.json' says, got 2 episodes "
        "and 7 frames. Episodes are missing: 2. Copy the data set": Case(
            damage, version, TOTALS, still={"episodes": [1, 0]}, rows=7
        )
        for version, table, damage in (
            ("v3.0", "episodes", lambda root: (root / EPISODES).unlink()),
            ("v2.1", "episodes.jsonl", _of_lines("episodes", lambda lines: lines.pop())),
        )
    },
    "got 3 episodes and 12 frames. A 'length' is wrong. Copy": Case(written={**TOTALS, "total_frames": 13}),
    "'total_frames' of ...must be a whole number, got True": Case(written={"total_frames": True}),
    "'timestamp' ...must ascend, got 0.04 and then nan seconds (episode 1, frame 2, at 0.080 s)": Case(
        written={"columns": {"timestamp": np.where(np.arange(12) == 6, np.float32(np.nan), TIMES_S)}},
        still={"fields": ["action"]},
    ),
    f"must have each video and 'from_timestamp' once, got ('{VIDEO}', 0.0)": Case(
        _of_column(OF_VIDEO, FIRST_EPISODES, lambda _: [[0.0, 0.0]]), written=BOTH, still={"fields": [REAR]}
    ),
    f"ROOT/{ROWS}' must have 2 rows of the episode 1, as its 'length' says, got 3. {CUT}": Case(
        _of_column("length", FIRST_EPISODES, lambda _: [[4, 2]]), still={"episodes": [0, 2]}, rows=9
    ),
    f"'index' must be 5 in row 1 of the episode 1 in 'ROOT/{ROWS}', got 9. {CUT}": Case(
        _of_column("index", ROWS, lambda _: [[0, 1, 2, 3, 4, 9, 6]]), still={"episodes": [0]}, rows=4
    ),
    **{
        f"The video 'ROOT/videos/...' of '{REAR}' in the episode 0 and {count} other videos cannot be read: there "
        "is none. Copy the data set again, or leave the episodes (`episodes`) or the camera (`fields`)": Case(
            lambda root: [path.unlink() for path in root.rglob("*.mp4") if REAR in str(path)],
            version,
            BOTH,
            still={"fields": [FEATURE]},
            error=FileNotFoundError,
        )
        for version, count in (("v3.0", 1), ("v2.1", 2))
    },
    f"There is no task 1 in the table of tasks of 'ROOT'. {CUT}": Case(
        _of_lines("tasks", lambda lines: lines.pop()), "v2.1", still={"fields": ["action", "task_index"]}
    ),
    "There are no tables of episodes: ": Case(lambda root: shutil.rmtree(root / "meta/episodes")),
    f"'{FEATURE}' of episode 0, frame 0, at 0.000 s: Cannot open 'ROOT/{VIDEO}' as a video: Invalid data found "
    f"when processing input. Is it a video, and complete? {LEAVE_OUT}": Case(
        _cut(VIDEO), written=BOTH, error=VideoError
    ),
    f"The file 'ROOT/{TABLE}' cannot be read: Parquet magic": Case(_cut(TABLE)),
    "The file 'ROOT/meta/info.json' cannot be read: ": Case(_cut("meta/info.json")),
    "must be v3.0 or v2.1 (LeRobot conv": Case(_of_info(lambda info: info.update(codebase_version="v1.6"))),
    "'mean' of 'action' in 'ROOT/meta/stats.json' must be numbers of the shape (3,), as the feature in 'meta/info."
    "json' has, got [1, 2]. Compute the statistics anew with LeRobot.": Case(
        written={"stats": {"action": {"mean": [1, 2]}}}
    ),
}


SETTINGS: dict[str, dict[str, Any]] = {
    "`fields` must be fields of the data set, got 'actions'. Did you mean 'action'?": {"fields": ["actions"]},
    "`fields` must be a list of names, got one: write ['action'].": {"fields": "action"},
    "`episodes` must be episodes of the data set, which has 3 episodes, numbered 0 to 2, got 3.": {
        "episodes": [1, 3]
    },
    "`episodes` must be numbers of episodes, or None for all, got [].": {"episodes": []},
    "`tolerance_s` must be ...got 0": {"tolerance_s": 0},
    "`colors` must be one of 'stream', 'bt601', 'dali', got 'bt709'": {"colors": "bt709"},
}


def test_settings_that_are_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path, cameras=[FEATURE])
    for words, settings in SETTINGS.items():
        assert_refused(lambda given=settings: LeRobotProvider(root, **given), words)  # type: ignore[misc]
    images = [
        LeRobotProvider(root, **given).get_data(0)[FEATURE]
        for given in ({}, {"colors": "bt601"}, {"colors": "dali"})
    ]
    np.testing.assert_array_equal(images[0], images[1])
    assert (images[0] != images[2]).any()


@pytest.mark.parametrize("words", CASES)
def test_what_is_wrong_is_named(tmp_path: Path, words: str) -> None:
    case, root = CASES[words], tmp_path / "set"
    write_lerobot(root, case.version, **{"cameras": (), **case.written})
    case.damage(root)

    def read() -> None:
        provider = LeRobotProvider(root)
        for row in range(12):
            provider.get_data(row)
        assert provider.statistics

    assert_refused(read, words.replace("ROOT", str(root)), case.error)
    if case.still is not None:
        assert len(LeRobotProvider(root, **case.still)) == case.rows


def test_what_is_a_warning(tmp_path: Path) -> None:
    for version in VERSIONS:
        more = write_lerobot(tmp_path / version, version, cameras=(), total_episodes=2, total_frames=7)
        words = r"have 2 episodes and 7 frames, .* got 3 episodes and 12 frames\. All"
        with pytest.warns(UserWarning, match=words):
            assert len(LeRobotProvider(more)) == 12
    root = write_lerobot(tmp_path / "rate", fps=30)
    with pytest.warns(UserWarning, match="usually 0.0400 s apart by their 'timestamp', 0.0333 s by the fps 30 of"):
        provider = LeRobotProvider(root)
    assert numbers([provider.get_data(row) for row in (3, 6, 11)]) == [3, 6, 11]
    root = write_lerobot(tmp_path / "size", cameras=[FEATURE], total_frames=12.0)
    for shape in ([96, 64, 3], [3, 32, 48]):
        _of_feature(FEATURE, shape=shape)(root)
        provider = LeRobotProvider(root)
        words = rf"'{FEATURE}' has the shape \({', '.join(map(str, shape))}\) in .* are 64 x 96 pixels"
        with pytest.warns(UserWarning, match=words) as warned:
            assert numbers([provider.get_data(row) for row in (0, 5)]) == [0, 5]
        assert len(warned) == 1


def test_a_frame_of_the_next_episode_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set")
    times = np.array([0, 1, 2, 4, 0, 1, 2], np.float32) / np.float32(FPS)  # there are four frames, from 0 to 3
    _of_column("timestamp", ROWS, lambda column: [times])(root)
    provider = LeRobotProvider(root)
    assert numbers([provider.get_data(row) for row in (0, 1, 2, 4, 5, 6)]) == [0, 1, 2, 4, 5, 6]
    words = "episode 0, frame 3...no frame at 0.160 s ...the episode from 0.000 to 0.160 s: the nearest, frame 4"
    assert_refused(lambda: provider.get_data(3), words, FileError)


# --- what is not wanted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_are_not_wanted_are_not_read(tmp_path: Path, version: str) -> None:
    columns = {"note": np.array(["a"] * 12), "gains": np.arange(24.0).reshape(12, 2)}
    root = write_lerobot(tmp_path, version, columns=columns)
    _of_feature("gone", dtype="float32", shape=[3])(root)
    _of_feature("odd", dtype="float32", shape=None)(root)
    _of_feature("observation.images.gone", dtype="video", shape=[64, 96, 3])(root)
    for path in (root / "data").rglob("*.parquet"):
        for name in ("note", "gains", "task_index"):
            _of_column(name, str(path), _first_empty)(root)
    (root / ("meta/tasks.jsonl" if version == "v2.1" else "meta/tasks.parquet")).unlink()
    provider = LeRobotProvider(root, fields=["action", FEATURE])
    assert provider.get_data(7)["action"].tolist() == [0, 0, 2]
    assert numbers([provider.get_data(7)]) == [7]
    advice = "Name the fields that are wanted (`fields`): others are not read."
    for field, words in (
        ("note", f"The column 'note' of ...has 1 cells without a value. {advice}"),
        ("gains", f"The column 'gains' of ...of other sizes, or with empty cells. {advice}"),
        ("gone", f"has no column 'gone'. ... {advice}"),
        ("odd", "'shape' of the feature 'odd' in"),
        ("observation.images.gone", "observation.images.gone"),
        ("task", "meta/tasks"),
    ):
        assert_refused(lambda field=field: LeRobotProvider(root, fields=[field]), words, FileError)  # type: ignore[misc]


# --- depth and colors ---------------------------------------------------------------------------------------


def _add_depth(root: Path, *, pixel_format: str = "gray12le", **info: Any) -> None:
    """Make the rear camera one of depth, whose codes are 100 times the number of the row, and its place."""
    import av

    _of_feature(REAR, shape=[64, 96, 1], **info)(root)
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


@pytest.mark.parametrize(
    ("images", "place", "key"),
    [
        ("decoded", "info", "is_depth_map"),
        ("encoded", "video_info", "video.is_depth_map"),
        ("encoded", None, "video.is_depth_map"),
    ],
)
def test_depth_is_delivered_as_its_codes(tmp_path: Path, images: Any, place: str | None, key: str) -> None:
    root = write_lerobot(tmp_path)
    limits = {"video.depth_min": 0.01, "depth_max": 10.0}
    _add_depth(root, **({place: {key: True, **limits}} if place else {key: True, "info": limits}))
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
    steps = [VideoDecoder(FEATURE)] if images == "encoded" else []
    with DataLoader(windows, 3, shuffle=False, steps=steps, output_type="numpy", num_workers=0) as loader:
        batch = next(iter(loader))
    assert np.stack(batch[REAR])[:, :, 3, 0, 0].tolist() == [[0, 0], [0, 100], [100, 200]]
    if images == "decoded":
        assert show(provider.get_data(3), 0).pixels().shape[2] == 3


@pytest.mark.parametrize("ending", [".png", ".tiff", ".pgm", ".jp2"])
def test_images_of_16_bits_are_refused(tmp_path: Path, ending: str) -> None:
    content = bytes(cv2.imencode(ending, np.full((64, 96), 700, np.uint16))[1])
    root = write_lerobot(tmp_path / "data", cameras=(), images=[content] * 12)
    assert_refused(lambda: LeRobotProvider(root), "images.top' are gray of 16 bits", FileError)
    other = bytes(cv2.imencode(ending, np.full((64, 96), 7, np.uint8))[1])
    LeRobotProvider(write_lerobot(tmp_path / "other", cameras=(), images=[other] * 12))


def test_depth_that_is_not_as_declared_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path)
    for pixel_format, is_depth, words in (
        ("gray12le", False, "its pixels are gray of 12 bits"),
        ("yuv420p", True, "codes of depth must be gray of at most 16 bits, but ... yuv420p."),
    ):
        _add_depth(root, pixel_format=pixel_format, info={"is_depth_map": is_depth})
        provider = LeRobotProvider(root)
        assert_refused(lambda: provider.get_data(0), f"'{REAR}' of episode 0, frame 0, ...{words}", VideoError)  # noqa: B023
    assert numbers([LeRobotProvider(root, fields=[FEATURE]).get_data(0)]) == [0]


# --- rows and frames --------------------------------------------------------------------------------------


@each_value(version=VERSIONS, images=["decoded", "encoded"])
def test_a_video_of_fewer_frames_than_rows_is_refused_as_a_whole(
    tmp_path: Path, version: str, images: Any
) -> None:
    root = write_lerobot(tmp_path / "set", version, cameras=[FEATURE])
    name, frames, start = (VIDEO, range(6), "0.160") if version == "v3.0" else (OF_LAST, range(4, 6), "0.000")
    video = make_video(root / name.replace("2.mp4", "1.mp4"), len(frames), "libx264", first_number=frames[0])
    provider = LeRobotProvider(root, images=images)
    for row in (4, 5, 6):  # frame 1 may be the one that is missing, and all others at constant rate
        with pytest.raises(FileError) as failed:
            provider.get_data(row)
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
        make_video(root / OF_LAST.replace("2.mp4", f"{episode}.mp4"), length + 2, "libx264", first_number=50)
    provider = LeRobotProvider(root)
    with pytest.warns(UserWarning, match="not as many in episode 0") as warned:
        assert numbers([provider.get_data(row) for row in (0, 3, 7, 11)]) == [50, 53, 50, 54]
    assert [str(each.message) for each in warned] == [
        f"Rows and frames are not as many in episode 0: the episode has 4 rows, and the video "
        f"'{root}/videos/chunk-000/{FEATURE}/episode_000000.mp4' has 6 frames for them, from 0.000 s on. Frames "
        "are taken by their times. (Other episodes are not named.)"
    ]


@each_value(rate=[24, 26], images=["decoded", "encoded"])
def test_frames_that_drift_are_refused(tmp_path: Path, rate: int, images: Any) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=[FEATURE])
    make_video(root / OF_LAST, 5, "libx264", first_number=7, rate=rate)
    provider = LeRobotProvider(root, images=images)
    provider.get_data(7)
    for row in (8, 11):
        wanted_s, found_s = (row - 7) / FPS, (row - 7) / rate
        words = (
            f"'{FEATURE}' of episode 2, frame {row - 7}, at {wanted_s:.3f} s: there is no frame at "
            f"{wanted_s:.3f} s of the video '{root / OF_LAST}', which has 5 frames from 0.000 to {4 / rate:.3f} "
            f"s, and there the episode from 0.000 to inf s: the nearest, frame {row - 7}, is at {found_s:.4f} s, "
            f"{abs(wanted_s - found_s):.4f} s away, and `tolerance_s` is 0.0001. {LEAVE_OUT}"
        )
        assert_refused(lambda row=row: provider.get_data(row), words, FileError)  # type: ignore[misc]
    tolerant = LeRobotProvider(root, tolerance_s=0.01)
    assert numbers([tolerant.get_data(row) for row in range(7, 12)]) == [*range(7, 12)]


@pytest.mark.parametrize(("shift_s", "is_near"), [(9e-5, True), (-1.2e-4, False)])
def test_frames_are_as_near_as_lerobot_wants_them(tmp_path: Path, shift_s: float, is_near: bool) -> None:
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=[FEATURE])
    times = (np.arange(5) / FPS + shift_s).astype(np.float32)
    _of_column("timestamp", "data/chunk-000/episode_000002.parquet", lambda column: [times])(root)
    provider = LeRobotProvider(root)
    if is_near:
        assert numbers([provider.get_data(row) for row in (7, 11)]) == [7, 11]
    else:
        words = "0.0001 s away, and `tolerance_s` is 0.0001"
        assert_refused(lambda: provider.get_data(9), words, FileError)


@pytest.mark.parametrize("version", VERSIONS)
def test_episodes_without_rows_are_left_out(tmp_path: Path, version: str) -> None:
    root = write_lerobot(tmp_path / "set", version, cameras=())
    if version == "v2.1":
        _of_lines("episodes", lambda lines: lines.append({"episode_index": 3, "length": 0}))(root)
        none = pq.read_table(root / "data/chunk-000/episode_000000.parquet").slice(0, 0)
        pq.write_table(none, root / "data/chunk-000/episode_000003.parquet")
    else:
        whole = pq.read_table(root / EPISODES)
        of_none = {"episode_index": 3, "length": 0, "dataset_from_index": 12, "dataset_to_index": 12}
        row = {name: [of_none.get(name, of[0])] for name, of in whole.to_pydict().items()}
        pq.write_table(pa.concat_tables([whole, pa.table(row, whole.schema)]), root / EPISODES)
    assert LeRobotProvider(root).episode_numbers == (0, 1, 2)
    assert LeRobotProvider(root, episodes=[1, 3]).episode_numbers == (1,)
    words = "There are no episodes with rows"
    assert_refused(lambda: LeRobotProvider(root, episodes=[3]), words, FileError)


def test_lines_of_v21(tmp_path: Path) -> None:
    """Statistics that not all episodes have are left out; texts may have separators of lines."""
    root = write_lerobot(tmp_path / "set", "v2.1", cameras=())

    def change(lines: list[Any]) -> None:
        lines[0]["stats"]["action"]["q01"] = [0, 0, 0]
        del lines[1]["stats"]["observation.state"]["count"]

    _of_lines("episodes_stats", change)(root)
    path = root / "meta/tasks.jsonl"
    path.write_text(path.read_text("utf-8").replace("left,", "left,\u2028\x85") + " \n", "utf-8")
    provider = LeRobotProvider(root)
    assert {name: [*of] for name, of in provider.statistics.items()} == {
        "action": ["min", "max", "mean", "std", "count"]
    }
    assert provider.statistics["action"]["count"].tolist() == [12]
    assert provider.tasks[1] == "turn left,\u2028\x85 über die Brücke"


def test_a_video_that_is_written_again_is_refused_though_it_was_not_read_before(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path) / VIDEO
    content = path.read_bytes()
    os.utime(path, ns=(0, 0))
    provider = LeRobotProvider(tmp_path)
    path.rename(path.with_suffix(".old"))  # another name is no change of the content
    path.with_suffix(".old").rename(path)
    assert numbers([provider.get_data(0)]) == [0]
    in_worker = pickle.dumps(provider)
    path.write_bytes(content)
    words = "file-000.mp4' was written again after its data set was opened"
    assert_refused(lambda: pickle.loads(in_worker).get_data(0), words, VideoError)
    assert numbers([LeRobotProvider(tmp_path).get_data(0)]) == [0]
