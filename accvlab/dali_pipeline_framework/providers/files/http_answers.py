# SPDX-License-Identifier: Apache-2.0
"""What web servers answer: parts of files, each with the version that it is of.

fsspec's own functions keep the headers of an answer to themselves, and take each failure to describe a file for
one that is not there.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from typing import Any

import attrs

_NOT_FOUND = (404, 410)
_HEAD_REFUSED = (400, 401, 403, 405, 501)  # e.g. for URLs that were signed for one method
_WHOLE, _PART, _NOT_SATISFIABLE = 200, 206, 416
_MARKS = ("ETag", "Last-Modified")


@attrs.frozen
class HttpAnswer:
    """An answer about a file.

    Attributes:
        size: Number of bytes of the file; None where the server does not say.
        marks: What the server says that changes with the content.
        content: The part that was asked for.
    """

    size: int | None
    marks: dict[str, str]
    content: bytes = b""


def is_http(file_system: Any) -> bool:
    """Whether files are asked for by HTTP."""
    module = sys.modules.get("fsspec.implementations.http")
    return module is not None and isinstance(file_system, module.HTTPFileSystem)


def described(file_system: Any, url: str) -> HttpAnswer:
    """Ask for size and version of a file.

    Raises:
        FileNotFoundError: There is none.
        Exception: What aiohttp raises.
    """
    answer: HttpAnswer = _run(file_system, _described, url)
    return answer


def part(file_system: Any, url: str, start: int, end: int) -> HttpAnswer:
    """Read the bytes of a file in ``[start, end)``, or as many as there are.

    Raises:
        FileNotFoundError: There is none.
        UnsupportedOperation: The server sends only whole files.
        Exception: What aiohttp raises.
    """
    answer: HttpAnswer = _run(file_system, _part, url, start, end)
    return answer


def _run(file_system: Any, action: Any, *arguments: Any) -> Any:
    from fsspec.asyn import sync

    return sync(file_system.loop, action, file_system, *arguments)


def _settings(file_system: Any, **headers: str) -> dict[str, Any]:
    given: Mapping[str, Any] = file_system.kwargs
    # The size and the parts of a file that was compressed for its way would be other ones.
    return {**given, "headers": {**given.get("headers", {}), "Accept-Encoding": "identity", **headers}}


async def _described(file_system: Any, url: str) -> HttpAnswer:
    session = await file_system.set_session()
    settings = {"allow_redirects": True, **_settings(file_system)}
    async with session.head(file_system.encode_url(url), **settings) as answer:
        size = answer.headers.get("Content-Length")
        if answer.status not in _HEAD_REFUSED:
            _require_success(answer, url)
            if size is not None:
                return HttpAnswer(int(size), _marks(answer))
    async with session.get(file_system.encode_url(url), **_settings(file_system, Range="bytes=0-0")) as answer:
        if answer.status != _NOT_SATISFIABLE:  # as of an empty file
            _require_success(answer, url)
        size = answer.headers.get("Content-Length") if answer.status == _WHOLE else _size_of(answer)
        return HttpAnswer(None if size is None else int(size), _marks(answer))


async def _part(file_system: Any, url: str, start: int, end: int) -> HttpAnswer:
    session = await file_system.set_session()
    settings = _settings(file_system, Range=f"bytes={start}-{end - 1}")
    async with session.get(file_system.encode_url(url), **settings) as answer:
        if answer.status == _NOT_SATISFIABLE:  # it ends before
            return HttpAnswer(_size_of(answer), _marks(answer))
        _require_success(answer, url)
        begins_there = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if answer.status != _PART or not begins_there:
            raise io.UnsupportedOperation(
                f"its server answers with the status {answer.status} where a part of the file is asked for, so "
                f"that it can only be read as a whole"
            )
        return HttpAnswer(_size_of(answer), _marks(answer), await answer.read())


def _require_success(answer: Any, url: str) -> None:
    if answer.status in _NOT_FOUND:
        raise FileNotFoundError(url)
    answer.raise_for_status()


def _size_of(answer: Any) -> int | None:
    """The size of the file whose part an answer has."""
    found = re.fullmatch(r"bytes .+/(\d+)", answer.headers.get("Content-Range", ""))
    return None if found is None else int(found[1])


def _marks(answer: Any) -> dict[str, str]:
    """The strongest mark only: servers that stand for each other may differ in the time."""
    return next(({name: answer.headers[name]} for name in _MARKS if answer.headers.get(name)), {})
