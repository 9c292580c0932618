"""`FileDataProvider`: files as samples of pipelines."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from PIL import Image
from support.loaders import make_loader

from accvlab.dali_pipeline_framework.errors import DuplicateFieldError, FileError, SettingError, SourceError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.providers import FileDataProvider, FileTable
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler, WeightedSampler, class_balanced_weights


def image_bytes(seed: int, size: tuple[int, int] = (40, 30), kind: str = "JPEG", mode: str = "RGB", **save: Any):
    """A smooth image of a few colours, encoded."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 4), dtype=np.uint8)
    image = Image.fromarray(small, "RGBA").resize(size, Image.Resampling.BICUBIC).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind, **save)
    return buffer.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nine images of three labels, of different sizes."""
    for i in range(9):
        path = tmp_path / "root" / ("cat", "dog", "ox")[i % 3 if i < 7 else 0] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(i, (40 + 8 * (i % 2), 30)))
    return tmp_path / "root"


def native_decoded(root: Path) -> list[tuple[np.ndarray, list[int]]]:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def decoding() -> Any:
        contents, labels = fn.readers.file(name="reader", file_root=str(root))
        return fn.decoders.image(contents, device="cpu", output_type=types.RGB), labels

    pipeline = decoding()
    pipeline.build()
    runs = [pipeline.run() for _ in range(pipeline.epoch_size("reader"))]
    return [(images.at(0), labels.at(0).tolist()) for images, labels in runs]


class TestSamples:
    def test_fields(self, root: Path) -> None:
        provider = FileDataProvider(root)
        assert str(provider.sample_data_structure.format) == str(provider.get_data(0).format)
        sample = provider.get_data(4)
        assert list(sample) == ["data", "label", "path", "index"]
        assert sample["data"].tobytes() == (root / "cat" / "8.jpg").read_bytes()
        assert (sample["label"].dtype, sample["label"].tolist()) == (np.int32, [0])
        assert sample["path"] == str(root / "cat" / "8.jpg") == provider.path(4)
        assert (sample["index"].dtype, sample["index"].shape, int(sample["index"])) == (np.int64, (), 4)

    def test_fields_can_be_renamed_and_left_out(self, root: Path) -> None:
        provider = FileDataProvider(root, data_name=None, label_name="y", path_name=None, index_name=7)
        assert list(provider.get_data(0)) == ["y", 7]
        (root / "cat" / "0.jpg").unlink()
        assert provider.get_data(0)["y"].tolist() == [0]  # files are not opened
        with pytest.raises(DuplicateFieldError):
            FileDataProvider(root, data_name="x", label_name="x")
        with pytest.raises(SettingError, match="at least one field"):
            FileDataProvider(root, data_name=None, label_name=None, path_name=None, index_name=None)

    def test_what_is_known_of_all_files(self, root: Path) -> None:
        (root / "bee").mkdir()
        provider = FileDataProvider(root)
        assert provider.labels.dtype == np.int32
        assert provider.labels.tolist() == [1, 1, 1, 1, 1, 2, 2, 3, 3]
        assert provider.class_names == ("bee", "cat", "dog", "ox")
        assert provider.num_classes == 4
        assert list(provider.file_table)[5:7] == ["dog/1.jpg", "dog/4.jpg"]
        assert repr(provider) == f"FileDataProvider({str(root)!r}, 9 files)"
        by_name = FileDataProvider(root, files=["cat/0.jpg"], labels=[5])
        assert (by_name.class_names, by_name.num_classes, by_name.labels.tolist()) == (None, None, [5])

    def test_path_of_any_bytes(self, tmp_path: Path) -> None:
        path = os.fsencode(tmp_path) + b"/\xff\xc3\xa4.jpg"
        with open(path, "wb") as file:
            file.write(b"abc")
        provider = FileDataProvider(files=[os.fsdecode(path)])
        assert provider.get_data(0)["path"] == f"{tmp_path}/\\xffä.jpg"
        assert os.fsencode(provider.path(0)) == path

    def test_very_long_paths(self, tmp_path: Path) -> None:
        folder = tmp_path
        for _ in range(6):
            folder = folder / ("ä" * 120)
        folder.mkdir(parents=True)
        (folder / f"{'x' * 250}.jpg").write_bytes(b"abc")
        assert FileDataProvider(folder.parent).get_data(0)["data"].tobytes() == b"abc"
        with pytest.raises(FileError, match="File name too long"):
            FileDataProvider(files=["x/" * 3000]).get_data(0)


class TestBadFiles:
    def test_are_named_with_their_sample(self, root: Path) -> None:
        provider = FileDataProvider(root)
        (root / "dog" / "1.jpg").unlink()
        (root / "dog" / "4.jpg").write_bytes(b"")
        with pytest.raises(
            FileNotFoundError, match=r"^Sample 5: The file '.*/dog/1.jpg' cannot be read: there is none"
        ):
            provider.get_data(5)
        with pytest.raises(FileError, match=r"^Sample 6: The file '.*/dog/4.jpg' is empty"):
            provider.get_data(6)
        for index in (-1, 9):
            with pytest.raises(SettingError, match=rf"`sample_index` must be in \[0, 8\], got {index}"):
                provider.get_data(index)
            with pytest.raises(SettingError):
                provider.path(index)

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_a_vanished_file_ends_the_loop_with_its_name(self, root: Path, num_workers: int) -> None:
        loader = make_loader(
            SamplerInputCallable(FileDataProvider(root), ShuffledSampler(9, shuffle=False)),
            2,
            num_workers=num_workers,
            ragged="list",
        )
        (root / "dog" / "1.jpg").unlink()
        batches = []
        with loader, pytest.raises(SourceError, match=r"dog/1.jpg' cannot be read: there is none") as caught:
            batches.extend(loader)
        assert caught.value.sample_index == 5
        assert len(batches) == 2


class TestPipelines:
    @pytest.mark.parametrize("cached", [False, True])
    def test_workers_deliver_what_the_native_reader_delivers(
        self, root: Path, tmp_path: Path, cached: bool
    ) -> None:
        provider = FileDataProvider(root, index_cache=tmp_path / "cache" if cached else None)
        loader = make_loader(
            SamplerInputCallable(provider, ShuffledSampler(9, shuffle=False, last_batch="partial")),
            2,
            steps=[ImageDecoder("data", use_device_mixed=False)],
            num_workers=2,
            start_method="forkserver",
            ragged={"data": "list"},
        )
        delivered: list[tuple[np.ndarray, list[int], str, int]] = []
        with loader:
            for batch in loader:
                delivered += zip(
                    batch["data"], batch["label"].tolist(), batch["path"], batch["index"], strict=True
                )
        expected = native_decoded(root)
        assert [label for _, label, _, _ in delivered] == [label for _, label in expected]
        assert [int(index) for _, _, _, index in delivered] == list(range(9))
        assert [path for _, _, path, _ in delivered] == [provider.path(i) for i in range(9)]
        for (image, *_), (of_native, _) in zip(delivered, expected, strict=True):
            assert np.array_equal(image, of_native)

    def test_shuffled_shards(self, root: Path) -> None:
        seen = []
        for shard in range(2):
            source = ShuffledShardedInputCallable(
                FileDataProvider(root, data_name=None), 2, num_shards=2, shard_id=shard, shuffle=True
            )
            with make_loader(source) as loader:
                seen += [index for batch in loader for index in batch["index"].tolist()]
        assert len(seen) == len(set(seen)) == 8

    def test_labels_give_weights(self, root: Path) -> None:
        provider = FileDataProvider(root, data_name=None)
        weights = class_balanced_weights(provider.labels)
        assert [weights[provider.labels == label].sum() for label in range(3)] == pytest.approx([1 / 3] * 3)
        source = SamplerInputCallable(provider, WeightedSampler(weights, num_per_epoch=600, seed=1))
        with make_loader(source, 100) as loader:
            labels = np.concatenate([batch["label"] for batch in loader])
        assert labels.shape == (600, 1)
        assert np.bincount(labels[:, 0]).min() > 150

    @pytest.mark.parametrize("kind", ["zip", "file"])
    def test_remote_roots_in_workers(self, root: Path, tmp_path: Path, kind: str) -> None:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for path in root.rglob("*.jpg"):
                archive.write(path, f"in/{path.relative_to(root)}")
        url = {"zip": f"zip://in::{tmp_path}/all.zip", "file": f"file://{root}"}[kind]
        remote, local = FileDataProvider(url), FileDataProvider(root)
        assert remote.file_table == local.file_table
        source = SamplerInputCallable(remote, ShuffledSampler(9, shuffle=False, last_batch="partial"))
        loader = make_loader(source, 3, num_workers=2, start_method="forkserver", ragged="list")
        with loader:
            delivered = [data for batch in loader for data in batch["data"]]
        for i, data in enumerate(delivered):
            assert np.array_equal(data, local.get_data(i)["data"])
        assert remote.get_data(0)["path"].endswith("cat/0.jpg" if kind == "file" else "all.zip")

    def test_descriptions_show_no_passwords(self) -> None:
        provider = FileDataProvider(files=["http://me:hidden@host/a.jpg"])
        assert provider.describe_sample(0) == "http://***@host/a.jpg"

    def test_a_root_in_the_memory_of_this_process(self, root: Path) -> None:
        memory = fsspec.filesystem("memory")
        for path in root.rglob("*.jpg"):
            memory.pipe(f"/train/{path.relative_to(root)}", path.read_bytes())
        memory.pipe("/train/list.txt", b"cat/0.jpg 4\ndog/1.jpg 3\n")
        try:
            provider = FileDataProvider("memory://train", path_name=None)
            source = SamplerInputCallable(provider, ShuffledSampler(9, shuffle=False, last_batch="partial"))
            with make_loader(source, 3, steps=[ImageDecoder("data", False)], ragged="list") as loader:
                images = [image for batch in loader for image in batch["data"]]
            assert all(map(np.array_equal, images, [image for image, _ in native_decoded(root)]))
            listed = FileDataProvider(file_list="memory://train/list.txt")
            assert listed.labels.tolist() == [4, 3]
            assert listed.path(0) == "memory://train/cat/0.jpg"
            assert np.array_equal(listed.get_data(1)["data"], provider.get_data(5)["data"])
            urls = FileDataProvider(files=["memory://train/dog/1.jpg", str(root / "cat/0.jpg")])
            assert [len(urls.get_data(i)["data"]) for i in (0, 1)] == [
                (root / name).stat().st_size for name in ("dog/1.jpg", "cat/0.jpg")
            ]
        finally:
            memory.store.clear()


def age(root: Path) -> None:
    """Let all folders have been changed a while ago, as they usually are."""
    for folder, _, _ in os.walk(root):
        os.utime(folder, (1e9, 1e9))


def entry(cache: Path) -> Path:
    """The only index of a cache."""
    (folder,) = cache.iterdir()
    return folder


class TestCache:
    def test_is_used_until_a_folder_changes(self, root: Path, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        age(root)
        first = FileDataProvider(root, index_cache=cache)
        assert first.file_table.folder == str(entry(cache))
        assert first.file_table == FileDataProvider(root).file_table
        assert first.class_names == ("cat", "dog", "ox")
        written = entry(cache).stat().st_mtime_ns
        assert FileDataProvider(root, index_cache=cache).file_table == first.file_table
        assert entry(cache).stat().st_mtime_ns == written

        (root / "dog" / "new.jpg").write_bytes(b"abc")
        assert FileDataProvider(root, index_cache=cache).get_number_of_samples() == 10
        age(root)
        (root / "bee").mkdir()
        assert FileDataProvider(root, index_cache=cache).num_classes == 4
        age(root)
        FileDataProvider(root, index_cache=cache)
        (root / "bee").rmdir()
        assert FileDataProvider(root, index_cache=cache).num_classes == 3

    def test_is_not_trusted_while_folders_are_still_filled(self, root: Path, tmp_path: Path) -> None:
        # Two changes in the same tick of the clock leave the same time.
        FileDataProvider(root, index_cache=tmp_path / "cache")
        changed = (root / "dog").stat().st_mtime_ns
        (root / "dog" / "new.jpg").write_bytes(b"abc")
        os.utime(root / "dog", ns=(changed, changed))
        assert FileDataProvider(root, index_cache=tmp_path / "cache").get_number_of_samples() == 10

    def test_other_arguments_have_entries_of_their_own(self, root: Path, tmp_path: Path) -> None:
        age(root)
        cache = tmp_path / "cache"
        choices: list[tuple[dict[str, Any], int]] = [
            ({}, 9),
            ({"file_filters": "[0-3].jpg"}, 4),
            ({"file_filters": "[0-3].jpg", "case_sensitive_filter": True}, 4),
            ({"file_filters": "[0-3].JPG"}, 4),
            ({"dir_filters": "c*"}, 5),
        ]
        for number, (arguments, count) in enumerate(choices * 2, start=1):
            assert FileDataProvider(root, index_cache=cache, **arguments).get_number_of_samples() == count
            assert len(os.listdir(cache)) == min(number, len(choices))
        other = shutil.copytree(root, tmp_path / "other")
        (other / "cat" / "0.jpg").unlink()
        age(other)
        assert FileDataProvider(other, index_cache=cache).get_number_of_samples() == 8

    def test_a_label_folder_that_is_gone_is_looked_for_again(self, root: Path, tmp_path: Path) -> None:
        (root / "dog").rename(tmp_path / "dog")
        (root / "dog").symlink_to(tmp_path / "dog")
        age(root)
        FileDataProvider(root, index_cache=tmp_path / "cache")
        (tmp_path / "dog").rename(tmp_path / "moved")
        with pytest.raises(FileError, match=r"The link '.*/dog' leads nowhere"):
            FileDataProvider(root, index_cache=tmp_path / "cache")

    def test_refresh(self, root: Path, tmp_path: Path) -> None:
        age(root)
        FileDataProvider(root, index_cache=tmp_path / "cache")
        (root / "dog" / "new.jpg").write_bytes(b"abc")
        age(root)
        assert FileDataProvider(root, index_cache=tmp_path / "cache").get_number_of_samples() == 9
        refreshed = FileDataProvider(root, index_cache=tmp_path / "cache", refresh=True)
        assert refreshed.get_number_of_samples() == 10

    def test_remote_folders_do_not_tell_that_they_changed(self, tmp_path: Path) -> None:
        memory = fsspec.filesystem("memory")
        memory.pipe("/cached/a/x.jpg", b"abc")

        def count(**arguments: Any) -> int:
            provider = FileDataProvider("memory://cached", index_cache=tmp_path / "cache", **arguments)
            return provider.get_number_of_samples()

        try:
            assert count() == 1
            memory.pipe("/cached/a/y.jpg", b"abc")
            assert [count(), count(refresh=True), count()] == [1, 2, 2]
        finally:
            memory.store.clear()

    def test_of_lists_and_given_files(self, root: Path, tmp_path: Path) -> None:
        cache, path = tmp_path / "cache", tmp_path / "list"
        path.write_text("cat/0.jpg 3\n")
        changed = path.stat().st_mtime_ns

        def labels(**arguments: Any) -> list[int]:
            return FileDataProvider(root, index_cache=cache, **arguments).labels.tolist()

        assert labels(file_list=path) == [3]
        written = entry(cache).stat().st_mtime_ns
        assert labels(file_list=path) == [3]
        assert entry(cache).stat().st_mtime_ns == written
        path.write_text("cat/0.jpg 4\n")
        os.utime(path, ns=(changed, changed))
        assert labels(file_list=path) == [4]
        assert labels(files=["cat/0.jpg"], labels=[7]) == [7]
        assert labels(files=["cat/0.jpg"]) == [0]
        assert labels() == [0] * 5 + [1] * 2 + [2] * 2

    def test_workers_are_sent_its_path(self, root: Path, tmp_path: Path) -> None:
        provider = FileDataProvider(root, index_cache=tmp_path / "cache")
        content = pickle.dumps(provider)
        assert os.fsencode(tmp_path / "cache") in content
        assert b"cat/0.jpg" not in content
        assert pickle.loads(content).get_data(3)["data"].tobytes() == provider.get_data(3)["data"].tobytes()

    def test_the_home_folder(self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert FileDataProvider(root, index_cache="~/c").file_table.folder == str(entry(tmp_path / "c"))

    @pytest.mark.parametrize(
        ("name", "position"),
        [
            ("header.json", None),
            ("header.json", 8),
            ("header.json", 60),
            ("names.*.npy", None),
            ("names.*.npy", -3),
        ],
    )
    def test_is_made_anew_where_it_is_damaged(
        self, root: Path, tmp_path: Path, name: str, position: int | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        expected = FileDataProvider(root, index_cache=tmp_path).file_table
        (path,) = tmp_path.glob(f"????????????????????????????????/{name}")
        content = bytearray(path.read_bytes())
        if position is not None:
            content[position] ^= 0x55
        path.write_bytes(b"" if position is None else content)
        assert FileDataProvider(root, index_cache=tmp_path).file_table == expected
        assert f"{path.parent} is made anew: {str(path.parent)!r} is no table of names" in caplog.text
        assert FileTable.load(path.parent) == expected
