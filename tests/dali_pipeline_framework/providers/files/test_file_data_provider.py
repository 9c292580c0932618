"""`FileDataProvider`: files as samples of pipelines."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from support.arrays import encoded_image, gradient
from support.loaders import make_loader

from accvlab.dali_pipeline_framework.errors import DuplicateFieldError, FileError, SettingError
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.providers import FileDataProvider


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nine images of three labels, of different sizes."""
    for i in range(9):
        path = tmp_path / "root" / ("cat", "dog", "ox")[i % 3 if i < 7 else 0] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded_image(gradient(30, 40 + 8 * (i % 2), i)).tobytes())
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

    def test_paths_of_any_bytes_and_length(self, tmp_path: Path) -> None:
        path = os.fsencode(tmp_path) + b"/\xff\xc3\xa4.jpg"
        folder = tmp_path.joinpath(*["ä" * 120] * 6)
        folder.mkdir(parents=True)
        long = os.fsencode(folder / f"{'x' * 250}.jpg")
        for each in (path, long):
            with open(each, "wb") as file:
                file.write(b"abc")
        provider = FileDataProvider(files=[os.fsdecode(path), os.fsdecode(long), "x/" * 3000])
        assert provider.get_data(0)["path"] == f"{tmp_path}/\\xffä.jpg"
        assert os.fsencode(provider.path(0)) == path
        assert provider.get_data(1)["data"].tobytes() == b"abc"
        with pytest.raises(FileError, match="File name too long"):
            provider.get_data(2)


class TestBadFiles:
    def test_are_named(self, root: Path) -> None:
        provider = FileDataProvider(root)
        (root / "dog" / "1.jpg").unlink()
        (root / "dog" / "4.jpg").write_bytes(b"")
        with pytest.raises(FileNotFoundError, match=r"^The file '.*/dog/1.jpg' cannot be read: there is none"):
            provider.get_data(5)
        with pytest.raises(FileError, match=r"^The file '.*/dog/4.jpg' is empty"):
            provider.get_data(6)
        for index in (-1, 9):
            with pytest.raises(SettingError, match=rf"`sample_index` must be in \[0, 8\], got {index}"):
                provider.get_data(index)
            with pytest.raises(SettingError):
                provider.path(index)


class TestPipelines:
    def test_loaders_deliver_what_the_native_reader_delivers(self, root: Path) -> None:
        provider = FileDataProvider(root)
        steps, how = [ImageDecoder("data", use_device_mixed=False)], {"last_batch": "partial", "ragged": "list"}
        with make_loader(provider, 2, steps=steps, **how) as loader:
            delivered = [row for batch in loader for row in zip(*batch.values(), strict=True)]
        expected = native_decoded(root)
        assert len(delivered) == len(expected)
        for place, ((image, label, path, index), (of_native, native_label)) in enumerate(
            zip(delivered, expected, strict=True)
        ):
            assert np.array_equal(image, of_native)
            assert (label.tolist(), path, int(index)) == (native_label, provider.path(place), place)

    @pytest.mark.parametrize(("kind", "num_workers"), [("zip", 1), ("file", 0)])
    def test_remote_roots(self, root: Path, tmp_path: Path, kind: str, num_workers: int) -> None:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for path in root.rglob("*.jpg"):
                archive.write(path, f"in/{path.relative_to(root)}")
        url = {"zip": f"zip://in::{tmp_path}/all.zip", "file": f"file://{root}"}[kind]
        remote, local = FileDataProvider(url), FileDataProvider(root)
        assert list(remote.file_table) == list(local.file_table)
        assert np.array_equal(remote.labels, local.labels)
        how = {"start_method": "forkserver", "ragged": "list"}
        with make_loader(remote, 3, num_workers=num_workers, **how) as loader:
            delivered = [data for batch in loader for data in batch["data"]]
        for i, data in enumerate(delivered):
            assert np.array_equal(data, local.get_data(i)["data"])
        assert remote.get_data(0)["path"].endswith("cat/0.jpg" if kind == "file" else "all.zip")

    def test_a_root_in_the_memory_of_this_process(self, root: Path) -> None:
        memory = fsspec.filesystem("memory")
        for path in root.rglob("*.jpg"):
            memory.pipe(f"/train/{path.relative_to(root)}", path.read_bytes())
        memory.pipe("/train/list.txt", b"cat/0.jpg 4\ndog/1.jpg 3\n")
        try:
            listed = FileDataProvider(file_list="memory://train/list.txt")
            assert listed.labels.tolist() == [4, 3]
            assert listed.path(0) == "memory://train/cat/0.jpg"
            urls = FileDataProvider(files=["memory://train/dog/1.jpg", str(root / "cat/0.jpg")])
            of_root = FileDataProvider("memory://train")
            for provider, index, name in (
                (listed, 1, "dog/1.jpg"),
                (urls, 1, "cat/0.jpg"),
                (of_root, 8, "ox/5.jpg"),
            ):
                assert provider.get_data(index)["data"].tobytes() == (root / name).read_bytes()
        finally:
            memory.store.clear()
        assert (
            FileDataProvider(files=["http://me:hidden@host/a.jpg"]).describe_sample(0) == "http://***@host/a.jpg"
        )
