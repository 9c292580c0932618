"""`FileDataProvider`: files as samples of pipelines."""

from __future__ import annotations

import io
import os
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
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler, WeightedSampler


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
    def test_workers_deliver_what_the_native_reader_delivers(self, root: Path) -> None:
        provider = FileDataProvider(root)
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
        weights = 1 / np.bincount(provider.labels)[provider.labels]
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
        assert list(remote.file_table) == list(local.file_table)
        assert np.array_equal(remote.labels, local.labels)
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
