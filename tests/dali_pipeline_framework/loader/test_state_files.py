"""States in files, and damage to them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.loaders import by_sampler, edited, make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError, StateError
from accvlab.dali_pipeline_framework.loader import load_state, save_state
from accvlab.dali_pipeline_framework.loader.state import parse_state
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


def loader_of(batch_size: int = 4, **arguments: Any) -> DataLoader:
    return make_loader(by_sampler(ShuffledSampler(22, seed=3), IndexProvider(22)), batch_size, seed=7, **arguments)


def state_text() -> str:
    """A state with all entries but that of readers."""
    with loader_of() as loader:
        for _ in itertools.islice(loader, 2):
            pass
        state = loader.state_dict()
    with loader_of(3) as loader:
        loader.load_state_dict(state)
        next(iter(loader))
        return json.dumps(loader.state_dict())


def test_a_state_damaged_at_any_byte_is_refused() -> None:
    text = state_text().encode()
    expected = parse_state(text)
    num_same = 0
    with loader_of(3) as loader:
        for position, byte in enumerate(text):
            before, behind = text[:position], text[position + 1 :]
            others = {byte ^ (1 << bit) for bit in range(8)} | {*b' 07"{}[],:-.eE\\\n'}
            for broken in [before + behind, *(before + bytes([other]) + behind for other in others - {byte})]:
                try:
                    parsed = parse_state(broken)
                except StateError as error:
                    assert str(error)  # noqa: PT017
                    continue
                num_same += 1
                assert parsed == expected, broken
                loader.load_state_dict(broken)
                assert json.loads(json.dumps(loader.state_dict())) == json.loads(text)
    assert num_same < 300  # blanks


@given(st.data())
def test_a_state_cut_or_changed_in_several_places_is_refused(data: st.DataObject) -> None:
    text = TEXT.encode()
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    broken = text[:begin] + data.draw(st.binary(max_size=8)) + text[end:]
    with contextlib.suppress(StateError):
        assert parse_state(broken) == parse_state(text)


TEXT = state_text()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([*json.loads(TEXT), None]),
)
def test_any_value_for_an_entry_is_refused_or_the_same(value: Any, name: str | None) -> None:
    state = json.loads(TEXT)
    changed: Any = value if name is None else {**state, name: value}
    try:
        parsed = parse_state(changed)
    except StateError:
        return
    assert parsed == parse_state(state)


class Odd:
    """A value that can neither be compared nor shown."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __hash__ = None  # type: ignore[assignment]


ODD_VALUES = {
    "array": np.array([1, 2]),
    "array of one": np.array([1]),
    "number of NumPy": np.int64(1),
    "tensor": torch.tensor([1, 2]),
    "bytes": b"a",
    "set": {1},
    "odd": Odd(),
    "not a number": float("nan"),
    "function": len,
    "lists of arrays": [np.array([1, 2, 3])],
    "dict of an array": {"a": np.array([1, 2])},
    "dict of odd keys": {Odd: Odd()},
}


@pytest.mark.parametrize("value", ODD_VALUES)
@pytest.mark.parametrize("name", [*json.loads(TEXT), "reader", "other"])
def test_values_that_json_does_not_have_are_refused(name: str, value: str) -> None:
    with pytest.raises(StateError, match=r"damaged|has version|no version"):
        parse_state({**json.loads(TEXT), name: ODD_VALUES[value]})
    with pytest.raises(StateError):
        parse_state(ODD_VALUES[value])  # type: ignore[arg-type]


@contextlib.contextmanager
def without_room(num_bytes: int) -> Iterator[None]:
    """No file may have more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_state_that_finds_no_room_has_the_number_of_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with loader_of() as loader:
        save_state(loader, path)
        before = path.read_bytes()
        with (
            pytest.raises(FileError, match=r"state cannot be written to .*: File too large") as caught,
            without_room(9),
        ):
            save_state(loader, path)
        with pytest.raises(FileNotFoundError) as missing:
            save_state(loader, tmp_path / "missing" / "state.json")
    assert caught.value.errno == errno.EFBIG
    assert missing.value.errno == errno.ENOENT
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


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
                with pytest.raises(FileError, match=r"cannot be written to .*: No space left"):
                    save_state(loader, path)
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


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        loader_of() as loader,
        pytest.raises(FileError, match=r"cannot be written to .*: it is no regular file") as caught,
    ):
        save_state(loader, tmp_path / "pipe")
    assert caught.value.errno == errno.EINVAL
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_what_is_no_state_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "loader.json"
    with loader_of() as loader:
        for content in (b"", TEXT.encode()[:100], b"\0" * 50, b"[1]"):
            path.write_bytes(content)
            with pytest.raises(StateError, match=r"loader\.json"):
                load_state(loader, path)
        with pytest.raises(IsADirectoryError, match="cannot be read"):
            load_state(loader, tmp_path)
        with pytest.raises(FileNotFoundError, match="cannot be written"):
            save_state(loader, tmp_path / "none" / "loader.json")
        path.write_text(json.dumps({**edited(json.loads(TEXT)), "version": 9}))
        with pytest.raises(StateError, match=r"loader\.json.*version 9, this release"):
            load_state(loader, path)
    with make_loader(by_sampler(ShuffledSampler(23, seed=3), IndexProvider(23)), 4) as other:
        path.write_text(TEXT)
        with pytest.raises(StateError, match="other data or another order") as refused:
            load_state(other, path)
        assert refused.value.differences
