"""No error about a remote file shows a password, a signature or a key of its URL."""

from __future__ import annotations

import contextlib
import logging
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.file_server import FileServer
from support.laws import spread
from support.windows import video_clips

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, FileDataProvider
from accvlab.dali_pipeline_framework.errors import (
    FileError,
    FrameworkError,
    SettingError,
    SourceError,
    error_that_is_also,
)
from accvlab.dali_pipeline_framework.providers import FrameDataProvider, FrameFolders
from accvlab.dali_pipeline_framework.providers.files.remote_reading import RemoteReading
from accvlab.dali_pipeline_framework.providers.files.storage import Storage
from accvlab.dali_pipeline_framework.url_secrets import cleaned, without_secrets
from accvlab.dali_pipeline_framework.video import Videos

SECRET = "s3cr3tVALUE"
ONCE = {"reading": RemoteReading(attempts=1, timeout_s=30)}
AGAIN = {"reading": RemoteReading(attempts=2, first_wait_s=0.001, timeout_s=30)}

QUERIES = {
    "S3": f"X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}%2Fus&part=1",
    "Azure": f"sv=2024-01-01&se=2030{SECRET}&sig={SECRET}%3D",
    "CloudFront": f"Expires=1&Signature={SECRET}~__&Key-Pair-Id=K{SECRET}&Policy={SECRET}",
    "Google": f"GoogleAccessId={SECRET}@x.iam&Expires=1&Signature={SECRET}%2B",
    "others": f"token={SECRET}&x={SECRET}&{SECRET}",
    "fragment": f"part=1#{SECRET}",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff" + bytes(1000))
    with FileServer(tmp_path) as started:
        yield started


def root(server: FileServer) -> str:
    return server.url.replace("://", f"://me:{SECRET}@")


def texts(error: BaseException) -> str:
    """All that an error and what has led to it says, also what Python does not print."""
    found, rest, seen = ["".join(traceback.format_exception(error))], [error], set()
    while rest:
        link = rest.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        found += [str(link), repr(link), repr(link.args), *getattr(link, "__notes__", ())]
        found += [str(getattr(link, name, "")) for name in ("worker_traceback", "filename", "strerror")]
        rest += [each for each in (link.__cause__, link.__context__) if each is not None]
    return "\n".join(found)


def refused(action: Callable[[], object], error_class: type[BaseException] = FrameworkError) -> BaseException:
    with pytest.raises(error_class) as caught:
        action()
    assert SECRET not in texts(caught.value)
    return caught.value


def closed_port() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


FAULTS = {
    "404": (lambda server: f"{root(server)}/none.jpg", FileNotFoundError),
    "403": (lambda server: f"{root(server)}/a.jpg", FileError),
    "500": (lambda server: f"{root(server)}/a.jpg", FileError),
    "cut": (lambda server: f"{root(server)}/a.jpg", FileError),
    "stall": (lambda server: f"{root(server)}/a.jpg", TimeoutError),
    "nobody there": (lambda server: f"http://me:{SECRET}@{closed_port()}/a.jpg", FileError),
    "no certificate": (lambda server: f"{root(server).replace('http:', 'https:')}/a.jpg", FileError),
    "odd password": (lambda server: f"http://me:#{SECRET}/{SECRET}@127.0.0.1/a.jpg", FileError),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_of_reading(server: FileServer, fault: str) -> None:
    make_url, error_class = FAULTS[fault]
    for query, options in ((QUERIES["S3"], ONCE), (QUERIES["Azure"], AGAIN)):
        url = f"{make_url(server)}?{query}"
        reading = attrs.evolve(options["reading"], timeout_s=0.5) if fault == "stall" else options["reading"]
        server.lasting_fault = fault if fault.isdigit() or fault in ("cut", "stall") else ""
        provider = FileDataProvider(files=[url], storage_options={"reading": reading})
        error = refused(lambda provider=provider: provider.get_data(0), error_class)
        assert "***" in str(error)
        if fault == "404":
            assert type(error.__cause__) is FileNotFoundError
        if fault in ("403", "500"):
            assert f"ClientResponseError: {fault}, " in str(error.__cause__)
    assert SECRET not in repr(provider)


@pytest.mark.parametrize("num_workers", [0, 1])
@spread("query", [*QUERIES.values()], 4, ids=[*QUERIES])
def test_errors_of_workers(
    server: FileServer, query: str, num_workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = FileDataProvider(root(server), files=[f"none.jpg?{query}"], storage_options=ONCE)
    settings: dict[str, Any] = {"num_workers": num_workers, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(provider, 1, **settings) as loader:
        error = refused(lambda: next(iter(loader)), SourceError)
    assert isinstance(error, FileError)
    assert str(error).count("cannot be read") == 1
    if query == QUERIES["S3"]:
        policy = FaultPolicy(samples="skip", quarantine=tmp_path / "failed.jsonl", max_failed=0)
        with (
            caplog.at_level(logging.DEBUG, "accvlab"),
            DataLoader(provider, 1, faults=policy, **settings) as loader,
        ):
            refused(lambda: [*loader])
            assert loader.failed_samples
            shown = [repr(loader), repr(provider), repr(loader.failed_samples), caplog.text]
            shown += [each.message for each in loader.failed_samples] + [(tmp_path / "failed.jsonl").read_text()]
        assert SECRET not in "".join(shown)


def test_errors_of_lists_folders_archives_and_videos(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_bytes(b"no archive")
    url = root(server)
    query = QUERIES["S3"]
    listed = {"file_list": f"{url}/a.jpg?{query}", "storage_options": ONCE}
    refused(lambda: FileDataProvider(**{**listed, "file_list": f"{url}/none.txt?{query}"}), FileError)
    refused(lambda: FileDataProvider(**listed), SettingError)  # no list
    refused(lambda: FileDataProvider(f"{url}/none?{query}", storage_options=ONCE), FileError)
    refused(lambda: FrameDataProvider(FrameFolders(f"{url}/none?{query}", storage_options=ONCE)))
    refused(lambda: Storage(f"zip://::{url}/all.zip?{query}", ONCE).read_bytes("a"), FileError)
    refused(lambda: Storage(f"nowhere://me:{SECRET}@h").read_bytes("a"), FileError)
    refused(lambda: video_clips(Videos(f"{url}/a.mp4?{query}", storage_options=ONCE), 1))
    server.lasting_fault = "403"
    refused(lambda: FileDataProvider(**listed), Exception)
    server.lasting_fault = ""
    for settings in (
        Videos(f"{url}/a.mp4?{query}", storage_options={"secret": SECRET}),
        FrameFolders(f"{url}?{query}", storage_options={"headers": {"Authorization": SECRET}}),
        Storage(url, {"key": SECRET}),
    ):
        assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pass@h:8/a.mp4", "https://***@h:8/a.mp4"),
        ("https://me:p@ss@h:8/b.mp4", "https://***@h:8/b.mp4"),
        ("https://me:p#s?s/w@h:8/a.mp4?b=1", "https://***@h:8/a.mp4?b=1"),
        ("zip://a::https://me@h/a.zip", "zip://a::https://***@h/a.zip"),
        ("https://h/a?X-Amz-Signature=1a&part=1&sig=b%3D", "https://h/a?X-Amz-Signature=***&part=1&sig=***"),
        ("https://h/p?a=1: got 3", "https://h/p?a=1: got 3"),
        ("https://h/p?a=1b: got 3", "https://h/p?a=***: got 3"),
        ("https://h/a?1a2b and https://h/b#1a.", "https://h/a?*** and https://h/b#***."),
        ("('https://h/a?b=c', 'd')", "('https://h/a?b=***', 'd')"),
        ("500: 'https://h/a?token=x'", "500: 'https://h/a?token=***'"),
        ("404, message='None', url='https://h/a?t=x y'", "404, message='None', url='https://h/a?t=*** y'"),
        ("s3://b/a@b/c.mp4", "s3://b/a@b/c.mp4"),
        ("http://[::1]:8080/a@b http://h:80/a", "http://[::1]:8080/a@b http://h:80/a"),
        ("/local/a?key=1 : a ? b : c", "/local/a?key=1 : a ? b : c"),
    ],
)
def test_the_filter(text: str, expected: str) -> None:
    assert without_secrets(text) == expected
    assert without_secrets(expected) == expected


def test_only_errors_about_remote_files_are_filtered() -> None:
    text = "https://h/p?a=b and c"
    assert str(FileError(text)) == str(error_that_is_also(SettingError, [OSError], text)) == text


SAFE = st.text("abz019-._~%/+", min_size=8, max_size=20).map(lambda text: f"S{text}e")


@given(SAFE, st.sampled_from(["https", "s3", "abfs"]), st.sampled_from(["sig", "X-Amz-Security-Token", "api_key"]))
def test_no_password_and_no_signature_passes(secret: str, protocol: str, name: str) -> None:
    for text in (f"{protocol}://u:{secret}@h/a", f"'{protocol}://h/a?p=1&{name}={secret}&q=2': no"):
        assert secret not in without_secrets(text)


def test_errors_of_other_libraries_are_replaced_where_they_show_secrets() -> None:
    class ResponseError(OSError):
        """As those of aiohttp: the text is not among the arguments."""

        def __str__(self) -> str:
            return f"503, url=https://h/a?sig={SECRET}"

    first, second = FileNotFoundError(2, "none", f"https://h/a?sig={SECRET}"), ResponseError()
    third = KeyError("a")
    second.__cause__ = first
    with contextlib.suppress(KeyError):
        raise third from second
    clean = cleaned(third)
    assert clean is third
    link: Any = clean.__cause__
    assert (type(link), str(link)) == (OSError, "ResponseError: 503, url=https://h/a?sig=***")
    assert type(link.__cause__) is FileNotFoundError
    assert SECRET not in texts(clean)
    plain = ValueError("nothing", 3)
    assert cleaned(plain) is plain
    assert plain.args == ("nothing", 3)
