"""States in files."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from pathlib import Path

import pytest
from support.loaders import by_sampler, edited, make_loader
from support.providers import IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError, StateError
from accvlab.dali_pipeline_framework.loader import load_state, save_state
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


def loader_of(num_samples: int = 22) -> DataLoader:
    return make_loader(by_sampler(ShuffledSampler(num_samples, seed=3), IndexProvider(num_samples)), 4, seed=7)


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "loader.json"
    with loader_of() as loader:
        assert not load_state(loader, path)
        batches = iter(loader)
        next(batches)
        save_state(loader, path)
        rest = [batch["index"].tolist() for batch in batches]
        state = json.loads(path.read_text())
        assert (state["epoch"], state["batch"]) == (0, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with loader_of() as loader:
        assert load_state(loader, str(path))
        assert [batch["index"].tolist() for batch in loader] == rest
    assert os.listdir(tmp_path) == ["loader.json"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stops while it is written, the old state is there."""
    path = tmp_path / "loader.json"
    order: list[str] = []
    with loader_of() as loader:
        save_state(loader, path)
        old = path.read_bytes()
        for _ in itertools.islice(loader, 2):
            pass
        for name in ("fsync", "replace"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left")))
                assert_refused(
                    lambda: save_state(loader, path), "cannot be written to ...: No space left", FileError
                )
            assert path.read_bytes() == old
            assert os.listdir(tmp_path) == ["loader.json"]
        fsync, replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda file: (order.append("fsync"), fsync(file)))
        monkeypatch.setattr(os, "replace", lambda *paths: (order.append("replace"), replace(*paths)))
        save_state(loader, path)
    assert order == ["fsync", "replace", "fsync"]
    assert json.loads(path.read_bytes())["batch"] == 2


def test_what_has_no_end_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 28) + 1)
    with loader_of() as loader:
        for path in (Path("/dev/zero"), tmp_path / "link", tmp_path / "pipe"):
            with pytest.raises(FileError, match="cannot be read: it is no regular file"):
                load_state(loader, path)
        with pytest.raises(StateError, match=r"large' is larger than any state of a loader"):
            load_state(loader, tmp_path / "large")
        with pytest.raises(FileError, match=r"cannot be written to .*: it is no regular file") as caught:
            save_state(loader, tmp_path / "pipe")
    assert caught.value.errno == errno.EINVAL
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_what_is_no_state_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "loader.json"
    with loader_of() as loader:
        text = json.dumps(loader.state_dict())
        for content in (b"", text.encode()[:100], b"\0" * 50, b"[1]"):
            path.write_bytes(content)
            with pytest.raises(StateError, match=r"loader\.json"):
                load_state(loader, path)
        with pytest.raises(IsADirectoryError, match="cannot be read"):
            load_state(loader, tmp_path)
        with pytest.raises(FileNotFoundError, match="cannot be written"):
            save_state(loader, tmp_path / "none" / "loader.json")
        path.write_text(json.dumps({**edited(json.loads(text)), "version": 9}))
        with pytest.raises(StateError, match=r"loader\.json.*version 9, this release"):
            load_state(loader, path)
    path.write_text(text)
    with loader_of(23) as other, pytest.raises(StateError, match="other data or another order") as refused:
        load_state(other, path)
    assert refused.value.differences
